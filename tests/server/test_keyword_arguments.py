"""Tests of the checks of keyword arguments."""

from typing import Any

import pytest

from fairlead import MCPServer, MCPServerConfig, mcp_tool

server: Any = MCPServer("s")


@pytest.mark.covers("SRV-13")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MCPServer("s", rate_limt_rate=1),
            "unknown keyword argument 'rate_limt_rate': did you mean 'rate_limit_rate'?",
        ),
        (
            lambda: MCPServer("s", lifespn=None),
            "unknown keyword argument 'lifespn': did you mean 'lifespan'?",
        ),
        (
            lambda: MCPServerConfig(instrucions="x"),  # type: ignore[call-arg]
            "unknown keyword argument 'instrucions': did you mean 'instructions'?",
        ),
        (
            lambda: server.tool(descripton="x"),
            "unknown keyword argument 'descripton': did you mean 'description'?",
        ),
        (
            lambda: server.tool(structured=False),
            "unknown keyword argument 'structured': expected one of annotations, "
            "description, inline, meta, name, output_schema, scopes, timeout, title",
        ),
        (
            lambda: server.resource("r://1", mimeType="x"),
            "unknown keyword argument 'mimeType': did you mean 'mime_type'?",
        ),
        (
            lambda: server.prompt(tittle="x"),
            "unknown keyword argument 'tittle': did you mean 'title'?",
        ),
        (
            lambda: server.register_tool("t", {}, print, outputSchema={}),
            "unknown keyword argument 'outputSchema': did you mean 'output_schema'?",
        ),
        (
            lambda: server.register_resource("r://1", "r", provider=print),
            "unknown keyword argument 'provider': did you mean 'content_provider'?",
        ),
        (
            lambda: server.register_prompt("p", desciption="x"),
            "unknown keyword argument 'desciption': did you mean 'description'?",
        ),
        (
            lambda: server.create_http_app(auth_tokn="x"),
            "unknown keyword argument 'auth_tokn': did you mean 'auth_token'?",
        ),
        (
            lambda: mcp_tool(catgory="x"),  # type: ignore[call-overload]
            "unknown keyword argument 'catgory': did you mean 'category'?",
        ),
    ],
)
def test_the_error_for_an_unknown_keyword_argument_names_the_closest_argument(
    call: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message
