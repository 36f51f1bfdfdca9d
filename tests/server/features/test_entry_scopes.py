"""Scopes of entries: the check reads a request exactly as its handler does."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPServer
from fairlead.protocol.identity.scoped_name import ScopedName
from fairlead.server import ServerAuth, StaticClient
from fairlead.wire import Request
from tests.support.http_server import META, Answer, Web, serving

BASE = "https://mcp.example"
MANY = 1000  # URIs that a listen stream may have
TYPED = {"name": "word", "value": ""}
WEAK, STRONG = ScopedName("bot"), ScopedName("bot", ["secret"])


def make_server(auth: ServerAuth | None = None) -> MCPServer:
    server = MCPServer("s", auth=auth, rate_limit_rate=0)

    @server.prompt(scopes=["secret"])
    def hidden(word: str) -> str:
        return word

    @server.completion("hidden", "word")
    def words(typed: str) -> list[str]:
        return ["classified"]

    @server.resource("pub://{word}")
    def public(word: str) -> str:
        return word

    @server.resource("sec://{word}", scopes=["secret"])
    def secret(word: str) -> str:
        return word

    @server.resource("sec://fixed", scopes=["secret"])
    def fixed() -> str:
        return "classified"

    @server.tool(scopes=["secret"], inline=True)
    def reveal() -> str:
        return "classified"

    return server


def completing(**reference: Any) -> tuple[str, dict[str, Any]]:
    return "completion/complete", {"ref": reference, "argument": TYPED}


def listening(*uris: str) -> tuple[str, dict[str, Any]]:
    return "subscriptions/listen", {"notifications": {"resourceSubscriptions": list(uris)}}


PROMPT = {"type": "ref/prompt", "name": "hidden"}
PROTECTED = [
    completing(**PROMPT),
    completing(**PROMPT, extra=1),
    completing(**PROMPT, title="Hidden", nested={"a": [1]}),
    completing(**PROMPT, uri="pub://{word}"),
    completing(type="ref/resource", uri="sec://{word}"),
    completing(type="ref/resource", uri="sec://{word}", name="public"),
    completing(type="ref/resource", uri="sec://fixed"),
    listening("sec://fixed"),
    listening(*["pub://same"] * MANY, "sec://fixed"),
    listening(*(f"pub://{n}" for n in range(MANY - 1)), "sec://anything"),
    ("tools/call", {"name": "reveal"}),
    ("prompts/get", {"name": "hidden", "arguments": {"word": "x"}, "uri": 5}),
    ("resources/read", {"uri": "sec://fixed", "name": "pub://x"}),
    ("resources/subscribe", {"uri": "sec://any", "name": 5}),
]
OPEN = [
    completing(type="ref/resource", uri="pub://{word}"),
    completing(type="ref/resource", uri="pub://{word}", name="hidden"),
    completing(type="ref/other", name="hidden"),
    completing(name="hidden"),
    completing(type="ref/prompt", name="unknown"),
    listening(*(f"pub://{n}" for n in range(MANY)), "sec://fixed"),  # the last one is dropped
    ("subscriptions/listen", {"notifications": 5}),
    ("completion/complete", {}),
]


def required(method: str, params: dict[str, Any]) -> tuple[str, ...]:
    message = Request(1, method, Raw(json.dumps(params).encode()))
    return tuple(make_server().required_scopes(message, WEAK))


@pytest.mark.parametrize(("method", "params"), PROTECTED, ids=lambda value: str(value)[:70])
def test_a_request_needs_the_scopes_of_the_entry_that_its_handler_uses(
    method: str, params: dict[str, Any]
) -> None:
    assert required(method, params) == ("secret",)


@pytest.mark.parametrize(("method", "params"), OPEN, ids=lambda value: str(value)[:70])
def test_other_requests_need_no_scopes(method: str, params: dict[str, Any]) -> None:
    assert required(method, params) == ()


@contextlib.asynccontextmanager
async def protected() -> AsyncIterator[Web]:
    bot = StaticClient(name="bot")
    auth = ServerAuth(tokens={"weak": bot}, public_url=BASE)
    async with serving(make_server(auth)) as web:
        yield web


async def send(web: Web, method: str, params: dict[str, Any]) -> Answer:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    given = {
        "Authorization": "Bearer weak",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    name = params.get("uri" if method.startswith("resources/") else "name")
    if name is not None:
        given["Mcp-Name"] = str(name)
    async with asyncio.timeout(10):
        return await web.post(body, given)


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    ("method", "params"),
    [one for one in PROTECTED if one[0] != "resources/subscribe"],
    ids=lambda value: str(value)[:70],
)
async def test_a_token_without_the_scopes_of_an_entry_gets_403(
    method: str, params: dict[str, Any]
) -> None:
    async with protected() as web:
        answer = await send(web, method, params)
        assert (answer.status, b"classified" in answer.body) == (403, False)


async def test_a_tool_is_found_by_its_name_only() -> None:
    """The member `uri` of a tool call must not name an inline tool, whose scopes are by name."""
    async with protected() as web:
        answer = await send(web, "tools/call", {"uri": "reveal"})
        assert b"classified" not in answer.body
        assert answer.status == 400


async def test_a_mounted_completion_is_not_used_for_another_prompt_of_the_same_name() -> None:
    outer = MCPServer("outer")
    outer.mount(make_server(), "inner")

    @outer.prompt()
    def hidden(word: str) -> str:
        return word

    find = outer.completions.find
    assert find("hidden", "word", is_prompt=True) is None
    assert find("inner_hidden", "word", is_prompt=True) is not None
