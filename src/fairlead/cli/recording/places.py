"""Tapes on disk: where they are, how they are opened, read, and written over."""

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

KEPT = 20  # tapes of one name that nobody asked to keep elsewhere
LOOKED_AT = 1 << 20  # bytes of a file that may be a tape
NAMED = 5  # tapes that a hint names
QUIET: Final = 1.0  # seconds in which nobody wonders how far a tape has been read
AGAIN: Final = 0.2
# `--overwrite` is the word of the commands that record.
FORCE = flag("--force", "--overwrite", help="even if there is one already")
_ENDINGS = (".tape.jsonl", ".tape.json")
_WHEN = re.compile(r"-(\d{8}-\d{6})(?:-\d+)?$")  # what a name ends with that nobody chose


def tapes_folder() -> Path:
    """Where tapes without a path are."""
    return Path(local_host_paths().own_data) / "tapes"


def tape_path(name: str) -> Path:
    """The path of a tape without its ending; a name without a folder is one of ours."""
    bare = name
    for ending in _ENDINGS:
        bare = bare.removesuffix(ending)
    is_path = os.sep in name or (os.altsep is not None and os.altsep in name) or bare != name
    if not bare or Path(bare).name in ("", ".", ".."):
        raise CommandError(f"{name!r} is no name for a tape")
    return Path(bare) if is_path else tapes_folder() / bare


def new_tape_path(name: str, pid: int | None = None) -> Path:
    """The path of a new tape in our folder, named after somebody; the oldest of these are deleted.

    Whatever is started every day must not fill the disk.
    """
    folder = tapes_folder()
    bare = _in_names(name)
    _drop_old(folder, bare)
    return folder / f"{bare}-{time.strftime('%Y%m%d-%H%M%S')}-{pid or os.getpid()}"


def _in_names(name: str) -> str:
    """What somebody is called, as it stands in the name of a tape."""
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
    """Raise `CommandError` for what is wrong with a tape."""
    from ...errors import ConfigError, FairleadError

    try:
        yield
    except ConfigError as exc:
        raise CommandError(visible(str(exc.args[0]))) from exc
    except (BrokenPipeError, FairleadError):
        raise
    except OSError as exc:
        raise CommandError(f"{exc.filename or 'It'} cannot be read: {exc.strerror}") from exc


def open_tape(name: str, *, exactly: bool = False) -> "TapeReader":
    """A tape; or, unless it is to be `exactly` that, the newest one whose name begins so.

    Raises:
        CommandError: there is none, or it cannot be read.
    """
    from ...recording.tape import TapeReader

    place, others = tape_path(name), []
    bytes(16 << 20)  # from then on glibc keeps the memory of a long line for the next one
    with reading():
        if place.with_name(f"{place.name}.tape.jsonl").is_file():
            return TapeReader(place)
        if Path(name).is_file() and _looks_like_one(name):
            return TapeReader(name)
        if place == tapes_folder() / name:  # a name; a program of that name may lie here too
            others = _meant_by(name)
        if len({_WHEN.sub("", other) for other in others}) == 1 and not exactly:
            print_message("tape", visible(others[0]))
            return TapeReader(tapes_folder() / others[0])
    hint = "`fairlead tape list` shows which there are"
    if others:
        more = " and more" if len(others) > NAMED else ""
        hint = f"there are {visible(', '.join(others[:NAMED]))}{more}; name one"
    elif Path(name).is_file():
        raise CommandError(f"{name} is no tape: nothing at its beginning is a message of one")
    raise CommandError(f"There is no tape {place}", hint=hint)


def _meant_by(name: str) -> list[str]:
    """The tapes that somebody may mean, the newest first: of that name, or else a longer one."""
    from ...recording.tape.tape_files import tapes_in

    dated = []
    for lines in tapes_in(tapes_folder()):
        bare = lines.name.removesuffix(_ENDINGS[0])
        if bare.startswith(_in_names(name)):
            when = _WHEN.search(bare)
            with contextlib.suppress(OSError):  # it has just been deleted
                dated.append((when[1] if when else "", lines.stat().st_mtime, bare))
    found = [bare for _, _, bare in sorted(dated, reverse=True)]
    return [bare for bare in found if _WHEN.sub("", bare) == _in_names(name)] or found


def _looks_like_one(path: str) -> bool:
    """Whether any file may be read as a tape: one of its first lines is an entry, or it has none.

    Raises:
        OSError: it cannot be read.
    """
    import msgspec

    from ...recording.tape import TapeEntry

    with open(path, "rb") as file:
        *whole, rest = file.read(LOOKED_AT).split(b"\n")
    for line in whole:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            msgspec.json.decode(line, type=TapeEntry)
            return True
    return not whole and (not rest or len(rest) == LOOKED_AT)  # a first line that is very long


def already_exists(exc: FileExistsError) -> CommandError:
    """Why nothing was written, and the ways out."""
    return CommandError(
        f"There is a file {visible(str(exc.filename))} already",
        hint="take another name, or write it anew with --force",
    )


# Reading


def print_integrity_warnings(*readers: "TapeReader") -> None:
    """On stderr, once it was read."""
    from ...recording.tape.integrity import integrity_warnings

    for reader in {one.base: one for one in readers}.values():
        whose = f"{Path(reader.base).name}: " if len(readers) > 1 else ""
        for sentence in integrity_warnings(reader):
            print_message("note", visible(f"{whose}{sentence}"), "33")


@contextmanager
def progress(*readers: "TapeReader") -> Iterator[None]:
    """Show it while these are read; nowhere but on a terminal, and on no line of its own."""
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
        if self._done >= self._total:  # what comes now has the line for itself
            self.clear()
        elif (now := time.monotonic()) >= self._next:
            self._next = now + AGAIN
            self.show(f"reading: {self._done * 100 // self._total}% of {format_size(self._total)}")
