"""Two tapes side by side: the same conversation, whatever its ids were and how long it took."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Any, Final, TypeVar

from msgspec import Struct

from .differing import Difference, Path, differences
from .format import Entry
from .heading import heading_of, summary_of
from .naming import Named, Namer, same_names
from .reader import TapeReader
from .spots import Lines

__all__ = ["Change", "changes", "compare", "same_names", "summary"]

INDEXED: Final = 1_000_000  # entries whose places are kept, to be compared later
ALIGNED: Final = 20_000  # entries up to which what was added is told from what was changed
EFFORT: Final = 50_000_000  # pairs of equal entries times stretches; it takes some 10 s
SHOWN: Final = 1000  # changes
PLACES: Final = 1000  # where one message differs

T = TypeVar("T")
Pairs = Iterable[tuple[Named | None, Named | None]]


class Change(Struct, frozen=True):
    """One place where two tapes differ."""

    first: Entry | None
    second: Entry | None
    differences: list[Difference]


def compare(
    first: Iterable[Entry], second: Iterable[Entry], ignore: Iterable[Path] = ()
) -> list[Change]:
    """What differs, in order; at most so many as anybody reads. Time and ids do not count."""
    one, two = list(same_names(first)), list(same_names(second))
    start, end = _same_ends(one, two, lambda a, b: _facts(*a) == _facts(*b))
    one, two = one[start : len(one) - end], two[start : len(two) - end]
    keys = [[_key(entry, message) for entry, message in side] for side in (one, two)]
    pairs: Pairs = (
        pair
        for a, b, c, d in _aligned(keys[0], keys[1])
        for pair in zip_longest(one[a:b], two[c:d])
    )
    return list(islice(_changes(pairs, tuple(ignore)), SHOWN))


def changes(first: TapeReader, second: TapeReader, ignore: Iterable[Path] = ()) -> Iterator[Change]:
    """The same for tapes that may be larger than memory, one after the other."""
    pairs = _beside(first, second)
    if pairs is None:  # too long to look for what belongs together: line by line
        pairs = zip_longest(same_names(first), same_names(second))
    return islice(_changes(pairs, tuple(ignore)), SHOWN)


def _beside(first: TapeReader, second: TapeReader) -> Pairs | None:
    if not (one := _Index(first)).whole or not (two := _Index(second)).whole:
        return None
    return _of_places(one, two)


def summary(entry: Entry) -> str:
    """A message in a few words."""
    return summary_of(heading_of(entry))


class _Index:
    """Where the entries of a tape are, and what tells them apart.

    In columns of plain numbers: a million objects would take ten times as much memory.
    """

    def __init__(self, reader: TapeReader) -> None:
        self._lines = Lines(reader.parts)
        self.keys, self.contents, self._ofs = array("q"), array("q"), array("I")
        self._texts: dict[str | None, int] = {}  # what is answered or cancelled, each text once
        self.whole = self._read(reader)
        self._of = list(self._texts)

    def _read(self, reader: TapeReader) -> bool:
        namer = Namer()
        for count, (spot, entry) in enumerate(reader.placed()):
            if count >= INDEXED:
                return False
            heading = heading_of(entry)
            of = namer.of(entry, heading)
            self._lines.note(spot)
            self._ofs.append(self._texts.setdefault(of, len(self._texts)))
            key = hash((entry.dir.value, entry.session, of or summary_of(heading)))
            self.keys.append(key)
            self.contents.append(Namer.content(entry))
        return True

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, place: int | None) -> Named | None:
        """The entry with this number, from disk."""
        if place is None:
            return None
        entry = self._lines.read(place)
        return entry, Namer.named(entry, self._of[self._ofs[place]])


def _of_places(one: _Index, two: _Index) -> Pairs:
    """Messages that may differ, beside each other. Most are the same, and not read again."""

    def same(left: int, right: int) -> bool:
        return one.keys[left] == two.keys[right] and one.contents[left] == two.contents[right]

    start, end = _same_ends(range(len(one)), range(len(two)), same)
    keys = one.keys[start : len(one) - end], two.keys[start : len(two) - end]
    for a, b, c, d in _aligned(*keys):
        for left, right in zip_longest(range(start + a, start + b), range(start + c, start + d)):
            if left is None or right is None or not same(left, right):
                yield one.read(left), two.read(right)


def _same_ends(
    first: Sequence[T], second: Sequence[T], same: Callable[[T, T], bool]
) -> tuple[int, int]:
    """How many are the same from the beginning on, and how many before the end."""
    shorter = min(len(first), len(second))
    start = end = 0
    while start < shorter and same(first[start], second[start]):
        start += 1
    while end < shorter - start and same(first[-1 - end], second[-1 - end]):
        end += 1
    return start, end


def _aligned(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """Which stretches belong together."""
    # The usual case: the same was said, and answered otherwise. Or too long to look for more.
    if first == second or max(len(first), len(second)) >= ALIGNED:
        return [(0, len(first), 0, len(second))]
    counts = Counter(second)
    pairs = len(first) + sum(counts[key] for key in first)
    if min(len(first), len(second)) * pairs > EFFORT:
        return [(0, len(first), 0, len(second))]
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return [(a, b, c, d) for _, a, b, c, d in matcher.get_opcodes()]


def _changes(pairs: Pairs, ignore: tuple[Path, ...]) -> Iterator[Change]:
    for one, two in pairs:
        if one is None or two is None:
            yield Change(one[0] if one else None, two[0] if two else None, [])
            continue
        found = list(islice(differences(_facts(*one), _facts(*two), ignore), PLACES))
        if found:
            yield Change(one[0], two[0], found)


def _facts(entry: Entry, message: dict[str, Any]) -> dict[str, Any]:
    return {"dir": entry.dir.value, "session": entry.session, **message}


def _key(entry: Entry, message: dict[str, Any]) -> tuple[str, str | None, str]:
    """What belongs together: the same method, or answers to the same thing."""
    what = summary(entry) if "method" in message else str(message.get("id"))
    return entry.dir.value, entry.session, what
