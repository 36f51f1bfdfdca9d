"""Tests of trace propagation from requests to the requests that their handlers send."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.client import tracing
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.json_edit import members_of
from fairlead.protocol.outgoing_params import with_meta
from fairlead.protocol.trace_context import outgoing_trace

LIMIT = 20.0
BOTH = ["2025-11-25", "auto"]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WHOLE = {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=ada"}


def config(version: str) -> MCPClientConfig:
    return MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT, max_retries=0)


def said(params: Any) -> dict[str, Any]:
    """Return the trace members in the `_meta` of params."""
    meta = members_of((members_of(params) or {}).get("_meta")) or {}
    return {name: bytes(meta[name]).decode().strip('"') for name in WHOLE if name in meta}


class Listens:
    """Interceptor that records the traces of all calls."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            self.heard.append(said(exchange.message.params))
        return await proceed(exchange)


def ending(listens: Listens) -> MCPServer:
    """Return the last server in a chain of servers."""
    server = MCPServer("end", rate_limit_rate=0, interceptors=[listens])
    server.tool(name="end")(lambda: "reached")
    return server


@contextlib.asynccontextmanager
async def serving(server: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.covers("OBS-07")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("way", ["memory", "http"])
async def test_requests_sent_by_a_handler_have_the_trace_of_its_request(
    version: str, way: str
) -> None:
    listens = Listens()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        # The connection is opened in a trace, but the calls below have no trace.
        with tracing(OTHER):
            inner = await stack.enter_async_context(
                MCPClient.connect_inprocess(ending(listens), config(version))
            )
        middle = MCPServer("middle", rate_limit_rate=0)

        @middle.tool()
        async def on() -> str:
            return (await inner.call("end")).text

        if way == "http":
            url = await stack.enter_async_context(serving(middle))
            outer = await stack.enter_async_context(MCPClient.connect_http(url, config(version)))
        else:
            outer = await stack.enter_async_context(
                MCPClient.connect_inprocess(middle, config(version))
            )
        await outer.call("on")
        with tracing(PARENT, "a=1,b=2", "user=ada"):
            await asyncio.gather(outer.call("on"), outer.call("on"))
        await outer.call("on")
    assert listens.heard == [{}, WHOLE, WHOLE, {}]


async def test_input_requests_and_their_callbacks_have_the_trace_of_the_call() -> None:
    listens = Listens()
    asked: list[dict[str, Any]] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "elicitation/create":
            asked.append(said(exchange.message.params))
        return await proceed(exchange)

    server = MCPServer("asking", rate_limit_rate=0)

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("What?", str)).data)

    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(ending(listens), config("2025-11-25")) as other,
        MCPClient.connect_inprocess(
            Relay(server, interceptors=[watch]),
            config("2025-11-25"),
            on_elicit=lambda _: answer(other),
        ) as client,
    ):

        async def answer(other: MCPClient) -> Any:
            return {"action": "accept", "content": {"value": (await other.call("end")).text}}

        with tracing(PARENT):
            assert (await client.call("ask")).text == "reached"
    assert asked == [{"traceparent": PARENT}]
    assert listens.heard == [{"traceparent": PARENT}]


@pytest.mark.covers("OBS-07")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("through", ["relay", "intercepted relay", "gateway"])
async def test_relay_and_gateway_forward_the_trace_unchanged(version: str, through: str) -> None:
    listens, before = Listens(), Listens()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        enter = stack.enter_async_context
        tool = "end"
        between: Gateway | Relay
        if through == "gateway":
            gateway = await enter(Gateway(interceptors=[before], deadline=LIMIT))
            await gateway.connect({"end": {"url": await enter(serving(ending(listens)))}})
            tool, between = "end_end", gateway
        else:
            around = [before] if "intercepted" in through else []
            relay = between = Relay(ending(listens), interceptors=around)
            await enter(relay.running())
        client = await enter(MCPClient.connect_inprocess(between, config(version)))
        with tracing(PARENT, "a=1,b=2", "user=ada"):
            await client.call(tool)
        await client.call(tool)
    assert listens.heard == [WHOLE, {}]
    assert before.heard in ([], [WHOLE, {}])


async def test_a_trace_given_in_params_overrides_the_current_trace() -> None:
    with tracing(PARENT, baggage="user=ada"):
        assert said(with_meta({"_meta": {"x": 1}}, None, b"", outgoing_trace())) == {
            "traceparent": PARENT,
            "baggage": "user=ada",
        }
        own = {"a": 1, "_meta": {"traceparent": OTHER}}
        assert said(with_meta(own, 1, b"", outgoing_trace())) == {"traceparent": OTHER}
    assert outgoing_trace() == b""


async def test_a_trace_that_is_not_a_string_is_ignored() -> None:
    server = MCPServer("one", rate_limit_rate=0)

    @server.tool()
    async def now() -> str:
        return outgoing_trace().decode()

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    odd = {**call, "params": {"name": "now", "_meta": {"traceparent": 7, "baggage": ["x"]}}}
    answer = await server.handle_request(odd)
    assert answer is not None
    assert answer["result"]["content"][0]["text"] == ""
    good = {**call, "params": {"name": "now", "_meta": {"traceparent": PARENT}}}
    answer = await server.handle_request(good)
    assert answer is not None
    assert PARENT in answer["result"]["content"][0]["text"]


OPEN_TELEMETRY = f"""
import asyncio, sys
from msgspec import UNSET
from fairlead import MCPClient, MCPServer
from fairlead.client import tracing

traces = []

async def listen(exchange, proceed):
    if exchange.method == "tools/call":
        meta = exchange.head.meta
        traces.append(None if meta.traceparent is UNSET else (meta.traceparent, meta.tracestate))
    return await proceed(exchange)

server = MCPServer("one", rate_limit_rate=0, interceptors=[listen])
server.tool(name="now")(lambda: "now")

async def main():
    async with MCPClient.connect_inprocess(server) as client:
        await client.call("now")
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
        from opentelemetry import trace
        state = trace.TraceState([("a", "1")])
        span = trace.SpanContext(0x4bf92f3577b34da6a3ce929d0e0e4736, 0xf067aa0ba902b7, True,
                                 trace.TraceFlags(1), state)
        await client.call("now")
        with trace.use_span(trace.NonRecordingSpan(span)):
            await client.call("now")
            with tracing("{OTHER}", "b=2"):
                await client.call("now")
        await client.call("now")

asyncio.run(main())
assert traces == [None, None, ("{PARENT}", "a=1"), ("{OTHER}", "b=2"), None], traces
print("good")
"""


@pytest.mark.covers("OBS-07")
async def test_the_current_opentelemetry_span_is_sent_if_opentelemetry_is_imported() -> None:
    pytest.importorskip("opentelemetry.trace")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OPEN_TELEMETRY],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout == "good\n", done.stderr
