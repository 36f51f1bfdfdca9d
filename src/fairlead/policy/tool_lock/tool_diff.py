"""Readable differences between approved and current tools."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Final, Literal

from msgspec import Struct

from ...limits import DIFFERENCE_EFFORT, DIFFERENCE_LINES, DIFFERENCE_TEXT
from ...recording.compare.json_diff import aligned, same_ends
from .lock_file import LockedServer, LockedTool, canonical, digest_of

__all__ = ["ToolDifference", "compare_tools", "difference_of"]

# Members that older revisions lack. A gateway removes them for clients that use older revisions, so
# a missing member does not mean that the tool has changed.
_OPTIONAL: Final = ("title", "annotations", "outputSchema", "execution")


class ToolDifference(Struct, frozen=True):
    """A tool that differs from its approved definition."""

    name: str
    kind: Literal["changed", "new", "gone"]
    # lines of the approved definition start with "- ", lines of the current definition with "+ "
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def compare_tools(locked: LockedServer, tools: Iterable[Mapping[str, Any]]) -> list[ToolDifference]:
    """Return the differences between the approved and the current tools."""
    now = {str(tool.get("name")): tool for tool in tools}
    found = []
    for name in sorted({*locked.tools, *now}):
        if name not in now:
            found.append(ToolDifference(name, "gone"))
        elif name not in locked.tools:
            found.append(ToolDifference(name, "new", tuple(_lines({}, now[name]))))
        elif digest_of(now[name]) != locked.tools[name].digest:
            lines = tuple(_lines(locked.tools[name].definition, now[name]))
            found.append(ToolDifference(name, "changed", lines))
    return found


def difference_of(approved: LockedTool, now: Mapping[str, Any]) -> ToolDifference | None:
    """Return the difference between a tool and its approved definition; None if they are equal.

    Optional members that are missing in `now` are ignored, because a gateway may have removed them.
    """
    if digest_of(now) == approved.digest:
        return None
    told = dict(approved.definition)
    told["name"] = now.get("name")  # a gateway may rename the tool
    for key in _OPTIONAL:
        if key not in now:
            told.pop(key, None)
        elif key == "annotations" and key in told:
            told[key] = _as_far_as(told[key], now[key])
    if canonical(told) == canonical(now):
        return None
    return ToolDifference(str(approved.definition.get("name")), "changed", tuple(_lines(told, now)))


def _as_far_as(told: Any, now: Any) -> Any:
    """Return the approved definition without the members that the current definition lacks."""
    if not isinstance(told, dict) or not isinstance(now, dict):
        return told
    return {key: value for key, value in told.items() if key in now}


def _lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the lines that differ, up to a limit, in linear time."""
    old, new = _text(before) if before else [], _text(after)
    most = DIFFERENCE_LINES.value
    shown = list(islice(_marked(old, new), most + 1))
    shown = [_cut(line) for line in shown]
    if len(shown) > most:
        DIFFERENCE_LINES.hit()
        return [*shown[:most], f"(more lines; {len(old)} lines before, {len(new)} lines now)"]
    return shown


def _marked(old: list[str], new: list[str]) -> Iterator[str]:
    for a, b, c, d in _changed(old, new):
        for left, right in zip_longest(old[a:b], new[c:d]):
            if left is not None and right is not None:
                left, right = _around_difference(left, right)
            if left is not None:
                yield f"- {left}"
            if right is not None:
                yield f"+ {right}"


def _changed(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the ranges of lines that differ. Equal lines at both ends are skipped first."""
    start, end = same_ends(old, new)
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    found = aligned(left, right, DIFFERENCE_EFFORT.value)
    if found is None:
        DIFFERENCE_EFFORT.hit()
        return [(start, len(old) - end, start, len(new) - end)]
    return [
        (start + a, start + b, start + c, start + d) for tag, a, b, c, d in found if tag != "equal"
    ]


def _around_difference(old: str, new: str) -> tuple[str, str]:
    """Return both lines, each truncated to the text around their first difference."""
    longest = DIFFERENCE_TEXT.value
    if len(old) <= longest and len(new) <= longest:
        return old, new
    at = _first_difference(old, new)
    start = max(0, at - longest // 4)
    if start == 0:
        return old, new
    skipped = f"({start} characters) …"
    return skipped + old[start:], skipped + new[start:]


def _first_difference(old: str, new: str) -> int:
    """Return the length of the common prefix of two strings."""
    # Binary search, because comparing slices is faster than comparing characters in a loop.
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(line: str) -> str:
    longest = DIFFERENCE_TEXT.value
    if len(line) <= longest:
        return line
    DIFFERENCE_TEXT.hit()
    return f"{line[:longest]}… ({len(line)} characters)"


def _text(definition: Mapping[str, Any]) -> list[str]:
    """Format a definition in ASCII, so that a terminal shows every character."""
    plain = json.loads(canonical(definition))
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=True).splitlines()
