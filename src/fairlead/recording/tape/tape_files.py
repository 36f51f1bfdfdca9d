"""The files of a tape, and the tapes in a folder."""

from glob import escape
from pathlib import Path

from .format import ABOUT, LINES

__all__ = ["files_of", "is_tape", "name_of_part", "number_of_part", "parts_of", "tapes_in"]


def name_of_part(base: str, part: int) -> Path:
    """Return the file that contains a part. The first part's file name has no number."""
    return Path(f"{base}{LINES}" if part == 1 else f"{base}.{part}{LINES}")


def number_of_part(place: Path) -> int:
    """Return the number of a part from its file name."""
    number = place.name.removesuffix(LINES).rpartition(".")[2]
    return int(number) if number.isdigit() and number.isascii() else 1


def parts_of(base: str) -> list[Path]:
    """Return the first file and all later parts that still exist, in order."""
    first = Path(f"{base}{LINES}")
    rest = []
    for place in first.parent.glob(f"{escape(Path(base).name)}.*{LINES}"):
        number = place.name[len(Path(base).name) + 1 : -len(LINES)]
        if number.isdigit() and number.isascii() and place.is_file() and not is_tape(place):
            rest.append((int(number), place))
    return [first, *(place for _, place in sorted(rest))]


def files_of(base: str) -> list[Path]:
    """Return all existing files of a tape."""
    return [place for place in (*parts_of(base), Path(f"{base}{ABOUT}")) if place.exists()]


def is_tape(place: Path) -> bool:
    """Return True if a file has a companion file. A later part has none, but a name like `v1.2` may
    also belong to a separate tape.
    """
    return place.with_name(f"{place.name.removesuffix(LINES)}{ABOUT}").exists()


def tapes_in(folder: Path) -> list[Path]:
    """Return the first file of each tape in a folder."""
    found = []
    for place in sorted(folder.glob(f"*{LINES}")):
        head, dot, number = place.name.removesuffix(LINES).rpartition(".")
        numbered = dot and number.isdigit() and not is_tape(place)
        if numbered and (folder / f"{head}{LINES}").exists():
            continue  # The file is a later part of another tape.
        found.append(place)
    return found
