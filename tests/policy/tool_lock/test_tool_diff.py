"""Tests of differences between approved and current tools."""

from typing import Any

import pytest

from fairlead.limits import DIFFERENCE_LINES, DIFFERENCE_TEXT
from fairlead.policy.tool_lock import tool_diff
from fairlead.policy.tool_lock.lock_file import LockedServer, LockedTool, digest_of
from fairlead.policy.tool_lock.tool_diff import compare_tools, difference_of

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
def test_members_removed_for_a_client_are_not_a_difference(now: dict[str, Any]) -> None:
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
def test_a_changed_tool_is_compared_line_by_line(
    now: dict[str, Any], lines: tuple[str, ...]
) -> None:
    found = difference_of(locked(TOOL), now)
    assert found is not None
    assert (found.name, found.kind, found.lines) == ("add", "changed", lines)
    assert found.text == "\n".join(lines)


def test_annotations_that_are_not_an_object_are_a_difference() -> None:
    found = difference_of(locked(TOOL), {**TOOL, "annotations": [1]})
    assert found is not None
    assert difference_of(locked({**TOOL, "annotations": [1]}), TOOL) is not None


def test_a_tool_difference_with_too_many_lines_is_truncated() -> None:
    tools = [{"name": "new", "inputSchema": {str(n): n for n in range(300)}}]
    (found,) = compare_tools(LockedServer({}), tools)
    assert (found.name, found.kind, len(found.lines)) == ("new", "new", DIFFERENCE_LINES.value + 1)
    assert found.lines[-1] == "(more lines; 0 lines before, 305 lines now)"
    assert DIFFERENCE_LINES.value == 200


def test_new_changed_and_removed_tools_are_found_by_name() -> None:
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


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("", "", 0),
        ("a", "b", 0),
        ("abc", "abd", 2),
        ("abc", "abc", 3),
        ("abc", "ab", 2),
        ("a" * 1000 + "x", "a" * 1000 + "y", 1000),
    ],
)
def test_the_length_of_the_common_prefix_of_two_texts_is_found(
    old: str, new: str, same: int
) -> None:
    assert tool_diff._first_difference(old, new) == same


def test_only_the_part_around_the_difference_of_long_lines_is_shown() -> None:
    longest = DIFFERENCE_TEXT.value
    short = "a" * longest
    assert tool_diff._around_difference(short, "b" + short[1:]) == (short, "b" + short[1:])
    early = "b" + "a" * longest
    assert tool_diff._around_difference("a" * (longest + 1), early) == ("a" * (longest + 1), early)
    begin = "a" * (2 * longest)
    start = 2 * longest - longest // 4
    assert tool_diff._around_difference(begin + "x", begin + "y") == (
        f"({start} characters) …" + "a" * (longest // 4) + "x",
        f"({start} characters) …" + "a" * (longest // 4) + "y",
    )


def test_a_long_line_in_a_tool_difference_is_truncated() -> None:
    longest, hits = DIFFERENCE_TEXT.value, DIFFERENCE_TEXT.hits
    assert tool_diff._cut("x" * longest) == "x" * longest
    assert tool_diff._cut("x" * (longest + 1)) == "x" * longest + f"… ({longest + 1} characters)"
    assert DIFFERENCE_TEXT.hits == hits + 1


def test_a_tool_difference_has_a_limited_number_of_lines() -> None:
    most, hits = DIFFERENCE_LINES.value, DIFFERENCE_LINES.hits
    few = tool_diff._lines({}, {"a": list(range(most - 4))})
    assert (len(few), DIFFERENCE_LINES.hits) == (most, hits)
    many = tool_diff._lines({}, {"a": list(range(most - 3))})
    assert len(many) == most + 1
    assert many[-1] == f"(more lines; 0 lines before, {most + 1} lines now)"
    assert DIFFERENCE_LINES.hits == hits + 1
