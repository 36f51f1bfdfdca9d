"""Result content converted to text and media parts."""

from typing import Any

import pytest

from fairlead.agents.content_parts import MediaPart, TextPart, content_parts
from fairlead.manager.tools.tool_result import result_from_response


def resource(**members: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "note://1", **members}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hi"}, TextPart("hi")),
        (
            {"type": "image", "data": "YQ==", "mimeType": "image/png"},
            MediaPart("image", "image/png", "YQ=="),
        ),
        (
            {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"},
            MediaPart("audio", "audio/wav", "YQ=="),
        ),
        (resource(text="a note"), TextPart("a note")),
        (resource(blob="YQ=="), MediaPart("file", "application/octet-stream", "YQ==")),
        (resource(blob="YQ==", mimeType="image/png"), MediaPart("image", "image/png", "YQ==")),
        (
            {"type": "image", "data": "?", "mimeType": "image/png"},
            TextPart('{"type":"image","data":"?","mimeType":"image/png"}'),
        ),
        ({"type": "new", "x": 1}, TextPart('{"type":"new","x":1}')),
    ],
)
def test_a_content_block_becomes_a_text_or_media_part(
    block: dict[str, Any], part: TextPart | MediaPart
) -> None:
    result = result_from_response({"content": [block]}, server_name="s", mcp_tool_name="t")
    assert content_parts(result) == [part]
