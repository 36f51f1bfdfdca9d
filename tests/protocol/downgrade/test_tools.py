"""Tools and their output in the terms of the revision of the client."""

import json

import pytest

from fairlead.protocol.downgrade.results import downgrade_result
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision
from tests.support.downgrade_examples import (
    AUDIO,
    TOOLS,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    result_for,
)


def test_each_revision_gets_the_fields_of_a_tool_it_has() -> None:
    tool = {**TOOLS[0], "execution": {"taskSupport": "optional"}}

    def fields(revision: Revision) -> set[str]:
        return set(result_for(revision, "tools/list", {"tools": [tool]})["tools"][0])

    first = {"name", "description", "inputSchema"}
    assert fields(V2024_11_05) == first
    assert fields(V2025_03_26) == first | {"annotations"}
    third = first | {"annotations", "title", "outputSchema", "_meta"}
    assert fields(V2025_06_18) == third
    assert fields(V2025_11_25) == third | {"icons", "execution"}
    assert fields(NEWEST) == third | {"icons"}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_true_and_false_schemas_are_written_out(revision: Revision) -> None:
    tool = result_for(revision, "tools/list", {"tools": TOOLS})["tools"][0]
    assert tool["inputSchema"]["properties"] == {
        "place": {"$ref": "#/$defs/Place"},
        "rest": {},
        "none": {"not": {}},
    }
    assert tool["inputSchema"]["$defs"] == {"Place": {"type": "string"}}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_only_objects_are_structured_before_the_stateless_revisions(revision: Revision) -> None:
    tools = result_for(revision, "tools/list", {"tools": TOOLS})["tools"]
    assert "outputSchema" not in tools[1]
    result = {"content": [{"type": "text", "text": "1"}], "structuredContent": 1}
    assert result_for(revision, "tools/call", result) == {"content": result["content"]}
    kept = result_for(revision, "tools/call", {"content": [], "structuredContent": {"a": 1}})
    assert ("structuredContent" in kept) == revision.structured_output


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"null", "null"), (b'["\\u00e9",1.50]', '["\\u00e9",1.50]'), (b'"\xff"', '"�"')],
)
def test_a_structured_value_that_goes_leaves_its_text(value: bytes, text: str) -> None:
    result = downgrade_result("tools/call", b'{"structuredContent":%s}' % value, V2025_11_25)
    assert json.loads(result) == {"content": [{"type": "text", "text": text}]}


def test_a_note_about_another_block_is_not_the_text_of_a_structured_value() -> None:
    result = result_for(
        V2024_11_05, "tools/call", {"content": [AUDIO], "structuredContent": {"a": 1}}
    )
    assert [block["text"] for block in result["content"]] == [
        "[audio/wav content left out: MCP 2024-11-05 has no blocks of type 'audio']",
        '{"a": 1}',
    ]
