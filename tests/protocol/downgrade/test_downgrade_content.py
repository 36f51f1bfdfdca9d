"""Tests of content blocks and tools downgraded to the revision of a client."""

import json
from typing import Any

import pytest

from fairlead.protocol.downgrade.results import downgrade_result
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision
from tests.support.downgrade_examples import (
    AUDIO,
    LINK,
    ODD,
    TOOLS,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    result_for,
)


def blocks_for(revision: Revision, *blocks: object) -> Any:
    return result_for(revision, "tools/call", {"content": blocks})["content"]


@pytest.mark.covers("RPC-06")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_downgraded_blocks_keep_unknown_members_and_escaped_text(
    revision: Revision,
) -> None:
    blocks = b'[{"type":"new"},{"type":"text","text":"\\u0041","odd":%s,"annotations":%s}]' % (
        ODD,
        ODD,
    )
    result = downgrade_result("tools/call", b'{"content":%s,"odd":%s}' % (blocks, ODD), revision)
    assert result.count(ODD) == 3
    assert b'"text":"\\u0041"' in result


def test_a_resource_link_becomes_text_with_its_uri() -> None:
    kept = {"audience": ["user"], "priority": 0.5}
    text = {"type": "text", "text": "A title: file:///a", "annotations": kept}
    for revision in (V2024_11_05, V2025_03_26):
        assert blocks_for(revision, LINK) == [text]
    assert blocks_for(V2024_11_05, {"type": "resource_link", "uri": "x:y"})[0]["text"] == "x:y"


def test_an_unknown_block_is_kept_only_in_the_newest_revision() -> None:
    block = {"type": "video", "mimeType": "video/mp4", "data": "AAAA"}
    assert blocks_for(NEWEST, block) == [block]
    for revision in HANDSHAKE:
        note = f"[video/mp4 content omitted: MCP {revision} has no blocks of type 'video']"
        assert blocks_for(revision, block) == [{"type": "text", "text": note}]


def test_a_block_without_a_type_becomes_text() -> None:
    note = "[some content omitted: MCP 2025-11-25 has no blocks without a type]"
    assert blocks_for(V2025_11_25, {"type": 3}) == [{"type": "text", "text": note}]


def test_invalid_content_is_not_changed_by_a_downgrade() -> None:
    assert result_for(V2024_11_05, "tools/call", {"content": 3}) == {"content": 3}
    assert blocks_for(V2024_11_05, 3, None, "text") == [3, None, "text"]


def test_fields_of_a_tool_that_a_revision_lacks_are_removed() -> None:
    tool = {**TOOLS[0], "execution": {"taskSupport": "optional"}}

    def fields(revision: Revision) -> set[str]:
        return set(result_for(revision, "tools/list", {"tools": [tool]})["tools"][0])

    first = {"name", "description", "inputSchema", "outputSchema"}
    assert fields(V2024_11_05) == first
    assert fields(V2025_03_26) == first | {"annotations"}
    third = first | {"annotations", "title", "_meta"}
    assert fields(V2025_06_18) == third
    assert fields(V2025_11_25) == third | {"icons", "execution"}
    assert fields(NEWEST) == third | {"icons"}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_boolean_schemas_become_equivalent_objects(revision: Revision) -> None:
    tool = result_for(revision, "tools/list", {"tools": TOOLS})["tools"][0]
    assert tool["inputSchema"]["properties"] == {
        "place": {"$ref": "#/$defs/Place"},
        "rest": {},
        "none": {"not": {}},
    }
    assert tool["inputSchema"]["$defs"] == {"Place": {"type": "string"}}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_handshake_revisions_allow_only_objects_as_structured_content(revision: Revision) -> None:
    tools = result_for(revision, "tools/list", {"tools": TOOLS})["tools"]
    assert "outputSchema" not in tools[1]
    result = {"content": [{"type": "text", "text": "1"}], "structuredContent": 1}
    assert result_for(revision, "tools/call", result) == {"content": result["content"]}
    kept = result_for(revision, "tools/call", {"content": [], "structuredContent": {"a": 1}})
    assert kept["structuredContent"] == {"a": 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"null", "null"), (b'["\\u00e9",1.50]', '["\\u00e9",1.50]'), (b'"\xff"', '"�"')],
)
def test_structured_content_that_is_removed_is_added_as_text(value: bytes, text: str) -> None:
    result = downgrade_result("tools/call", b'{"structuredContent":%s}' % value, V2025_11_25)
    assert json.loads(result) == {"content": [{"type": "text", "text": text}]}


def test_removed_structured_content_is_added_after_a_replaced_block() -> None:
    result = result_for(V2024_11_05, "tools/call", {"content": [AUDIO], "structuredContent": [1]})
    assert [block["text"] for block in result["content"]] == [
        "[audio/wav content omitted: MCP 2024-11-05 has no blocks of type 'audio']",
        "[1]",
    ]
