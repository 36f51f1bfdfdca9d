"""Writer for tapes: one line per message, without secrets, with a limited size on disk."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from ...observe.log_filter import follow_secrets
from ...observe.timestamps import Timestamp
from ...protocol.envelope import Direction
from ...redaction.redact_messages import Redactor
from ...store.atomic_write import write_atomically
from ...wire import RequestId, single_line
from ...wire.json import UNREADABLE
from .format import ABOUT, LINES, TapeEntry, TapeInfo, base_of
from .recording_lock import hold
from .tape_files import is_tape, name_of_part, parts_of

__all__ = ["TapeWriter"]

MAX_BYTES: Final = 256 << 20  # maximum size of one part, in bytes
# maximum number of parts; older parts are dropped, except the first, which contains the handshake
MAX_PARTS: Final = 8
COMPLAIN_AGAIN: Final = 60.0  # seconds between two reports of lost messages

log = logging.getLogger("fairlead.gateway.tape")

_NOTHING_ELSE: Final = (None, None, None)
_PLAIN: Final = b'{"jsonrpc":"2.0","id":1,"result":{}}'
_DIRECTIONS: Final = {one: one.value.encode() for one in Direction}

_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(Raw).decode


class TapeWriter:
    """Writer for a tape that contains one conversation, or all conversations of a gateway.

    If the disk is full, messages are counted as lost; forwarding is not affected.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        redactor: Redactor | None = None,
        redact: bool = True,
        tags: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
        max_bytes: int = MAX_BYTES,
        max_parts: int = MAX_PARTS,
        began: Timestamp | None = None,
    ) -> None:
        """Create a tape, or overwrite an existing one, at `path` with or without `.tape.jsonl`.

        If `redact` is False, secrets are recorded. `began` is the start time of the tape; by
        default the current time.

        Raises:
            OSError: The tape cannot be written, or another process is recording it.
        """
        from ... import __version__

        self._base = base_of(path)
        self._redactor = (redactor or follow_secrets(Redactor())) if redact else None
        # If the redactor changes even an empty result, no result is considered clean.
        self._may_be_clean = self._redactor is None or self._redactor.message(_PLAIN) == _PLAIN
        self._max_bytes, self._max_parts = max_bytes, max(max_parts, 2)
        self._clock = time.monotonic() if began is None else began.steady
        self._info = TapeInfo(
            name=Path(self._base).name,
            began=time.time() if began is None else began.wall,
            tags=list(tags),
            about=self._clean(dict(about or {})),
            redacted=redact,
            fairlead=__version__,
        )
        Path(self._base).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        first = _open(self.path)
        try:
            hold(first)  # locked before parts of an older tape are deleted
            for old in parts_of(self._base)[1:]:
                old.unlink(missing_ok=True)
            os.ftruncate(first, 0)
        except OSError:
            os.close(first)
            raise
        self._first = first  # kept open because closing it would release the lock
        self._file: int | None = first
        self._part, self._size = 1, 0
        self._complained = 0.0
        self._write_info()

    @property
    def path(self) -> Path:
        """The file that contains the first lines."""
        return Path(f"{self._base}{LINES}")

    @property
    def info(self) -> TapeInfo:
        """The metadata collected so far."""
        return self._info

    def write(
        self,
        message: bytes,
        direction: Direction,
        session: str | None = None,
        related: RequestId | None = None,
        server: str | None = None,
        transport: Mapping[str, Any] | None = None,
        did: Sequence[str] | None = None,
        stopped: bool = False,
        *,
        clean: bool = False,
        when: Timestamp | None = None,
    ) -> None:
        """Append a message in its wire format. Never raises.

        `clean` means that redaction would not change the message. `when` is the time of a message
        that was forwarded earlier.
        """
        if self._file is None:
            return
        # Server output that is not a message is stored as a string, so that the line is valid JSON.
        if not _is_json(message):
            message = _encode(message.decode("utf-8", "replace"))
        if self._redactor is not None and not clean:
            message = self._redactor.frame(message)
        now = time.monotonic() if when is None else when.steady
        micros = int((now - self._clock) * 1e6 + 0.5)
        info = self._info
        info.entries += 1
        if (
            session is not None
            and (related, server, transport) == _NOTHING_ELSE
            and micros >= 0
            and not did
            and not stopped
            # Nearly all messages are encoded here, three times as fast as by the encoder below.
        ):
            seconds, micros = divmod(micros, 1_000_000)
            self._append(
                b'{"seq":%d,"at":%d.%06d,"dir":"%b","message":%b,"session":%b}\n'
                % (
                    *(info.entries, seconds, micros, _DIRECTIONS[direction]),
                    *(single_line(message), _encode(session)),
                )
            )
            return
        entry = TapeEntry(
            seq=info.entries,
            at=micros / 1e6,
            dir=direction,
            message=Raw(single_line(message)),
            session=session,
            related=related,
            server=server,
            transport=None if transport is None else self._clean(dict(transport)),
            did=self._clean(list(did)) if did else None,
            stopped=stopped,
        )
        self._append(_encode(entry) + b"\n")

    def is_harmless(self, result: bytes) -> bool:
        """Return True if redaction would not change a response with this result."""
        if self._redactor is None:
            return True
        return self._may_be_clean and self._redactor.message(result) is result

    def close(self) -> None:
        """Finish the tape and release the lock."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if file != self._first:
            os.close(file)
        self._info.ended, self._info.status = time.time(), "complete"
        self._write_info()
        os.close(self._first)

    def __enter__(self) -> "TapeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clean(self, value: dict[str, Any] | list[str]) -> Any:
        return value if self._redactor is None else self._redactor.value(value)

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        try:
            if self._size + len(line) > self._max_bytes and self._size:
                self._rotate()
            written = os.write(self._file, line)
            if written < len(line):  # a partial line would corrupt the next line
                os.ftruncate(self._file, self._size)
                raise OSError("no space left on the disk")
            self._size += written
        except OSError as exc:
            self._lose(exc)

    def _lose(self, exc: OSError) -> None:
        self._info.lost += 1
        now = time.monotonic()
        if now - self._complained > COMPLAIN_AGAIN or self._info.lost == 1:
            self._complained = now
            lost = "a message" if self._info.lost == 1 else f"{self._info.lost} messages"
            log.warning("%s: %s could not be recorded: %s", self.path, lost, exc)

    def _rotate(self) -> None:
        assert self._file is not None
        part = self._part + 1
        # Skip a file name that belongs to another tape.
        while is_tape(name_of_part(self._base, part)):
            part += 1
        full, self._file = self._file, _open(name_of_part(self._base, part))
        self._size = 0
        if full != self._first:
            os.close(full)
        self._info.parts = self._part = part
        for old in parts_of(self._base)[1 : 1 - self._max_parts]:
            old.unlink(missing_ok=True)
        self._write_info()

    def _write_info(self) -> None:
        """Replace the companion file atomically.

        A failure is only logged, because the tape can be read without it.
        """
        place = Path(f"{self._base}{ABOUT}")
        try:
            write_atomically(place, msgspec.json.format(_encode(self._info), indent=2) + b"\n")
        except OSError as exc:
            log.warning("%s could not be written: %s", place, exc)


def _is_json(message: bytes) -> bool:
    try:
        _check(message)
        return message.isascii() or bool(message.decode())
    except UNREADABLE:
        return False


def _open(place: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    file = os.open(place, flags, 0o600)
    with suppress(OSError, AttributeError):  # an existing file may be readable for other users
        os.fchmod(file, 0o600)
    return file
