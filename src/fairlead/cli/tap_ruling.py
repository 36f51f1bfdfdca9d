"""A tap with rules: no longer every byte as it came, but a relay that does what the rules say."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..client.entries import MCPStdioServerConfig
from ..client.transports import StdioTransport
from ..errors import ConfigError
from ..gateway import RelaySettings
from ..gateway.interceptors.recording import Recorder
from ..gateway.journal import Journal
from ..gateway.rules.ruleset import RuleSet
from ..gateway.rules.wired import wired_actions
from ..gateway.tape import TapeWriter
from ..gateway.way import Way
from ..interceptor import Interceptor
from ..observe.redactor import Redactor
from ..server.run import run_program
from ..transport.base import Channel
from .failed import NO_CONNECTION, USAGE, Failed, say
from .output import safe
from .tap_listening import secrets_known_to
from .tap_relaying import WatchedRelay
from .tape_places import new_place

__all__ = ["run_ruled"]


def run_ruled(command: Sequence[str], rules: str, about: dict[str, Any]) -> int:
    """Stand between the client on our stdin and stdout and a command, until one of them ends.

    Raises:
        Failed: the rules have mistakes, or there is no such command.
    """
    if shutil.which(command[0]) is None:
        raise Failed(
            f"{command[0]} cannot be started: there is no such program", code=NO_CONNECTION
        )
    try:
        acting = RuleSet.of_file(rules, actions=wired_actions())
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc
    redactor = Redactor(values=secrets_known_to(command))
    tape = _tape(about, redactor) if about["record"] else None
    interceptors: list[Interceptor] = [] if tape is None else [Recorder(tape)]
    relay = WatchedRelay(
        _way(command, about["name"]),
        kind="tap",
        journal=Journal(hangs_after=about["hangs_after"], redactor=redactor),
        settings=RelaySettings(upstream="per-session"),
        interceptors=[*interceptors, acting],
    )
    acting.stand_before(relay)
    try:
        run_program(relay.run_stdio)
    finally:
        acting.close()
        if tape is not None:
            tape.close()
    return 0


def _way(command: Sequence[str], name: str) -> Way:
    entry = MCPStdioServerConfig(command=command[0], args=list(command[1:]))

    async def dial() -> Channel:
        return await StdioTransport(entry, on_stderr=_show).open_channel()

    return Way(name=name, open=dial, shared=True, id_format=entry.request_id_format)


def _tape(about: dict[str, Any], redactor: Redactor) -> TapeWriter | None:
    place = Path(about["tape"]) if about["tape"] else new_place(about["name"], os.getpid())
    try:
        return TapeWriter(place, redactor=redactor, about={"command": about["command"]})
    except OSError as exc:
        say("warning", f"nothing is recorded: {exc}", "33")
        return None


def _show(line: str) -> None:
    """What the server writes to stderr, it would have shown without us too."""
    os.write(2, f"{line}\n".encode())
