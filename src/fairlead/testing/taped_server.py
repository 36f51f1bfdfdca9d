"""Server that is recorded in the first run and played from its tape afterwards."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client.mcp_transport.inprocess import Attachable
from ..client.server_entry import read_entry
from ..errors import ConfigError
from ..gateway import Relay
from ..observe.log_filter import follow_secrets
from ..recording.replay import TapeServer
from ..recording.tape import TapeWriter
from ..recording.tape.format import about_entry
from ..recording.tape.known_secrets import secrets_of
from ..recording.tape.tape_files import files_of, name_of_part
from ..recording.tape.tape_interceptor import Recorder
from ..redaction.redact_messages import Redactor

if TYPE_CHECKING:
    from ..peer import Peer
    from ..protocol.caller import Principal
    from ..transport.channel import Channel

__all__ = ["TapedServer"]

_FRESH = ".recording"  # suffix of a new recording until its test has passed


class TapedServer:
    """Server that clients attach to like an `MCPServer`: the recorded server, or its tape."""

    def __init__(self, place: Path, target: Any, mode: str, options: dict[str, Any]) -> None:
        """Set the path of the tape (`place`) and the server to record (`target`).

        Raises:
            ConfigError: The tape is missing and cannot be recorded.
        """
        there = name_of_part(str(place), 1).exists()
        self.recording = mode == "again" or (mode == "once" and not there)
        self._place = place
        self._tape: TapeWriter | None = None
        # Open only while a client is attached, because each test may have its own event loop.
        self._relay: Relay | None = None
        self._attached = 0
        self._player: TapeServer | None = None
        if not self.recording:
            if not there:
                raise ConfigError(
                    f"the tape {place} is missing: use --fairlead-tapes=once to record it"
                )
            self._player = TapeServer(place, **options)
            self._make: Callable[[], Relay] = self._player.for_both_eras
            return
        if target is None:
            raise ConfigError(
                f"the tape {place} cannot be recorded: pass a target, the server to record"
            )
        entry = None if isinstance(target, Attachable) else read_entry(target)
        # A separate file is used, so that a failing test does not overwrite the old tape.
        self._tape = TapeWriter(
            place.with_name(place.name + _FRESH),
            redactor=follow_secrets(Redactor(values=secrets_of(entry))),
            about=about_entry(entry),
        )
        self._tape.info.name = place.name
        recorder = Recorder(self._tape)
        self._make = lambda: Relay(target, place.name, interceptors=[recorder])

    def attach(self, channel: "Channel", principal: "Principal") -> "_Attached":
        """Serve one client. The server is closed when the last client disconnects."""
        if self._relay is None:
            self._relay = self._make()
        self._attached += 1
        return _Attached(self, self._relay.attach(channel, principal))

    async def left(self) -> None:
        """Count a client that has disconnected, and close the server after the last one."""
        self._attached -= 1
        if not self._attached and self._relay is not None:
            relay, self._relay = self._relay, None
            await relay.close()

    @property
    def missed(self) -> list[str]:
        """The requests that the tape does not contain."""
        return [] if self._player is None else list(dict.fromkeys(self._player.missed))

    def finish(self, *, keep: bool) -> None:
        """Close the recording, and delete it unless `keep` is True, which means that the test
        passed.
        """
        if self._tape is None:
            return
        self._tape.close()
        fresh = str(self._place) + _FRESH
        if keep and self._tape.info.entries:
            for old in files_of(str(self._place)):
                old.unlink()
            for file in files_of(fresh):
                file.rename(file.with_name(file.name.replace(_FRESH, "", 1)))
        else:
            for file in files_of(fresh):
                file.unlink()


class _Attached:
    def __init__(self, taped: TapedServer, peer: "Peer") -> None:
        self._taped = taped
        self._peer = peer
        # `close` may be called more than once, but the client must be counted once.
        self._closed = False

    async def close(self) -> None:
        await self._peer.close()
        if not self._closed:
            self._closed = True
            await self._taped.left()
