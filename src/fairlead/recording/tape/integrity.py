"""What is wrong with a tape, in sentences: it may have been changed by hand, or cut, or made up."""

from pathlib import Path

from .format import ABOUT
from .tape_files import name_of_part
from .tape_reader import TapeReader

__all__ = ["integrity_warnings"]


def integrity_warnings(reader: TapeReader) -> list[str]:
    """What was found when it was opened, and when it was read the last time."""
    found = list(reader.troubles)
    if reader.skipped:
        found.append(f"{_counted(reader.skipped, 'line')} could not be read")
    if reader.repeated:
        found.append(f"the same number twice in a row, {_counted(reader.repeated, 'time')}")
    if reader.disordered:
        places = _counted(reader.disordered, "place")
        found.append(f"its numbers go back in {places}: it is taken in the order of its lines")
    info, count = reader.info, reader.read + reader.skipped
    if info.lost:
        verb = "was" if info.lost == 1 else "were"
        found.append(f"{_counted(info.lost, 'message')} {verb} lost while it was recorded")
    if info.status != "complete" or not reader.whole:
        return found
    name = Path(reader.base).name
    if info.parts > 1:
        last = name_of_part(reader.base, info.parts)
        if not last.is_file():
            found.append(f"{name}{ABOUT} speaks of {info.parts} parts, and {last.name} is missing")
    elif count not in (info.entries, info.entries - info.lost):
        found.append(f"{name}{ABOUT} speaks of {info.entries} messages, and there are {count}")
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
