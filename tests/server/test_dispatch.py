"""Each method has a route in the eras that know it, and all others are refused."""

import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange
from fairlead.server.dispatch import MethodRoute, RequestDispatcher
from tests.support.in_memory_client import META, ask, client_of


@pytest.mark.covers("DEC-16", "SRV-16")
async def test_refusals_of_the_protocol_itself() -> None:
    server = MCPServer("s")

    @server.tool()
    async def t() -> str:
        return ""

    unknown = await ask(server, "tools/call", {"name": "nope"})
    assert unknown["error"] == {"code": -32602, "message": "Unknown tool: nope"}
    assert (await ask(server, "tools/call", {"arguments": {}}))["error"]["code"] == -32602
    bad = await ask(server, "tools/call", {"name": "t", "arguments": [1]})
    assert bad["error"]["code"] == -32602
    assert (await ask(server, "no/such"))["error"]["code"] == -32601
    assert (await ask(server, "tools/list", {"cursor": 5}))["error"]["code"] == -32602
    assert (await ask(server, "tools/list", {"cursor": "zzz"}))["error"]["code"] == -32602
    assert (await ask(server, "logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
    # In the stateless era the methods of the handshake era do not exist.
    for method in ("initialize", "ping", "logging/setLevel"):
        assert (await ask(server, method, {"_meta": META}))["error"]["code"] == -32601
    assert (await ask(server, "server/discover"))["error"]["code"] == -32601


@pytest.mark.covers("SRV-15")
async def test_every_method_of_a_server_is_answered_in_its_era() -> None:
    server = MCPServer("s")
    server.tool("t")(lambda: "x")
    server.register_resource("r://1", "r", content_provider="x")
    server.resource("r://{a}/b")(lambda a: a)

    @server.prompt()
    def p(word: str) -> str:
        return word

    server.completion("p", "word")(lambda typed: ["x"])
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    reference = {"type": "ref/prompt", "name": "p"}
    both = {
        "tools/list": {},
        "tools/call": {"name": "t"},
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "r://1"},
        "prompts/list": {},
        "prompts/get": {"name": "p", "arguments": {"word": "x"}},
        "completion/complete": {"ref": reference, "argument": {"name": "word", "value": ""}},
    }
    handshake = {
        "initialize": hello,
        "ping": {},
        "resources/subscribe": {"uri": "r://1"},
        "resources/unsubscribe": {"uri": "r://1"},
        "logging/setLevel": {"level": "info"},
    }
    for method, params in (handshake | both).items():
        assert "result" in await ask(server, method, params), method
    for method, params in (both | {"server/discover": {}}).items():
        answer = await ask(server, method, {**params, "_meta": META})
        assert answer["result"]["resultType"] == "complete", method
    async with client_of(server) as client:  # this one needs a connection
        await client.listen("tools")
    alone = await ask(server, "subscriptions/listen", {"notifications": {}, "_meta": META})
    assert alone["error"]["code"] == -32600


async def test_stateless_callers_may_only_ask_for_what_is_declared() -> None:
    server = MCPServer("s")
    discovered = await ask(server, "server/discover", {"_meta": META})
    assert discovered["result"]["capabilities"].keys() == {"tools", "logging"}
    for method, params in {
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "r://1"},
        "prompts/list": {},
        "prompts/get": {"name": "p"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "word", "value": ""},
        },
    }.items():
        refused = await ask(server, method, {**params, "_meta": META})
        assert refused["error"]["code"] == -32601, method
    assert await ask(server, "prompts/list", {}) == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"prompts": []},
    }


def test_methods_without_a_task_are_answered_inline_unless_there_are_interceptors() -> None:
    async def later(exchange: Exchange) -> Answer:
        return b"{}"

    def now(exchange: Exchange) -> Answer:
        return b"{}"

    routes = {
        "ping": MethodRoute(now),
        "tools/list": MethodRoute(now, later),
        "tools/call": MethodRoute(None, later),
    }
    for inline, expected in ((True, {"ping"}), (False, set())):
        dispatcher = RequestDispatcher(inline=inline)
        dispatcher.register(routes)
        assert dispatcher.inline_methods == expected
        dispatcher.allow_inline("tools/call")
        assert dispatcher.inline_methods == (expected | {"tools/call"} if inline else set())
