"""Where tapes are: in our own folder by their names, or anywhere by their paths."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..manager.places import this_machine
from .failed import Failed

if TYPE_CHECKING:
    from ..gateway.tape import TapeReader

__all__ = ["open_tape", "place_of", "tapes_folder"]

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


def open_tape(name: str) -> "TapeReader":
    """Raises: Failed: there is none, or it cannot be read."""
    from ..errors import ConfigError
    from ..gateway.tape import TapeReader

    place = place_of(name)
    try:
        if Path(name).is_file() and not place.with_name(f"{place.name}.tape.jsonl").is_file():
            return TapeReader(name)
        return TapeReader(place)
    except ConfigError as exc:
        hint = "`fairlead tape list` shows which there are" if "no tape" in str(exc) else ""
        raise Failed(str(exc.args[0]), hint=hint) from exc
    except OSError as exc:
        raise Failed(f"{name} cannot be read: {exc}") from exc
