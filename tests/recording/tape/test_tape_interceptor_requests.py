"""Tests that each outcome of a request is recorded once and leaves no pending request."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Gateway
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.recording.tape import TapeReader, TapeWriter, decode_entry
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import BOTH, LIMIT, config, make, serving, until
from tests.support.raw_relay import ASKED, scene

GONE = "notifications/cancelled"


def recorded(recorder: Recorder) -> list[tuple[Any, Any, bool]]:
    """Return the description, the related request and the stopped flag of each entry.

    Also check that the recorder has no pending requests.
    """
    assert not recorder._under_way
    assert not recorder._alone
    recorder.tape.close()
    found = []
    for entry in TapeReader(recorder.tape.path):
        message = decode_entry(entry)
        kind = message.get("method") or ("error" if "error" in message else "result")
        about = message.get("id", (message.get("params") or {}).get("requestId"))
        found.append((kind, about, entry.stopped))
    return [one for one in found if "initialize" not in one[0] and one[0] != "ping"]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(TapeWriter(tmp_path / "one"))


@pytest.mark.parametrize("capabilities", [None, ASKED], ids=["without a task", "in a task"])
async def test_the_cancellation_of_a_request_is_recorded_once(
    recorder: Recorder, capabilities: Any
) -> None:
    async with scene(interceptors=[recorder]) as place:
        client = await place.session(capabilities)
        server = await place.server()
        await client.sync()  # with no message in flight, the call needs no task
        call = client.ask("tools/call", {"name": "x"})
        await server.method("tools/call")
        client.tell(GONE, {"requestId": call, "reason": "enough"})
        await server.method(GONE)
        client.tell(GONE, {"requestId": call, "reason": "too late"})
        await client.sync()
        left = client.ask("tools/call", {"name": "y"})
        await server.method("tools/call")
        await client.close()  # without a cancellation
        await server.method(GONE)
    about = [one for one in recorded(recorder) if one[1] in (call, left)]
    assert about == [
        *(("tools/call", call, False), (GONE, call, False)),
        *(("tools/call", left, False), (GONE, left, False)),
    ]


class Stubborn:
    """An interceptor that suppresses cancellation, and fails or refuses depending on the tool's
    name.
    """

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == GONE:
            raise RpcError(-32000, "go on")
        if exchange.target == "fails":
            raise ValueError("broken")
        if exchange.target == "refuses":
            raise RpcError(-32000, "no", {"cannot": "be written"})
        return await proceed(exchange)


async def test_the_end_of_a_request_that_ignores_its_cancellation_is_recorded_once(
    recorder: Recorder,
) -> None:
    async with scene(interceptors=[recorder, Stubborn()]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        client.tell(GONE, {"requestId": call})
        await client.sync()
        server.reply(request, {"content": []})
        async with asyncio.timeout(LIMIT):
            while recorder._under_way:
                await asyncio.sleep(0)
        for name in ("fails", "refuses"):
            failed = client.ask("tools/call", {"name": name}, name)
            assert "error" in await client.answer_to(failed)
    assert [one for one in recorded(recorder) if one[1] in (call, "fails", "refuses")] == [
        *(("tools/call", call, False), (GONE, call, True), ("result", call, False)),
        *(("tools/call", "fails", False), ("error", "fails", False)),
        *(("tools/call", "refuses", False), ("error", "refuses", False)),
    ]


class Slow:
    """An interceptor that takes some time to clean up after a cancellation."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        except asyncio.CancelledError:
            await self.go.wait()
            raise


async def test_an_id_may_be_reused_while_the_cancelled_request_cleans_up(
    recorder: Recorder,
) -> None:
    slow = Slow()
    async with scene("stateless", interceptors=[recorder, slow]) as place:
        client = await place.client()
        ask = {"id": 7, "method": "tools/call", "params": {"name": "x", "_meta": _stamp()}}
        client.send(ask)
        server = await place.server()
        await server.method("tools/call")
        client.tell(GONE, {"requestId": 7})
        await server.method(GONE)
        client.send(ask)
        request = await server.method("tools/call")
        server.reply(request, {"resultType": "complete", "content": []})
        await client.answer_to(7)
        slow.go.set()
        async with asyncio.timeout(LIMIT):
            while any(one.calls for one in place.relay.pool.connections):
                await asyncio.sleep(0)
    assert recorded(recorder) == [
        *(("tools/call", 7, False), (GONE, 7, False)),
        *(("tools/call", 7, False), ("result", 7, False)),
    ]


def _stamp() -> dict[str, Any]:
    key = "io.modelcontextprotocol/"
    return {f"{key}protocolVersion": "2026-07-28", f"{key}clientCapabilities": {}}


async def test_a_server_request_with_the_id_of_a_client_request_is_recorded_separately(
    recorder: Recorder,
) -> None:
    """Client and server both count their request ids from one."""
    server = MCPServer("asks", interceptors=[recorder])

    @server.tool()
    async def ask(ctx: Context) -> str:
        for _ in range(5):  # so that one request has the id of the call
            await ctx.roots()
        return "done"

    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(
            server, config(), on_roots=lambda: [{"uri": "file:///x"}]
        ) as client,
    ):
        assert (await client.call("ask")).text == "done"
    said = recorded(recorder)
    asked = [about for kind, about, _ in said if kind == "roots/list"]
    assert len(asked) == 5
    for about in asked:
        assert said.count(("result", about, False)) >= 1
    [call] = [about for kind, about, _ in said if kind == "tools/call"]
    assert call in asked, "a server request must have the id of the call"


@pytest.mark.parametrize("version", BOTH)
async def test_a_nested_call_of_a_gateway_tool_is_not_recorded_for_the_client(
    recorder: Recorder, version: str
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[recorder], search=True) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_http(url, config(version)) as client:
            inside = {"name": "red_speak", "arguments": {"text": "hello"}}
            assert (await client.call("call_tool", inside)).text == "hello"
    said = recorded(recorder)
    [(_, call, _)] = [one for one in said if one[0] == "tools/call"]
    assert said.count(("result", call, False)) == 1
