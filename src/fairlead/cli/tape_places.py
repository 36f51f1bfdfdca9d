"""Where tapes are: in our own folder by their names, or anywhere by their paths."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..manager.places import this_machine
from .failed import Failed

if TYPE_CHECKING:
    from ..gateway.tape import TapeReader

__all__ = ["new_place", "open_tape", "place_of", "tapes_folder"]

KEPT = 20  # tapes of one name that nobody asked to keep elsewhere
LOOKED_AT = 1 << 20  # bytes of a file that may be a tape
_ENDINGS = (".tape.jsonl", ".tape.json")


def tapes_folder() -> Path:
    """Where tapes without a path are."""
    return Path(this_machine().own_data) / "tapes"


def place_of(name: str) -> Path:
    """The path of a tape without its ending; a name without a folder is one of ours."""
    bare = name
    for ending in _ENDINGS:
        bare = bare.removesuffix(ending)
    is_path = os.sep in name or (os.altsep is not None and os.altsep in name) or bare != name
    if not bare or Path(bare).name in ("", ".", ".."):
        raise Failed(f"{name!r} is no name for a tape")
    return Path(bare) if is_path else tapes_folder() / bare


def new_place(name: str, pid: int | None = None) -> Path:
    """The path of a new tape in our folder, named after somebody; the oldest of these are deleted.

    Whatever is started every day must not fill the disk.
    """
    folder = tapes_folder()
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:50]
    _drop_old(folder, safe)
    return folder / f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}-{pid or os.getpid()}"


def _drop_old(folder: Path, name: str) -> None:
    pattern = re.compile(re.escape(name) + r"-\d{8}-\d{6}-\d+\.tape\.json")
    with contextlib.suppress(OSError):
        ours = [one for one in folder.iterdir() if pattern.fullmatch(one.name)]
        ours.sort(key=lambda one: one.stat().st_mtime)
        for about in ours[: -KEPT + 1]:
            for part in folder.glob(f"{about.name.removesuffix('.tape.json')}.*"):
                part.unlink(missing_ok=True)


def open_tape(name: str) -> "TapeReader":
    """Raises: Failed: there is none, or it cannot be read."""
    from ..errors import ConfigError
    from ..gateway.tape import TapeReader

    place = place_of(name)
    bytes(16 << 20)  # from then on glibc keeps the memory of a long line for the next one
    try:
        if Path(name).is_file() and not place.with_name(f"{place.name}.tape.jsonl").is_file():
            if not _looks_like_one(name):
                raise Failed(f"{name} is no tape: nothing at its beginning is a message of one")
            return TapeReader(name)
        return TapeReader(place)
    except ConfigError as exc:
        hint = "`fairlead tape list` shows which there are" if "no tape" in str(exc) else ""
        raise Failed(str(exc.args[0]), hint=hint) from exc
    except OSError as exc:
        raise Failed(f"{name} cannot be read: {exc}") from exc


def _looks_like_one(path: str) -> bool:
    """Whether any file may be read as a tape: one of its first lines is an entry, or it has none.

    Raises:
        OSError: it cannot be read.
    """
    import msgspec

    from ..gateway.tape import Entry

    with open(path, "rb") as file:
        *whole, rest = file.read(LOOKED_AT).split(b"\n")
    for line in whole:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            msgspec.json.decode(line, type=Entry)
            return True
    return not whole and (not rest or len(rest) == LOOKED_AT)  # a first line that is very long
