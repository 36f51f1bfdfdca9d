"""Warnings about a tape that was edited, truncated or not recorded."""

from pathlib import Path

from .format import ABOUT
from .tape_files import name_of_part
from .tape_reader import TapeReader

__all__ = ["integrity_warnings"]


def integrity_warnings(reader: TapeReader) -> list[str]:
    """Return the problems found when the tape was opened and last read."""
    found = list(reader.troubles)
    if reader.skipped:
        found.append(f"{_counted(reader.skipped, 'line')} could not be read")
    if reader.repeated:
        found.append(f"{_counted(reader.repeated, 'duplicate sequence number')}")
    if reader.disordered:
        places = _counted(reader.disordered, "place")
        found.append(f"the sequence numbers decrease in {places}: the order of the lines is used")
    info, count = reader.info, reader.read + reader.skipped
    if info.lost:
        verb = "was" if info.lost == 1 else "were"
        found.append(f"{_counted(info.lost, 'message')} {verb} lost during the recording")
    # The number of entries is known only after a complete recording and a complete read.
    if info.status != "complete" or not reader.whole:
        return found
    name = Path(reader.base).name
    if info.parts > 1:
        last = name_of_part(reader.base, info.parts)
        if not last.is_file():
            found.append(f"{name}{ABOUT} lists {info.parts} parts, but {last.name} is missing")
    elif count not in (info.entries, info.entries - info.lost):
        found.append(f"{name}{ABOUT} lists {info.entries} messages, but the tape has {count}")
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
