"""Differences between two JSON values, by path; some paths can be ignored."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from operator import eq
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from ...redaction.redact_text import REDACTED

__all__ = ["ABSENT", "JsonDifference", "aligned", "json_differences", "read_path", "same_ends"]

ABSENT: Final = "(absent)"
DEEPEST: Final = 200  # nesting level from which values are compared as a whole

JsonPath = tuple[str, ...]
T = TypeVar("T")


class JsonDifference(Struct, frozen=True):
    """A path at which two values differ."""

    path: str
    recorded: Any
    given: Any

    def __str__(self) -> str:
        return f"{self.path}: {_short(self.recorded)} -> {_short(self.given)}"


def read_path(text: str) -> JsonPath:
    """Parse a path such as `result.content.*.text`.

    `*` matches one member or item, `**` any number of them.

    Raises:
        ValueError: The path has an empty segment.
    """
    parts = tuple(text.replace("[", ".").replace("]", "").strip(".").split("."))
    if not all(parts):
        raise ValueError(f"invalid path {text!r}: a segment is empty")
    return parts


def json_differences(
    recorded: Any, given: Any, ignore: Iterable[JsonPath] = (), at: JsonPath = ()
) -> Iterator[JsonDifference]:
    """Yield the differences in document order, except at the ignored paths.

    A redacted text on a tape equals each value from which it may have been made.
    """
    ignored = tuple(ignore)
    if any(_matches(path, at) for path in ignored):
        return
    if isinstance(recorded, str) and REDACTED in recorded and _is_redacted_form(recorded, given):
        return
    # Deeper values are compared as a whole, so that this recursion stays within Python's limit.
    if len(at) >= DEEPEST:
        if not _same(recorded, given):
            yield JsonDifference(".".join(at), _DEEP, _DEEP)
    elif isinstance(recorded, dict) and isinstance(given, dict):
        for name in [*recorded, *(name for name in given if name not in recorded)]:
            one, other = recorded.get(name, _NOTHING), given.get(name, _NOTHING)
            yield from json_differences(one, other, ignored, (*at, str(name)))
    elif isinstance(recorded, list) and isinstance(given, list):
        for n in range(max(len(recorded), len(given))):
            one = recorded[n] if n < len(recorded) else _NOTHING
            other = given[n] if n < len(given) else _NOTHING
            yield from json_differences(one, other, ignored, (*at, str(n)))
    # The types are compared because `1 == 1.0` and `1 == True` in Python.
    elif type(recorded) is not type(given) or recorded != given:
        yield JsonDifference(".".join(at), _shown(recorded), _shown(given))


def same_ends(
    first: Sequence[T], second: Sequence[T], same: Callable[[T, T], bool] = eq
) -> tuple[int, int]:
    """Return the number of equal items at the start and at the end."""
    shorter = min(len(first), len(second))
    start = end = 0
    while start < shorter and same(first[start], second[start]):
        start += 1
    while end < shorter - start and same(first[-1 - end], second[-1 - end]):
        end += 1
    return start, end


def aligned(
    first: Sequence[Any], second: Sequence[Any], effort: int
) -> list[tuple[str, int, int, int, int]] | None:
    """Return the opcodes of `SequenceMatcher`, or None if they are too expensive.

    For each matching range, the matcher examines all pairs of equal items. Peers choose the items
    and could send many equal ones, so the cost is estimated first.
    """
    counts = Counter(second)
    pairs = len(first) + sum(counts[item] for item in first)
    if min(len(first), len(second)) * pairs > effort:
        return None
    return list(SequenceMatcher(None, first, second, autojunk=False).get_opcodes())


_NOTHING: Final = object()
_DEEP: Final = "(nested too deeply)"


def _same(recorded: Any, given: Any) -> bool:
    try:
        return bool(recorded == given)
    except RecursionError:
        return False


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"


def _shown(value: Any) -> Any:
    return ABSENT if value is _NOTHING else value


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(pattern[1:], path[n:]) for n in range(len(path) + 1))
    return bool(path) and pattern[0] in ("*", path[0]) and _matches(pattern[1:], path[1:])


def _is_redacted_form(recorded: str, given: Any) -> bool:
    """Return True if redacting this value could produce the recorded text."""
    if recorded == REDACTED:
        return True
    return isinstance(given, str) and _pattern(recorded).fullmatch(given) is not None


@lru_cache(maxsize=256)
def _pattern(recorded: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, recorded.split(REDACTED))), re.DOTALL)
