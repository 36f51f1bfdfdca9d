"""Tests of the delivery of messages and result fragments that arrive on HTTP streams."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.errors import (
    NoAnswer,
    RemoteProtocolError,
    RpcError,
)
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
    stateless_server,
)


@pytest.mark.covers("HTT-04", "SSE-02", "SSE-07")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_messages_of_an_event_stream_are_delivered_as_they_arrive(era: str) -> None:
    go_on = asyncio.Event()

    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b": hello\n\nevent: strange\ndata: x\n\n")
        await call.event(progress(1))
        await go_on.wait()
        await call.event(progress(2))
        await call.result_event({"x": "grüße"})
        await call.event(progress(3))
        await call.end()

    host = Host()
    wrapped = handshake_server(rest) if era == "handshake" else stateless_server(rest)
    async with (
        raw_server(wrapped) as server,
        connected(server.url, era, host) as (peer, _),
    ):
        asking = asyncio.create_task(peer.request("tools/call", {"name": "x"}))
        first = await host.told.get()
        assert not asking.done()
        go_on.set()
        assert json.loads(bytes(await asking)) == {"x": "grüße"}
        told = [first, await host.told.get(), await host.told.get()]
        assert [json.loads(bytes(n.params))["data"] for n in told] == [1, 2, 3]  # type: ignore[arg-type]
        await peer.request("tools/call", {"name": "y"})
        assert server.connections <= 3  # the connection of an ended stream is reused


@pytest.mark.covers("HTT-12")
async def test_an_unreadable_event_fails_only_its_request() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event("{invalid json")
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="not valid JSON"):
            await peer.request("tools/list")
        assert peer.connected


async def test_responses_may_arrive_on_other_streams_and_in_batches() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "slow/one":
            await call.begin_events()
            await asyncio.gather(server.wait_for("quick/one"), server.wait_for("third/one"))
            ids = [server.of(rpc)[0].message["id"] for rpc in ("quick/one", "third/one")]
            mine = call.message["id"]
            await call.event(
                [{"jsonrpc": "2.0", "id": i, "result": {"of": i}} for i in (*ids, mine)]
            )
            await call.end()
        else:
            await call.begin_events()
            await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        rpcs = ("slow/one", "quick/one", "third/one")
        results = await asyncio.gather(*(peer.request(rpc) for rpc in rpcs))
        assert [json.loads(bytes(r)) for r in results] == [{"of": 2}, {"of": 3}, {"of": 4}]


async def test_an_endless_event_is_rejected_without_being_buffered() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b'data: {"x":"')
        for _ in range(100):
            await call.chunk(b"y" * 10_000)
        await call.chunk(b'"}\n\n')
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, limit=100_000) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="over the limit of 100000"):
            await peer.request("tools/list")


@pytest.mark.covers("SSE-04", "DEC-24", "DEC-06")
async def test_fragments_of_a_result_are_joined() -> None:
    block = {"type": "text", "text": "a"}

    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event({"content": [block]}, event="result")
        await call.event({"content": [block, block]}, event="result")
        done = {"content": [{"type": "text", "text": "z"}], "isError": False}
        envelope = {"jsonrpc": "2.0", "id": call.message["id"], "result": done}
        await call.event(envelope, event="complete")
        await call.end()

    heard: list[Any] = []
    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, channel),
    ):
        channel.on_fragment = lambda request_id, content: heard.append((request_id, content))
        result = json.loads(bytes(await peer.request("tools/call", {"name": "x"})))
        assert [b["text"] for b in result["content"]] == ["a", "a", "a", "z"]
        assert result["isError"] is False
        assert heard == [(2, [block]), (2, [block, block])]


@pytest.mark.covers("SSE-05")
async def test_fragments_without_a_final_event_are_attached_to_the_error() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event({"content": [{"type": "text", "text": "a"}]}, event="result")
        await call.end()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(NoAnswer) as lost:
            await peer.request("tools/call", {"name": "x"})
        assert lost.value.parts == [{"type": "text", "text": "a"}]


@pytest.mark.covers("SSE-04")
async def test_an_error_event_is_the_error_response() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        error = {"code": 7, "message": "broken", "data": [1]}
        envelope = {"jsonrpc": "2.0", "id": call.message["id"], "error": error}
        await call.event(envelope, event="error")
        await call.end()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError) as refused:
            await peer.request("tools/call", {"name": "x"})
        assert (refused.value.code, refused.value.data) == (7, [1])
