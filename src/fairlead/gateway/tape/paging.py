"""A tape in pages, each beginning where the one before ended, also while it is recorded."""

from typing import Final

from msgspec import Struct

from .format import Entry
from .parts import number_of_part
from .reader import TapeReader

__all__ = ["Page", "read_page"]

MOST_BYTES: Final = 8 << 20  # of one page, unless a single entry has more


class Page(Struct, frozen=True):
    """Some entries."""

    entries: list[Entry]
    next: str  # where the next page begins
    more: bool  # whether something is there already


def read_page(reader: TapeReader, since: str = "", limit: int = 100) -> Page:
    """Some entries from a place on, which is `next` of the page before.

    Raises:
        ValueError: that is no place.
    """
    part, offset = _place(since)
    entries: list[Entry] = []
    count = 0
    for index, place in enumerate(reader.parts):
        number = number_of_part(place) if index else 1
        if number < part:
            continue
        if number > part:  # that one has ended, or was dropped meanwhile
            part, offset = number, 0
        for spot, entry in reader.lines_of(place, offset):
            if len(entries) >= limit or (entries and count + spot.length > MOST_BYTES):
                return Page(entries, f"{part}-{offset}", more=True)
            entries.append(entry)
            count += spot.length
            offset = spot.offset + spot.length
    return Page(entries, f"{part}-{offset}", more=False)


def _place(text: str) -> tuple[int, int]:
    part, _, offset = (text or "1-0").partition("-")
    if not all(one.isascii() and one.isdigit() and len(one) < 19 for one in (part, offset)):
        raise ValueError(f"{text[:50]!r} is no place on a tape")
    return int(part), int(offset)
