"""What has changed about a tool, in lines that somebody can read."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from .file import Locked, LockedTool, canonical, digest_of

__all__ = ["Difference", "compare", "difference_of"]

MAX_LINES: Final = 200

# What older revisions of the protocol do not know, and a gateway therefore leaves out for them:
# whether that is there says nothing about the tool.
_OPTIONAL: Final = ("title", "annotations", "outputSchema", "execution")


class Difference(Struct, frozen=True):
    """One tool that is not as it was approved."""

    name: str
    kind: Literal["changed", "new", "gone"]
    lines: tuple[str, ...] = ()  # before each line: "- " as approved, "+ " as it is now

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def compare(locked: Locked, tools: Iterable[Mapping[str, Any]]) -> list[Difference]:
    """What differs between the tools that were approved and those there are."""
    now = {str(tool.get("name")): tool for tool in tools}
    found = []
    for name in sorted({*locked.tools, *now}):
        if name not in now:
            found.append(Difference(name, "gone"))
        elif name not in locked.tools:
            found.append(Difference(name, "new", tuple(_lines({}, now[name]))))
        elif digest_of(now[name]) != locked.tools[name].digest:
            lines = tuple(_lines(locked.tools[name].definition, now[name]))
            found.append(Difference(name, "changed", lines))
    return found


def difference_of(approved: LockedTool, now: Mapping[str, Any]) -> Difference | None:
    """The same for one tool on its way to a client, which may be told less than the server said."""
    if digest_of(now) == approved.digest:
        return None
    told = dict(approved.definition)
    told["name"] = now.get("name")  # a gateway gives it another
    for key in _OPTIONAL:
        if key not in now:
            told.pop(key, None)
        elif key == "annotations" and key in told:
            told[key] = _as_far_as(told[key], now[key])
    if canonical(told) == canonical(now):
        return None
    return Difference(str(approved.definition.get("name")), "changed", tuple(_lines(told, now)))


def _as_far_as(told: Any, now: Any) -> Any:
    """The approved members that are told at all."""
    if not isinstance(told, dict) or not isinstance(now, dict):
        return told
    return {key: value for key, value in told.items() if key in now}


def _lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    old, new = _text(before), _text(after)
    shown = [
        line
        for line in difflib.ndiff(old if before else [], new)
        if not line.startswith("? ") and (not before or not line.startswith("  "))
    ]
    if len(shown) > MAX_LINES:
        return [*shown[:MAX_LINES], f"({len(shown) - MAX_LINES} more lines)"]
    return shown


def _text(definition: Mapping[str, Any]) -> list[str]:
    """Readable and safe for a terminal: what is not ASCII is spelled out, so nothing hides."""
    plain = json.loads(canonical(definition))
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=True).splitlines()
