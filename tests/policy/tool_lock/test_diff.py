"""Differences between approved tools and the present ones."""

from typing import Any

import pytest

from fairlead.limits import DIFFERENCE_LINES
from fairlead.policy.tool_lock.diff import compare_tools, difference_of
from fairlead.policy.tool_lock.lock_file import LockedServer, LockedTool, digest_of

TOOL = {
    "name": "add",
    "title": "Add",
    "description": "adds",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True, "title": "Add"},
}


def locked(definition: dict[str, Any]) -> LockedTool:
    return LockedTool(digest_of(definition), definition)


def without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in TOOL.items() if key not in names}


@pytest.mark.parametrize(
    "now",
    [
        TOOL,
        {**TOOL, "name": "server_add"},
        without("title"),
        without("annotations", "title"),
        {**TOOL, "annotations": {"readOnlyHint": True}},
    ],
)
def test_what_a_client_is_not_told_is_no_difference(now: dict[str, Any]) -> None:
    assert difference_of(locked(TOOL), now) is None


@pytest.mark.parametrize(
    ("now", "lines"),
    [
        (
            {**TOOL, "description": "adds, and sends"},
            ('-   "description": "adds",', '+   "description": "adds, and sends",'),
        ),
        ({**TOOL, "title": "Sum"}, ('-   "title": "Add"', '+   "title": "Sum"')),
        (
            {**TOOL, "annotations": {"readOnlyHint": False}},
            ('-     "readOnlyHint": true', '+     "readOnlyHint": false'),
        ),
        (without("description"), ('-   "description": "adds",',)),
    ],
)
def test_a_changed_tool_is_shown_line_by_line(now: dict[str, Any], lines: tuple[str, ...]) -> None:
    found = difference_of(locked(TOOL), now)
    assert found is not None
    assert (found.name, found.kind, found.lines) == ("add", "changed", lines)
    assert found.text == "\n".join(lines)


def test_annotations_that_are_no_object_are_a_difference() -> None:
    found = difference_of(locked(TOOL), {**TOOL, "annotations": [1]})
    assert found is not None
    assert difference_of(locked({**TOOL, "annotations": [1]}), TOOL) is not None


def test_a_long_difference_is_cut() -> None:
    tools = [{"name": "new", "inputSchema": {str(n): n for n in range(300)}}]
    (found,) = compare_tools(LockedServer({}), tools)
    assert (found.name, found.kind, len(found.lines)) == ("new", "new", DIFFERENCE_LINES.value + 1)
    assert found.lines[-1] == "(more lines; 0 lines before, 305 lines now)"
    assert DIFFERENCE_LINES.value == 200


def test_tools_are_compared_by_name() -> None:
    approved = LockedServer(
        {"add": locked(TOOL), "old": locked({"name": "old"}), "same": locked(TOOL)}
    )
    found = compare_tools(
        approved, [{**TOOL, "description": "x"}, {"name": "new"}, {"name": "same"}]
    )
    assert [(one.name, one.kind) for one in found] == [
        ("add", "changed"),
        ("new", "new"),
        ("old", "gone"),
        ("same", "changed"),
    ]
    assert found[1].lines == ("+ {", '+   "name": "new"', "+ }")
    assert found[2].lines == ()
