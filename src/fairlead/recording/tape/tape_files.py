"""The files of one tape, in order."""

from pathlib import Path

from .format import ABOUT, LINES

__all__ = ["files_of", "is_tape", "name_of_part", "number_of_part", "parts_of", "tapes_in"]


def name_of_part(base: str, part: int) -> Path:
    """The first one is named after the tape, the others have a number."""
    return Path(f"{base}{LINES}" if part == 1 else f"{base}.{part}{LINES}")


def number_of_part(place: Path) -> int:
    """The number that a file of a tape has."""
    number = place.name.removesuffix(LINES).rpartition(".")[2]
    return int(number) if number.isdigit() and number.isascii() else 1


def parts_of(base: str) -> list[Path]:
    """The first one, and those that are left of the others."""
    first = Path(f"{base}{LINES}")
    prefix = f"{Path(base).name}."
    rest = []
    for place in first.parent.iterdir() if first.parent.is_dir() else ():
        if place.name.startswith(prefix) and place.name.endswith(LINES):
            number = place.name[len(prefix) : -len(LINES)]
            if number.isdigit() and number.isascii() and place.is_file() and not is_tape(place):
                rest.append((int(number), place))
    return [first, *(place for _, place in sorted(rest))]


def files_of(base: str) -> list[Path]:
    """Everything that belongs to a tape."""
    return [place for place in (*parts_of(base), Path(f"{base}{ABOUT}")) if place.exists()]


def is_tape(place: Path) -> bool:
    """Whether it has a companion, which further parts have not: `v1.2` is no part of `v1`."""
    return place.with_name(f"{place.name.removesuffix(LINES)}{ABOUT}").exists()


def tapes_in(folder: Path) -> list[Path]:
    """The tapes of a folder, by the first file of each."""
    found = []
    for place in sorted(folder.glob(f"*{LINES}")) if folder.is_dir() else ():
        head, dot, number = place.name.removesuffix(LINES).rpartition(".")
        numbered = dot and number.isdigit() and not is_tape(place)
        if numbered and (folder / f"{head}{LINES}").exists():
            continue  # a further part of another one
        found.append(place)
    return found
