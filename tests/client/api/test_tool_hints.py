"""Tests of the hints and schemas of listed tools."""

from typing import Any

import pytest

from fairlead.client.api.tool_hints import ToolHints, is_harmless
from fairlead.errors import OutputMismatch


@pytest.mark.parametrize(
    ("tool", "harmless"),
    [
        ({}, False),
        ({"annotations": 5}, False),
        ({"annotations": {"readOnlyHint": True}}, True),
        ({"annotations": {"idempotentHint": True}}, True),
        ({"annotations": {"readOnlyHint": 1, "idempotentHint": "yes"}}, False),
    ],
)
def test_only_a_read_only_or_idempotent_tool_is_safe_to_repeat(
    tool: dict[str, Any], harmless: bool
) -> None:
    assert is_harmless(tool) is harmless


def test_tool_hints_are_dropped_together_with_the_tool_list() -> None:
    hints = ToolHints()
    hints.learn([{"name": "a", "annotations": {"readOnlyHint": True}, "outputSchema": {}}])
    assert hints.harmless("a")
    assert not hints.harmless("b")
    assert hints.schemas.keys() == {"a"}
    hints.forget()
    assert not hints.harmless("a")
    assert hints.schemas == {}


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"structuredContent": {"n": 1}}, None),
        ({"isError": True}, None),
        ({}, "the result has no structuredContent"),
        ({"structuredContent": {"n": "x"}}, "(at /n)"),
        ({"structuredContent": 5}, "(at /)"),
    ],
    ids=["fits", "error", "absent", "wrong member", "wrong value"],
)
def test_a_result_is_checked_against_the_output_schema_of_its_tool(
    result: dict[str, Any], problem: str | None
) -> None:
    hints = ToolHints()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    hints.learn([{"name": "a", "outputSchema": schema}])
    hints.check("b", result)
    if problem is None:
        hints.check("a", result)
        return
    for _ in range(2):
        with pytest.raises(OutputMismatch) as refused:
            hints.check("a", result)
        assert problem in str(refused.value)
