"""A tap with rules: a relay that applies them instead of forwarding bytes unchanged."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...client.mcp_transport.factory import StdioTransport
from ...client.server_entry import MCPStdioServerConfig
from ...errors import ChannelClosed
from ...gateway import Relay, RelaySettings
from ...interceptor import Interceptor
from ...policy.rules.gateway_actions import gateway_actions
from ...policy.rules.ruleset import RuleSet
from ...recording.journal import Journal
from ...recording.tape import TapeWriter
from ...recording.tape.known_secrets import secrets_in
from ...recording.tape.tape_interceptor import Recorder
from ...redaction.redact_messages import Redactor
from ...server.run_program import run_program
from ...transport.channel import Channel
from ...transport.stdio.child_process import ProcessChannel
from ...upstream.connection.server_events import EventReceiver
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.server_target import ServerTarget
from ..framework.command_errors import print_message
from ..gateway.proxy import require_program
from ..recording.places import new_tape_path
from .watched_relay import WatchedRelay

__all__ = ["run_with_rules"]


def run_with_rules(command: Sequence[str], rules: str, about: dict[str, Any]) -> int:
    """Relay between the client on stdin and stdout and a command, until one of them ends.

    Raises:
        CommandError: The command does not exist.
        ConfigError: The rules file has errors.
    """
    server = _Server(command)
    require_program(server.entry)
    redactor = Redactor(values=secrets_in(command, os.environ))
    acting = RuleSet.of_file(rules, actions=gateway_actions(), known=redactor)
    tape = _tape(about, redactor) if about["record"] else None
    interceptors: list[Interceptor] = [] if tape is None else [Recorder(tape)]
    relay = WatchedRelay(
        ServerTarget(name=about["name"], open=server.start, is_process=True),
        kind="tap",
        journal=Journal(hangs_after=about["hangs_after"], redactor=redactor),
        settings=RelaySettings(share="session"),
        interceptors=[*interceptors, acting],
    )
    acting.attach_to(relay)
    try:
        run_program(lambda: server.while_it_runs(relay))
    finally:
        acting.close()
        if tape is not None:
            tape.close()
    return server.exit_code


class _Server:
    """The command that the tap runs. The tap exits when the command exits."""

    def __init__(self, command: Sequence[str]) -> None:
        # The tap's parent has already set the complete environment for the server.
        self.entry = MCPStdioServerConfig(
            command=command[0],
            args=list(command[1:]),
            env=dict(os.environ),
        )
        self._running: ProcessChannel | None = None

    async def start(self) -> Channel:
        channel = await StdioTransport(self.entry, on_stderr=_show).open_channel()
        assert isinstance(channel, ProcessChannel)
        self._running = channel
        return channel

    async def while_it_runs(self, relay: Relay) -> None:
        """Serve stdin and stdout until they close, or until the server exits by itself."""
        gone = asyncio.Event()
        before = relay.pool.on_lost

        def lost(
            connection: UpstreamConnection, end: ChannelClosed, sessions: list[EventReceiver]
        ) -> None:
            if before is not None:
                before(connection, end, sessions)
            if (
                connection.agreement is not None
                and end.exit_code is not None
                and not connection.ending
            ):
                gone.set()

        relay.pool.on_lost = lost
        serving = asyncio.ensure_future(relay.run_stdio())
        ending = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait((serving, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            serving.cancel()
            await asyncio.wait((serving, ending))
        if not serving.cancelled():
            serving.result()

    @property
    def exit_code(self) -> int:
        """Return the exit code of the server, or 0 if the tap itself terminated the server."""
        code = None if self._running is None else self._running.exit_code
        if code is None or -code in (signal.SIGTERM, signal.SIGKILL):
            return 0
        return code if code >= 0 else 128 - code


def _tape(about: dict[str, Any], redactor: Redactor) -> TapeWriter | None:
    place = Path(about["tape"]) if about["tape"] else new_tape_path(about["name"], os.getpid())
    try:
        return TapeWriter(place, redactor=redactor, about={"command": about["command"]})
    except OSError as exc:
        print_message("warning", f"cannot record: {exc}")
        return None


def _show(line: str) -> None:
    """Forward a line of the server's stderr unchanged, as if there were no tap."""
    os.write(2, f"{line}\n".encode())
