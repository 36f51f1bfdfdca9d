"""Items outside of a client's view are indistinguishable from items that do not exist."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.views import View
from fairlead.server import Header
from tests.support.gateway_servers import BOTH, LIMIT, Ears, config, until
from tests.support.http_server import Web, serving, stateless

HEADER_MISMATCH, INVALID_PARAMS = -32020, -32602
BOB = {"Authorization": "Bearer bob"}
WIDE = {"Authorization": "Bearer wide"}


def marked(name: str) -> MCPServer:
    """Return a server with tools that also send an argument in a header."""
    server = MCPServer(name, rate_limit_rate=0)

    def where(region: Annotated[str, "Where", Header("Region")] = "") -> str:
        return f"in {region}"

    for tool in ("open", "sealed"):
        server.tool(name=tool)(where)
    return server


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[Gateway, Web]]:
    """Run a gateway with two servers; Bob's view permits some items of one server."""
    view = View(servers=("one",), deny=("*sealed",), rename={"one_open": "renamed"})
    async with (
        asyncio.timeout(LIMIT),
        serving(marked("one")) as one,
        serving(marked("two")) as two,
        Gateway(views={"bob": view}) as gateway,
        serving(gateway, verify_token=lambda token: token) as web,
    ):
        await gateway.connect(
            {
                "one": {"type": "http", "url": one.url},
                "two": {"type": "http", "url": two.url},
            }
        )
        await until(lambda: gateway.is_ready)
        yield gateway, web


@pytest.mark.attack(
    "calls with wrong `Mcp-Param-*` headers that probe for tools outside of the view",
    "headers are compared with the tools of the client's view",
    "the same error as for an unknown tool",
)
@pytest.mark.parametrize(
    ("path", "tool", "code"),
    [
        ("", "one_sealed", INVALID_PARAMS),
        ("", "two_open", INVALID_PARAMS),
        ("", "one_open", INVALID_PARAMS),  # renamed in the view
        ("", "nothing", INVALID_PARAMS),
        ("/one", "sealed", INVALID_PARAMS),
        ("/one", "nothing", INVALID_PARAMS),
        ("", "renamed", HEADER_MISMATCH),
        ("/one", "open", HEADER_MISMATCH),
    ],
)
async def test_header_checks_do_not_reveal_tools_outside_of_the_view(
    path: str, tool: str, code: int
) -> None:
    async with scene() as (_, web):
        web.url += path
        call = {"name": tool, "arguments": {"region": "north"}}
        answer = await web.stateless("tools/call", call, {**BOB, "Mcp-Param-Region": "south"})
        assert answer.error == code
        if code == INVALID_PARAMS:
            message = f"Unknown tool: {tool}; tools/list returns the available tools"
            assert answer.json["error"]["message"] == message
        wide = await web.stateless(
            "tools/call",
            {**call, "name": "sealed" if path else "one_sealed"},
            {**WIDE, "Mcp-Param-Region": "south"},
        )
        assert wide.error == HEADER_MISMATCH


async def _answers(web: Web, path: str, token: dict[str, str]) -> list[Any]:
    """Send requests with various HTTP methods and headers to a path; return the responses."""
    url, seen = f"{web.url}{path}", []
    body, headers = stateless("tools/list", None, token)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    twice = [*token.items(), ("Mcp-Name", "a"), ("Mcp-Name", "b")]
    requests: list[tuple[str, Any, Any]] = [
        ("POST", body, {**headers, "Content-Type": "application/json"}),
        ("POST", message, {**token, "Content-Type": "application/json"}),
        ("POST", message, token),
        ("POST", message, [*twice, ("Content-Type", "application/json")]),
        *((method, None, token) for method in ("GET", "DELETE", "PUT", "OPTIONS")),
        *((method, None, twice) for method in ("GET", "DELETE", "PUT")),
        ("DELETE", None, {**token, "Mcp-Session-Id": "x"}),
        ("GET", None, {**token, "Mcp-Session-Id": "x", "Accept": "text/event-stream"}),
    ]
    for method, content, sent in requests:
        async with web.http.request(method, url, json=content, headers=sent) as answer:
            seen.append((answer.status, await answer.read()))
    return seen


@pytest.mark.attack(
    "requests to `/mcp/NAME` that probe for servers outside of the view",
    "the path of a server outside of the view is treated as unknown",
    "404, as for a server that does not exist; 401 without a token",
)
@pytest.mark.parametrize("token", [BOB, {}], ids=["with a narrow view", "without a token"])
async def test_requests_to_the_path_of_a_hidden_server_are_answered_like_an_unknown_path(
    token: dict[str, str],
) -> None:
    async with scene() as (_, web):
        hidden = await _answers(web, "/two", token)
        assert hidden == await _answers(web, "/nothing", token)
        assert {status for status, _ in hidden} <= {400, 401, 403, 404}
        assert (await web.stateless("tools/list", None, WIDE)).status == 200


@pytest.mark.attack(
    "`/health`, `/status` and `/`, read by a client with a narrow view",
    "pages count the servers and tools of the view and the client's own connections",
    "pages show no other servers, clients or calls",
)
async def test_status_pages_count_only_servers_and_calls_in_the_view() -> None:
    async with scene() as (_, web):
        root = web.url.removesuffix("/mcp")
        web.http.headers.update(WIDE)
        await web.initialize()
        await web.stateless("tools/call", {"name": "one_open"}, {"Mcp-Param-Region": ""})
        wide = (await web.get(f"{root}/status")).json
        assert (wide["clients"], wide["parked"]) == (1, 0)
        assert [one["tools"] for one in wide["servers"]] == [2, 2]
        assert sum(one["calls"] for one in wide["servers"]) == 1
        assert (await web.get(f"{root}/health")).json["servers"] == 2

        narrow = (await web.get(f"{root}/status", BOB)).json
        assert (narrow["clients"], narrow["parked"]) == (0, None)
        [one] = narrow["servers"]
        assert (one["server"], one["tools"]) == ("one", 1)
        assert (one["calls"], one["errors"], one["latency_ms"]) == (None, None, None)
        health = (await web.get(f"{root}/health", BOB)).json
        assert health == {"status": "ok", "servers": 1, "connected": 1}
        assert (await web.get(f"{root}/", BOB)).status == 200


@pytest.mark.attack(
    "listening for list changes of servers outside of the view",
    "notifications about a server go to clients whose view has it",
    "no notification",
)
@pytest.mark.parametrize("version", BOTH)
async def test_notifications_about_a_hidden_server_are_not_sent(version: str) -> None:
    bobs, wides = Ears(), Ears()

    def client(url: str, token: dict[str, str], ears: Ears) -> Any:
        return MCPClient.connect_http(url, config(version), headers=token, on_notification=ears)

    async with (
        scene() as (gateway, web),
        client(web.url, BOB, bobs) as bob,
        client(web.url, WIDE, wides) as wide,
        bob.changes("tools") as bobs_news,
        wide.changes("tools") as wides_news,
    ):
        for one in (bob, wide):
            await one.list_tools(cache=False)
        await gateway.disconnect("two")
        assert (await anext(aiter(wides_news))).kind == "tools"
        await bob.list_tools(cache=False)
        assert not [note for note in bobs.drain() if note[0].endswith("list_changed")]
        await gateway.disconnect("one")
        assert (await anext(aiter(bobs_news))).kind == "tools"
