"""Comparisons of changed tool definitions with approved ones are limited in time and size."""

import random
import time
from typing import Any

import pytest

from fairlead.limits import DIFFERENCE_LINES, DIFFERENCE_TEXT
from fairlead.policy.tool_lock.lock_file import LockedTool, digest_of
from fairlead.policy.tool_lock.suspicious_text import find_suspicious_text
from fairlead.policy.tool_lock.tool_diff import difference_of
from fairlead.protocol.targets.unique_names import merge_names

QUICK = 0.5  # seconds of processor time; an earlier version took 12 s for 6 KB


def tool(**members: Any) -> dict[str, Any]:
    return {"name": "t", "description": "d", "inputSchema": {"type": "object"}, **members}


def properties(lines: list[str]) -> dict[str, Any]:
    return tool(inputSchema={"type": "object", "enum": lines})


def shuffled(lines: list[str]) -> list[str]:
    return random.Random(1).sample(lines, len(lines))


LETTERS = [f"line {n}" for n in range(3000)]
HOSTILE = {
    "one long text": (tool(description="ab" * 3000), tool(description="ba" * 3000)),
    "many alike": (properties(["a"] * 5000), properties(["a", "b"] * 5000)),
    "shuffled": (properties(LETTERS), properties(shuffled(LETTERS))),
    "interleaved": (properties(LETTERS), properties([x for n in LETTERS for x in (n, n + "x")])),
    "nearly alike": (
        properties(["x" * 50 + str(n) for n in range(2000)]),
        properties(["x" * 50 + str(n) for n in range(9000, 11000)]),
    ),
    "large": (tool(description="a" * 1_000_000), tool(description="a" * 999_999 + "b")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_comparing_hostile_tool_definitions_takes_limited_time_and_output(name: str) -> None:
    before, now = HOSTILE[name]
    approved = LockedTool(digest_of(before), before)
    began = time.process_time()
    difference = difference_of(approved, now)
    assert time.process_time() - began < QUICK
    assert difference is not None
    assert 0 < len(difference.lines) <= DIFFERENCE_LINES.value + 1
    assert max(map(len, difference.lines)) < DIFFERENCE_TEXT.value + 50


def test_a_long_line_in_a_tool_difference_is_shown_from_its_first_difference() -> None:
    before, now = tool(description="a" * 5000 + "before"), tool(description="a" * 5000 + "now")
    difference = difference_of(LockedTool(digest_of(before), before), now)
    assert difference is not None
    old, new = difference.lines
    assert old.startswith("- (")
    assert old.endswith('before",')
    assert new.endswith('now",')


def test_a_difference_shows_only_the_lines_that_differ() -> None:
    before, now = tool(), tool(title="T")
    difference = difference_of(LockedTool(digest_of(before), before), now)
    assert difference is not None
    assert difference.lines == ('-   "name": "t"', '+   "name": "t",', '+   "title": "T"')


@pytest.mark.parametrize(
    "piece", ["ignore all ", "do not tell ", "before use ", "\u200b", "<", "a"]
)
def test_suspicious_texts_are_found_in_linear_time(piece: str) -> None:
    hostile = tool(description=piece * (200_000 // len(piece)))
    many = tool(inputSchema={"properties": {f"p{n}": {"title": piece * 20} for n in range(2000)}})
    began = time.process_time()
    find_suspicious_text(hostile)
    find_suspicious_text(many)
    assert time.process_time() - began < 4 * QUICK


def test_merging_tool_names_takes_linear_time() -> None:
    pairs = [(f"server {n % 7}", "x" * 70 + str(n % 50_000)) for n in range(100_000)]
    began = time.process_time()
    names = merge_names(pairs)
    assert len(set(names.values())) == len(set(pairs))
    assert time.process_time() - began < 10 * QUICK
