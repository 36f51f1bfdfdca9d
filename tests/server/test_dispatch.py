"""Tests of request routing: methods of each era are handled, and others are rejected."""

import contextlib

import pytest

from fairlead import MCPServer, RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.interceptor.direct_edge import direct_exchange
from fairlead.protocol.trace_context import current_trace, tracing
from fairlead.server.dispatch import MethodRoute, RequestDispatcher
from tests.support.in_memory_client import META, ask, client_of
from tests.support.single_exchange import exchange


@pytest.mark.covers("DEC-16", "SRV-16")
async def test_requests_that_violate_the_protocol_are_rejected() -> None:
    server = MCPServer("s")

    @server.tool()
    async def t() -> str:
        return ""

    unknown = await ask(server, "tools/call", {"name": "nope"})
    assert unknown["error"] == {
        "code": -32602,
        "message": "Unknown tool: nope; tools/list returns the available tools",
    }
    assert (await ask(server, "tools/call", {"arguments": {}}))["error"]["code"] == -32602
    bad = await ask(server, "tools/call", {"name": "t", "arguments": [1]})
    assert bad["error"]["code"] == -32602
    assert (await ask(server, "no/such"))["error"]["code"] == -32601
    assert (await ask(server, "tools/list", {"cursor": 5}))["error"]["code"] == -32602
    assert (await ask(server, "tools/list", {"cursor": "zzz"}))["error"]["code"] == -32602
    assert (await ask(server, "logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
    # These methods exist only in the handshake era.
    for method in ("initialize", "ping", "logging/setLevel"):
        assert (await ask(server, method, {"_meta": META}))["error"]["code"] == -32601
    assert (await ask(server, "server/discover"))["error"]["code"] == -32601


@pytest.mark.covers("SRV-15")
async def test_every_method_is_handled_in_each_era_that_defines_it() -> None:
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
    async with client_of(server) as client:  # requires a connection
        await client.listen("tools")
    alone = await ask(server, "subscriptions/listen", {"notifications": {}, "_meta": META})
    assert alone["error"]["code"] == -32600


async def test_stateless_callers_may_only_call_methods_of_declared_capabilities() -> None:
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


def test_synchronous_methods_are_answered_inline_unless_there_are_interceptors() -> None:
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


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("meta", "outer", "direct", "inner"),
    [
        ({}, None, False, None),
        ({"traceparent": TRACE}, None, False, TRACE),
        ({"baggage": "a=b"}, None, False, None),
        ({}, "another", False, None),
        ({}, "another", True, "another"),
        ({"traceparent": TRACE}, "another", True, TRACE),
    ],
    ids=["none", "its own", "only baggage", "of others", "of the sender", "its own inside"],
)
async def test_a_request_is_handled_in_the_trace_of_its_sender(
    meta: dict[str, str], outer: str | None, direct: bool, inner: str | None
) -> None:
    seen: list[str | None] = []

    async def later(exchange: Exchange) -> Answer:
        trace = current_trace.get()
        seen.append(None if trace is None else trace.traceparent)
        return b'{"a":1}'

    dispatcher = RequestDispatcher(inline=True)
    dispatcher.register({"tools/call": MethodRoute(None, later)})
    given = exchange("tools/call", {"name": "t", "_meta": meta})
    if direct:
        given = direct_exchange(given.message, given.caller)  # type: ignore[arg-type]
    with tracing(outer) if outer else contextlib.nullcontext():
        assert await dispatcher.handle(given) == b'{"a":1}'
    assert seen == [inner]


async def test_inline_and_awaited_handling_have_the_same_results_and_errors() -> None:
    dispatcher = RequestDispatcher(inline=False)

    def now(exchange: Exchange) -> Answer:
        return b'{"a":1}'

    def fail(exchange: Exchange) -> Answer:
        raise KeyError("secret")

    async def later(exchange: Exchange) -> Answer:
        return b"{}"

    dispatcher.register(
        {
            "tools/list": MethodRoute(now),
            "tools/call": MethodRoute(None, later),
            "prompts/list": MethodRoute(fail),
            "resources/list": MethodRoute(now, offers=()),
        }
    )
    assert await dispatcher.handle(exchange("tools/list")) == b'{"a":1}'
    assert dispatcher.answer_inline(exchange("tools/list")) == b'{"a":1}'
    assert dispatcher.answer_inline(exchange("tools/call")) is None
    for answer in (dispatcher.answer_inline, dispatcher.handle):
        with pytest.raises(RpcError) as failed:
            await answer(exchange("prompts/list"))  # type: ignore[misc]
        assert (failed.value.code, failed.value.message) == (-32603, "Internal error")
        with pytest.raises(RpcError) as refused:
            answer(exchange("resources/list"))
        assert refused.value.code == -32601
        assert refused.value.message == "Method not found: resources/list"
    assert dispatcher.answer_inline(exchange("resources/list", stateless=False)) == b'{"a":1}'


async def test_the_error_for_an_unknown_log_level_lists_the_valid_levels() -> None:
    server = MCPServer("s")
    assert (await ask(server, "logging/setLevel", {"level": "notice"}))["result"] == {}
    refused = (await ask(server, "logging/setLevel", {"level": "loud"}))["error"]["message"]
    assert refused == (
        "Unknown log level 'loud': expected one of debug, info, notice, warning, error, critical, "
        "alert, emergency"
    )
    given = exchange("logging/setLevel", {"level": "error"}, stateless=False)
    assert server.answer_inline(given) == b"{}"
    assert given.edge.log_level == "error"
