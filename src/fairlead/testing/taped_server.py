"""A server that is recorded the first time, and played from its tape after that."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client.mcp_transport.inprocess import Attachable
from ..client.server_entry import read_entry
from ..errors import ConfigError
from ..gateway import Relay
from ..recording.replay import TapeServer
from ..recording.tape import TapeWriter
from ..recording.tape.format import about_entry
from ..recording.tape.known_secrets import secrets_of
from ..recording.tape.tape_files import files_of, name_of_part
from ..recording.tape.tape_interceptor import Recorder
from ..redaction.redact_messages import Redactor

if TYPE_CHECKING:
    from ..peer import Peer
    from ..protocol.identity.principal import Principal
    from ..transport.channel import Channel

__all__ = ["TapedServer"]

_FRESH = ".recording"  # until the test has passed


class TapedServer:
    """Something to attach to, like an `MCPServer`."""

    def __init__(self, place: Path, target: Any, mode: str, options: dict[str, Any]) -> None:
        """Raises: ConfigError: there is no tape, and nothing that could be recorded."""
        there = name_of_part(str(place), 1).exists()
        self.recording = mode == "again" or (mode == "once" and not there)
        self._place = place
        self._tape: TapeWriter | None = None
        self._relay: Relay | None = None  # while somebody is attached: loops come and go
        self._attached = 0
        self._player: TapeServer | None = None
        if not self.recording:
            if not there:
                raise ConfigError(f"There is no tape {place}, and none may be recorded")
            self._player = TapeServer(place, **options)
            self._make: Callable[[], Relay] = self._player.for_both_eras
            return
        if target is None:
            raise ConfigError(f"There is no tape {place}, and no server to record")
        entry = None if isinstance(target, Attachable) else read_entry(target)
        self._tape = TapeWriter(
            place.with_name(place.name + _FRESH),
            redactor=Redactor(values=secrets_of(entry)),
            about=about_entry(entry),
        )
        self._tape.info.name = place.name
        recorder = Recorder(self._tape)
        self._make = lambda: Relay(target, place.name, interceptors=[recorder])

    def attach(self, channel: "Channel", principal: "Principal") -> "_Attached":
        """Serve one client; the last one that leaves ends the server too."""
        if self._relay is None:
            self._relay = self._make()
        self._attached += 1
        return _Attached(self, self._relay.attach(channel, principal))

    async def left(self) -> None:
        """One client has gone."""
        self._attached -= 1
        if not self._attached and self._relay is not None:
            relay, self._relay = self._relay, None
            await relay.close()

    @property
    def missed(self) -> list[str]:
        """What was asked, and is not on the tape."""
        return [] if self._player is None else list(dict.fromkeys(self._player.missed))

    def finish(self, *, keep: bool) -> None:
        """The test is over; what was recorded is kept if it went well."""
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
        self._closed = False

    async def close(self) -> None:
        await self._peer.close()
        if not self._closed:
            self._closed = True
            await self._taped.left()
