"""Comparison of two tapes of the same conversation, independent of ids and times."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ...protocol.caller import SUBSCRIPTION_KEY
from ...wire.json import read_json
from ..tape.format import TapeEntry
from ..tape.message_summary import MessageHeading, message_heading, summary_of
from ..tape.tape_reader import LineIndex, TapeReader, decode_entry
from .json_diff import JsonDifference, JsonPath, aligned, json_differences, same_ends

__all__ = ["StableIds", "TapeDifference", "iter_differences", "with_stable_ids"]

INDEXED: Final = 1_000_000  # maximum number of entries whose positions are kept in memory
# number of entries above which the comparison does not detect added and removed entries
ALIGNED: Final = 20_000
# limit on equal pairs times matching ranges; at the limit, an alignment takes about 10 s
EFFORT: Final = 50_000_000
SHOWN: Final = 1000  # maximum number of differences reported between two tapes
PLACES: Final = 1000  # maximum number of differences reported within one message

# an entry, and its message with ids replaced with descriptions
Named = tuple[TapeEntry, dict[str, Any]]
Pairs = Iterable[tuple[Named | None, Named | None]]


class TapeDifference(Struct, frozen=True):
    """One difference between two tapes."""

    first: TapeEntry | None
    second: TapeEntry | None
    differences: list[JsonDifference]


def iter_differences(
    first: TapeReader, second: TapeReader, ignore: Iterable[JsonPath] = ()
) -> Iterator[TapeDifference]:
    """Yield the differences in order, up to the limit `SHOWN`. Times and ids are ignored.

    The tapes may be larger than memory.
    """
    pairs: Pairs
    if (one := _Index(first)).whole and (two := _Index(second)).whole:
        pairs = _of_places(one, two)
    else:  # The tapes are too long for an alignment, so they are compared line by line.
        pairs = zip_longest(with_stable_ids(first), with_stable_ids(second))
    return islice(_changes(pairs, tuple(ignore)), SHOWN)


class _Index:
    """Positions of a tape's entries, and hashes for comparing them.

    Both are stored in arrays of numbers; objects would take ten times as much memory.
    """

    def __init__(self, reader: TapeReader) -> None:
        self._lines = LineIndex(reader.parts)
        self.keys, self.contents, self._ofs = array("q"), array("q"), array("I")
        # descriptions of answered or cancelled requests, each stored once
        self._texts: dict[str | None, int] = {}
        self.whole = self._read(reader)
        self._of = list(self._texts)

    def _read(self, reader: TapeReader) -> bool:
        namer = StableIds()
        for count, (spot, _, entry) in enumerate(reader.lines()):
            if count >= INDEXED:
                return False
            heading = message_heading(entry)
            of = namer.of(entry, heading)
            self._lines.note(spot)
            self._ofs.append(self._texts.setdefault(of, len(self._texts)))
            key = hash((entry.dir.value, entry.session, of or summary_of(heading)))
            self.keys.append(key)
            self.contents.append(StableIds.content(entry))
        return True

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, place: int | None) -> Named | None:
        """Read the entry at a position from disk."""
        if place is None:
            return None
        entry = self._lines.read(place)
        return entry, StableIds.named(entry, self._of[self._ofs[place]])


def _of_places(one: _Index, two: _Index) -> Pairs:
    """Yield pairs of messages that may differ. Pairs with equal hashes are skipped."""

    def same(left: int, right: int) -> bool:
        return one.keys[left] == two.keys[right] and one.contents[left] == two.contents[right]

    start, end = same_ends(range(len(one)), range(len(two)), same)
    keys = one.keys[start : len(one) - end], two.keys[start : len(two) - end]
    for a, b, c, d in _aligned(*keys):
        for left, right in zip_longest(range(start + a, start + b), range(start + c, start + d)):
            if left is None or right is None or not same(left, right):
                yield one.read(left), two.read(right)


def _aligned(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """Return the ranges of both sequences that correspond to each other."""
    whole = [(0, len(first), 0, len(second))]
    # Both sequences are usually equal, because only the contents of responses differ. Above the
    # limit, an alignment is too expensive.
    if first == second or max(len(first), len(second)) >= ALIGNED:
        return whole
    found = aligned(first, second, EFFORT)
    return whole if found is None else [(a, b, c, d) for _, a, b, c, d in found]


def _changes(pairs: Pairs, ignore: tuple[JsonPath, ...]) -> Iterator[TapeDifference]:
    for one, two in pairs:
        if one is None or two is None:
            yield TapeDifference(one[0] if one else None, two[0] if two else None, [])
            continue
        found = list(islice(json_differences(_facts(*one), _facts(*two), ignore), PLACES))
        if found:
            yield TapeDifference(one[0], two[0], found)


def _facts(entry: TapeEntry, message: dict[str, Any]) -> dict[str, Any]:
    return {"dir": entry.dir.value, "session": entry.session, **message}


def with_stable_ids(entries: Iterable[TapeEntry]) -> Iterator[Named]:
    """Yield each entry, and its message with ids replaced with descriptions."""
    namer = StableIds()
    for entry in entries:
        of = namer.of(entry, message_heading(entry))
        yield entry, StableIds.named(entry, of)


class StableIds:
    """Descriptions that replace request ids, built from the requests that were read so far."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str | None, str, Any], str] = {}

    def of(self, entry: TapeEntry, heading: MessageHeading) -> str | None:
        """Return a description of the request that a message answers or cancels, or None."""
        asked, session = self._asked, entry.session
        if heading.method is None:
            way = entry.dir.reverse().value
            return f"of {asked.pop((session, way, heading.name), 'nothing')}"
        if heading.is_request:
            asked[session, entry.dir.value, heading.name] = summary_of(heading)
        elif heading.method == "notifications/cancelled":
            named = heading.read_params().get("requestId")
            known = named if isinstance(named, int | str) else None
            return f"of {asked.get((session, entry.dir.value, known), 'nothing')}"
        return None

    @staticmethod
    def named(entry: TapeEntry, of: str | None) -> dict[str, Any]:
        """Return the message with ids and tokens replaced;
        `of` is the value returned by `self.of`.
        """
        message = decode_entry(entry)
        params = message.get("params")
        if "method" not in message:
            message["id"] = of
        elif "id" in message:
            message["id"] = "its own"
        elif of is not None and isinstance(params, dict):
            params["requestId"] = of
        for holder in (params, message.get("result")):
            if isinstance(holder, dict):
                _untoken(holder)
        return message

    @staticmethod
    def content(entry: TapeEntry) -> int:
        """Return a hash of a message that does not depend on its ids and tokens.

        Results are not decoded. If two results differ only in tokens, their hashes differ, but a
        later comparison of the messages finds them equal.
        """
        members = read_json(entry.message, dict[str, Raw], None)
        if members is None:
            return 0  # not a message
        members.pop("id", None)
        carried = {name: bytes(raw) for name, raw in members.items()}
        cancels = carried.get("method") == b'"notifications/cancelled"'
        if cancels or b"progressToken" in carried.get("params", b""):
            carried["params"] = _without_names(members.get("params", Raw(b"{}")), cancels=cancels)
        return hash(tuple(sorted(carried.items())))


def _without_names(params: Raw, *, cancels: bool) -> bytes:
    held = msgspec.json.decode(params)
    if not isinstance(held, dict):
        return bytes(params)
    if cancels:
        held.pop("requestId", None)
    _untoken(held)
    try:
        return msgspec.json.encode(held)
    except OverflowError:  # integers with more than 64 bits
        return bytes(params)


def _untoken(holder: dict[str, Any]) -> None:
    meta = holder.get("_meta")
    for place in (holder, meta):
        if isinstance(place, dict) and "progressToken" in place:
            place["progressToken"] = "a token"
    if isinstance(meta, dict) and SUBSCRIPTION_KEY in meta:
        meta[SUBSCRIPTION_KEY] = "a subscription"
