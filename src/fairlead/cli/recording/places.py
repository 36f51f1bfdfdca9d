"""Tapes on disk: finding, opening, reading and replacing them."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...config.paths import local_host_paths
from ..framework.command_errors import CommandError, print_message
from ..framework.output import StatusLine, format_size, visible
from ..framework.parser import flag

if TYPE_CHECKING:
    from ...recording.tape import TapeReader

__all__ = [
    "FORCE",
    "already_exists",
    "new_tape_path",
    "open_tape",
    "print_integrity_warnings",
    "progress",
    "reading",
    "tape_path",
    "tapes_folder",
]

KEPT = 20  # number of automatically named tapes that are kept per name
LOOKED_AT = 1 << 20  # number of bytes in which tape entries are searched for
NAMED = 5  # maximum number of tapes that a hint names
QUIET: Final = 1.0  # seconds of reading before progress is displayed
AGAIN: Final = 0.2
# Commands that record name this option `--overwrite`, so both names are accepted.
FORCE = flag("--force", "--overwrite", help="replace an existing file")
_ENDINGS = (".tape.jsonl", ".tape.json")
_WHEN = re.compile(r"-(\d{8}-\d{6})(?:-\d+)?$")  # suffix of automatically chosen names


def tapes_folder() -> Path:
    """Return the folder for tapes that are given by name."""
    return Path(local_host_paths().own_data) / "tapes"


def tape_path(name: str) -> Path:
    """Return the path of a tape without its extension; a bare name is in the tapes folder."""
    bare = name
    for ending in _ENDINGS:
        bare = bare.removesuffix(ending)
    is_path = os.sep in name or (os.altsep is not None and os.altsep in name) or bare != name
    if not bare or Path(bare).name in ("", ".", ".."):
        raise CommandError(f"Invalid tape name {name!r}")
    return Path(bare) if is_path else tapes_folder() / bare


def new_tape_path(name: str, pid: int | None = None) -> Path:
    """Return the path for a new automatically named tape, and delete the oldest tapes with that
    name.

    Otherwise commands that run every day would fill the disk.
    """
    folder = tapes_folder()
    bare = _in_names(name)
    _drop_old(folder, bare)
    return folder / f"{bare}-{time.strftime('%Y%m%d-%H%M%S')}-{pid or os.getpid()}"


def _in_names(name: str) -> str:
    """Return a name without the characters that are not allowed in tape names."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:50]


def _drop_old(folder: Path, name: str) -> None:
    pattern = re.compile(re.escape(name) + r"-\d{8}-\d{6}-\d+\.tape\.json")
    with contextlib.suppress(OSError):
        ours = [one for one in folder.iterdir() if pattern.fullmatch(one.name)]
        ours.sort(key=lambda one: one.stat().st_mtime)
        for about in ours[: -KEPT + 1]:
            for part in folder.glob(f"{about.name.removesuffix('.tape.json')}.*"):
                part.unlink(missing_ok=True)


@contextmanager
def reading() -> Iterator[None]:
    """Convert errors from reading a tape to `CommandError`."""
    from ...errors import ConfigError, FairleadError

    try:
        yield
    except ConfigError as exc:
        raise CommandError(visible(str(exc.args[0]))) from exc
    except (BrokenPipeError, FairleadError):
        raise
    except OSError as exc:
        raise CommandError(f"Cannot read {exc.filename or 'the tape'}: {exc.strerror}") from exc


def open_tape(name: str, *, exactly: bool = False) -> "TapeReader":
    """Open a tape, or, unless `exactly`, the newest tape whose name begins with `name`.

    Raises:
        CommandError: The tape does not exist or cannot be read.
    """
    from ...recording.tape import TapeReader

    place, others = tape_path(name), []
    # After one large allocation, glibc reuses the memory of one long line for the next.
    bytes(16 << 20)
    with reading():
        if place.with_name(f"{place.name}.tape.jsonl").is_file():
            return TapeReader(place)
        if Path(name).is_file() and _looks_like_one(name):
            return TapeReader(name)
        # A bare name is looked up in the tapes folder, even if it is also the name of another file.
        if place == tapes_folder() / name:
            others = _meant_by(name)
        if len({_WHEN.sub("", other) for other in others}) == 1 and not exactly:
            print_message("tape", visible(others[0]))
            return TapeReader(tapes_folder() / others[0])
    hint = "`fairlead tape list` shows all tapes"
    if others:
        more = " and more" if len(others) > NAMED else ""
        hint = f"did you mean one of {visible(', '.join(others[:NAMED]))}{more}?"
    elif Path(name).is_file():
        raise CommandError(f"{name} is not a tape: it does not begin with recorded messages")
    raise CommandError(f"Tape not found: {place}", hint=hint)


def _meant_by(name: str) -> list[str]:
    """Return tapes with that name, or else tapes whose names start with it, newest first."""
    from ...recording.tape.tape_files import tapes_in

    dated = []
    for lines in tapes_in(tapes_folder()):
        bare = lines.name.removesuffix(_ENDINGS[0])
        if bare.startswith(_in_names(name)):
            when = _WHEN.search(bare)
            with contextlib.suppress(OSError):  # another process deleted the tape in the meantime
                dated.append((when[1] if when else "", lines.stat().st_mtime, bare))
    found = [bare for _, _, bare in sorted(dated, reverse=True)]
    return [bare for bare in found if _WHEN.sub("", bare) == _in_names(name)] or found


def _looks_like_one(path: str) -> bool:
    """Return True if one of the first lines of a file is a tape entry, or the file is empty.

    Raises:
        OSError: The file cannot be read.
    """
    import msgspec

    from ...recording.tape import TapeEntry

    with open(path, "rb") as file:
        *whole, rest = file.read(LOOKED_AT).split(b"\n")
    for line in whole:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            msgspec.json.decode(line, type=TapeEntry)
            return True
    # the first line is longer than the checked part of the file
    return not whole and (not rest or len(rest) == LOOKED_AT)


def already_exists(exc: FileExistsError) -> CommandError:
    """Build the error for an output file that already exists."""
    return CommandError(
        f"File exists: {visible(str(exc.filename))}",
        hint="choose another name, or replace the file with --force",
    )


# Reading


def print_integrity_warnings(*readers: "TapeReader") -> None:
    """Print warnings about damaged or incomplete tapes to stderr, after the tapes were read."""
    from ...recording.tape.integrity import integrity_warnings

    for reader in {one.base: one for one in readers}.values():
        whose = f"{Path(reader.base).name}: " if len(readers) > 1 else ""
        for sentence in integrity_warnings(reader):
            print_message("note", visible(f"{whose}{sentence}"), "33")


@contextmanager
def progress(*readers: "TapeReader") -> Iterator[None]:
    """Display the progress of reading tapes on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    shown = _Shown(sum(reader.size for reader in readers))
    for reader in readers:
        reader.on_read = shown.add
    try:
        yield
    finally:
        for reader in readers:
            reader.on_read = None
        shown.clear()


class _Shown(StatusLine):
    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = max(total, 1)
        self._done = 0
        self._next = time.monotonic() + QUIET

    def add(self, count: int) -> None:
        self._done += count
        # The status line is cleared first, because the last entries are printed on the same line.
        if self._done >= self._total:
            self.clear()
        elif (now := time.monotonic()) >= self._next:
            self._next = now + AGAIN
            self.show(f"reading: {self._done * 100 // self._total}% of {format_size(self._total)}")
