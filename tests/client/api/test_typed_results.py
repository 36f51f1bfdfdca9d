"""Tests of typed results of tools and prompts."""

import json
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.client.api.typed_results import tool_error
from fairlead.errors import MCPToolError
from tests.support.in_memory_client import client_of

ERROR = {"type": "text", "text": json.dumps(MCPToolError("no", tool_name="t").to_dict())}


@pytest.mark.parametrize(
    ("content", "isError", "found"),
    [
        ([ERROR], True, True),
        ([{"type": "text", "text": "plain"}, {"type": "image"}, "odd", ERROR], True, True),
        ([{"type": "text", "text": "plain"}], True, False),
        ([ERROR], False, False),
        (None, True, False),
    ],
    ids=["first", "last", "none", "no error", "no content"],
)
def test_the_structured_error_of_a_tool_is_in_a_content_block(
    content: Any, isError: bool, found: bool
) -> None:
    error = tool_error({"content": content, "isError": isError})
    assert (error is not None) is found
    if error is not None:
        assert (error.message, error.tool_name) == ("no", "t")


async def test_a_typed_prompt_contains_its_messages_and_description() -> None:
    server = MCPServer("s")
    server.register_prompt("p", description="about p", template="hello")
    async with client_of(server) as client:
        made = await client.prompt("p")
        assert [(one.role, getattr(one.content, "text", None)) for one in made.messages] == [
            ("user", "hello")
        ]
        assert made.description == "about p"
