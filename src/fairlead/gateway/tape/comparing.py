"""Two tapes side by side: the same conversation, whatever its ids were and how long it took."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from ...protocol.caller import SUBSCRIPTION_KEY
from .differing import Difference, Path, differences
from .format import Entry
from .reader import plain

__all__ = ["Change", "compare", "same_names", "summary"]

ALIGNED: Final = 20_000  # entries up to which what was added is told from what was changed
SHOWN: Final = 1000  # changes


class Change(Struct, frozen=True):
    """One place where two tapes differ."""

    first: Entry | None
    second: Entry | None
    differences: list[Difference]


def compare(
    first: Iterable[Entry], second: Iterable[Entry], ignore: Iterable[Path] = ()
) -> list[Change]:
    """What differs, in order; at most so many as anybody reads. Time and ids do not count."""
    ignored = tuple(ignore)
    one, two = same_names(first), same_names(second)
    head = [list(_taken(side, ALIGNED)) for side in (one, two)]
    if all(len(side) < ALIGNED for side in head):
        return list(_taken(_aligned(head[0], head[1], ignored), SHOWN))
    # Too long to look for what belongs together: line by line.
    pairs = zip_longest(_both(head[0], one), _both(head[1], two))
    return list(_taken(_changes(pairs, ignored), SHOWN))


def summary(entry: Entry, message: dict[str, Any] | None = None) -> str:
    """A message in a few words."""
    message = plain(entry) if message is None else message
    params = message.get("params")
    if "method" in message:
        target = params.get("name", params.get("uri")) if isinstance(params, dict) else None
        return f"{message['method']} {target}" if isinstance(target, str) else message["method"]
    if "error" in message:
        error = message["error"]
        told = error if isinstance(error, dict) else {}
        return f"error {told.get('code')}: {told.get('message')}"
    return "result" if "result" in message else "no message"


Named = tuple[Entry, dict[str, Any]]


def same_names(entries: Iterable[Entry]) -> Iterator[Named]:
    """Entries with their messages, in which every id says what it is of."""
    asked: dict[tuple[str | None, str, Any], str] = {}
    for entry in entries:
        message = plain(entry)
        way = entry.dir if "method" in message else entry.dir.reverse()
        params = message.get("params")
        if "method" not in message:
            known = asked.pop((entry.session, way.value, _name(message.get("id"))), "nothing")
            message["id"] = f"of {known}"
        elif "id" in message:
            asked[entry.session, way.value, _name(message["id"])] = summary(entry, message)
            message["id"] = "its own"
        elif message["method"] == "notifications/cancelled" and isinstance(params, dict):
            named = _name(params.get("requestId"))
            params["requestId"] = f"of {asked.get((entry.session, way.value, named), 'nothing')}"
        for holder in (params, message.get("result")):
            if isinstance(holder, dict):
                _untoken(holder)
        yield entry, message


def _name(held: Any) -> Any:
    return held if isinstance(held, int | str) else None


def _untoken(holder: dict[str, Any]) -> None:
    meta = holder.get("_meta")
    for place in (holder, meta):
        if isinstance(place, dict) and "progressToken" in place:
            place["progressToken"] = "a token"
    if isinstance(meta, dict) and SUBSCRIPTION_KEY in meta:
        meta[SUBSCRIPTION_KEY] = "a subscription"


def _aligned(one: list[Named], two: list[Named], ignore: tuple[Path, ...]) -> Iterator[Change]:
    first, second = ([_key(entry, message) for entry, message in side] for side in (one, two))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        yield from _changes(zip_longest(one[a:b], two[c:d]), ignore)


def _changes(
    pairs: Iterable[tuple[Named | None, Named | None]], ignore: tuple[Path, ...]
) -> Iterator[Change]:
    for one, two in pairs:
        if one is None or two is None:
            yield Change(one[0] if one else None, two[0] if two else None, [])
            continue
        found = list(differences(_facts(*one), _facts(*two), ignore))
        if found:
            yield Change(one[0], two[0], found)


def _facts(entry: Entry, message: dict[str, Any]) -> dict[str, Any]:
    return {"dir": entry.dir.value, "session": entry.session, **message}


def _key(entry: Entry, message: dict[str, Any]) -> tuple[str, str | None, str]:
    """What belongs together: the same method, or answers to the same thing."""
    what = summary(entry, message) if "method" in message else str(message.get("id"))
    return entry.dir.value, entry.session, what


def _taken(items: Iterator[Any], count: int) -> Iterator[Any]:
    for _, item in zip(range(count), items, strict=False):
        yield item


def _both(head: list[Named], rest: Iterator[Named]) -> Iterator[Named]:
    yield from head
    yield from rest
