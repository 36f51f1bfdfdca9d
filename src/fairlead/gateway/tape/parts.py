"""The files of one tape, in order."""

from pathlib import Path

from .format import ABOUT, LINES

__all__ = ["files_of", "name_of_part", "parts_of"]


def name_of_part(base: str, part: int) -> Path:
    """The first one is named after the tape, the others have a number."""
    return Path(f"{base}{LINES}" if part == 1 else f"{base}.{part}{LINES}")


def parts_of(base: str) -> list[Path]:
    """The first one, and those that are left of the others."""
    first = Path(f"{base}{LINES}")
    prefix = f"{Path(base).name}."
    rest = []
    for place in first.parent.iterdir() if first.parent.is_dir() else ():
        if place.name.startswith(prefix) and place.name.endswith(LINES):
            number = place.name[len(prefix) : -len(LINES)]
            if number.isdigit() and number.isascii():
                rest.append((int(number), place))
    return [first, *(place for _, place in sorted(rest))]


def files_of(base: str) -> list[Path]:
    """Everything that belongs to a tape."""
    return [place for place in (*parts_of(base), Path(f"{base}{ABOUT}")) if place.exists()]
