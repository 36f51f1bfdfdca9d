"""Tapes of a gateway. One tape at a time is recorded, with the messages of all clients."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from ...errors import ConfigError
from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...observe.log_filter import follow_secrets
from ...policy.conditions.facts import ServerOf
from ...recording.tape import TapeInfo, TapeReader, TapeWriter
from ...recording.tape.format import LINES
from ...recording.tape.known_secrets import secrets_of
from ...recording.tape.tape_files import files_of, tapes_in
from ...recording.tape.tape_interceptor import Recorder
from ...redaction.redact_messages import Redactor
from ...upstream.upstream_registry import UpstreamRegistry

__all__ = ["TapeControl", "about_tape", "learn_secrets"]

# The first character must not be `.`, so that a name such as `..` cannot leave the folder.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class TapeControl(InterceptorBase):
    """Interceptor that records messages on tapes on request, and manages the folder of tapes."""

    waits: ClassVar = False

    def __init__(
        self,
        folder: Path,
        *,
        secrets: Iterable[str] = (),
        about: Mapping[str, Any] | None = None,
        **bounds: int,
    ) -> None:
        """`secrets` are redacted on tapes; those of servers are added when they are connected.
        `bounds` are the limits of `TapeWriter`.
        """
        self.folder = folder
        self._redactor = follow_secrets(Redactor(values=secrets))
        self._about = dict(about or {})
        self._bounds: Any = bounds
        self._recorder: Recorder | None = None
        self._server_of: ServerOf | None = None
        self.last: TapeWriter | None = None  # the current tape, or the latest one

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        recorder = self._recorder
        return await (proceed(exchange) if recorder is None else recorder(exchange, proceed))

    def observe_gateway(
        self, upstreams: UpstreamRegistry, server_of: ServerOf
    ) -> Callable[[], None]:
        """Prepare recordings of a gateway. Return a function that ends the current recording."""
        self._server_of = server_of
        stop_learning = learn_secrets(upstreams, self._redactor)

        def end() -> None:
            stop_learning()
            self.stop()

        return end

    # Recording

    @property
    def recording(self) -> TapeWriter | None:
        """The tape that is being recorded."""
        return None if self._recorder is None else self._recorder.tape

    def start(
        self,
        name: str | None = None,
        *,
        place: Path | None = None,
        tags: Sequence[str] = (),
        overwrite: bool = False,
        redact: bool = True,
    ) -> TapeWriter:
        """Start a recording: in the folder under `name`, or at the path `place`.

        Raises:
            ConfigError: A tape is being recorded, the tape already exists, or it cannot be written.
        """
        if self.recording is not None:
            raise ConfigError(
                f"tape {self.recording.info.name!r} is being recorded: stop the recording first"
            )
        place = place or self.place_of(name or f"gateway-{time.strftime('%Y%m%d-%H%M%S')}")
        if place.with_name(f"{place.name}{LINES}").exists() and not overwrite:
            raise ConfigError(f"tape {place.name!r} already exists")
        try:
            tape = TapeWriter(
                place,
                redactor=self._redactor,
                redact=redact,
                tags=tags,
                about=self._about,
                **self._bounds,
            )
        except OSError as exc:
            raise ConfigError(f"cannot record tape {place}: {exc.strerror or exc}") from exc
        self._recorder = Recorder(tape, server_of=self._server)
        self.last = tape
        return tape

    def stop(self) -> TapeInfo | None:
        """Stop the recording, if there is one, and return a summary of its tape."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return None
        recorder.tape.close()
        return recorder.tape.info

    def _server(self, exchange: Exchange) -> str | None:
        return None if self._server_of is None else self._server_of(exchange)

    # Tapes

    def place_of(self, name: str) -> Path:
        """Return the path of a tape without its extension.

        Raises:
            ConfigError: The name is invalid.
        """
        if not _NAME.fullmatch(name) or name.endswith((".tape.json", ".tape.jsonl")):
            raise ConfigError(
                # Shortened, because the name comes from a request and may be long.
                f"invalid tape name {name[:120]!r}: expected up to 100 letters, digits, `_`, `-` "
                "and `.`"
            )
        return self.folder / name

    def list(self) -> list[dict[str, Any]]:
        """Return all tapes in the folder as plain data, from the companion file of each."""
        found = []
        for place in tapes_in(self.folder):
            try:
                found.append(about_tape(TapeReader(place)))
            except (ConfigError, OSError):
                continue  # the tape has another version, or was just deleted
        return found

    def open(self, name: str) -> TapeReader:
        """Return a reader of a tape. Raises `ConfigError` if it cannot be read."""
        try:
            return TapeReader(self.place_of(name))
        except OSError as exc:
            raise ConfigError(f"cannot read tape {name!r}: {exc.strerror or exc}") from exc

    def delete(self, name: str) -> None:
        """Delete all files of a tape.

        Raises:
            ConfigError: The tape does not exist, or is being recorded.
        """
        reader = self.open(name)
        if reader.info.status == "recording":
            raise ConfigError(f"tape {name!r} is being recorded: stop the recording first")
        try:
            for file in files_of(reader.base):
                file.unlink()
        except OSError as exc:
            raise ConfigError(f"cannot delete tape {name!r}: {exc.strerror or exc}") from exc


def learn_secrets(upstreams: UpstreamRegistry, redactor: Redactor) -> Callable[[], None]:
    """Add the secrets of each server that connects to a redactor. Return a function that stops
    adding them.
    """

    return upstreams.on_resolved(lambda entry: redactor.learn(secrets_of(entry)))


def about_tape(reader: TapeReader) -> dict[str, Any]:
    """Return a summary of a tape without reading its entries."""
    info = reader.info
    return {
        **msgspec.to_builtins(info),
        "name": Path(reader.base).name,
        "status": info.status,
        "entries": info.entries if info.status == "complete" else None,
        "lost": info.lost,
        "tags": info.tags,
        "parts": len(reader.parts),
        "size": reader.size,
    }
