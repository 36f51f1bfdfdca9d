"""Responses to POSTs: bodies, and streams that break."""

import asyncio
import gzip
import json

import pytest

from fairlead.errors import (
    NoAnswer,
    RemoteProtocolError,
    RpcError,
    TransportError,
)
from tests.support.scripted_http_server import (
    SESSION,
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
    stateless_server,
)


@pytest.mark.covers("HTT-04")
async def test_a_stream_that_never_ends_after_the_answer_is_ended_by_us() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.result_event({})
        try:
            await call.gone()
        finally:
            hung_up.set()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(3)))
        async with asyncio.timeout(5):
            await hung_up.wait()


@pytest.mark.covers("HTT-12")
@pytest.mark.parametrize(
    ("body", "kind"), [(b"<html>hello", "text/html"), (b'{"jsonrpc":', "application/json")]
)
async def test_a_body_that_is_no_json_is_the_parse_error(body: bytes, kind: str) -> None:
    async def rest(call: Call) -> None:
        await call.answer(200, body, Content_Type=kind)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="not valid JSON") as failed:
            await peer.request("tools/list")
        assert failed.value.code == -32700
        assert ("text/html" in str(failed.value)) == (kind == "text/html")


async def test_json_under_another_name_is_read_all_the_same() -> None:
    async def rest(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": {}}
        await call.answer(200, json.dumps(answer), Content_Type="text/plain; charset=utf-8")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        assert bytes(await peer.request("tools/list")) == b"{}"


@pytest.mark.covers("HTT-05")
@pytest.mark.parametrize("how", ["end", "cut", "character"])
async def test_a_stateless_stream_without_an_answer_loses_the_request(how: str) -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b"id: 1\nretry: 1\ndata: \n\n")
        if how == "character":
            whole = json.dumps(
                {"jsonrpc": "2.0", "id": 2, "result": {"x": "ü"}}, ensure_ascii=False
            )
            data = f"data: {whole}\n\n".encode()
            await call.chunk(data[: data.index("ü".encode()) + 1])
        if how == "end":
            await call.end()
        else:
            call.cut()

    async with (
        raw_server(stateless_server(rest)) as server,
        connected(server.url, "stateless") as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2") as lost:
            await peer.request("tools/call", {"name": "x"})
        assert lost.value.delivered
        assert len(server.of("tools/call")) == 1
        assert server.of("GET") == []
        assert peer.connected


@pytest.mark.covers("HTT-05", "TRN-12")
async def test_a_handshake_stream_is_taken_up_again_after_a_cut() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            await call.chunk(b"id: s_0\nretry: 60\ndata: \n\n")
            await call.event(progress(1), id="s_1")
            data = 'data: {"grü'.encode()
            await call.chunk(data[:-1])  # in the middle of a character
            call.cut()
        elif len(server.of("GET")) <= 2:
            cuts.append(asyncio.get_running_loop().time())
            await call.answer(503)
        elif len(server.of("GET")) == 3:
            await call.begin_events()
            await call.event(progress(2), id="s_2")
            await call.end()
        else:
            await call.begin_events()
            request = server.of("tools/call")[0].message
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"late": True}}
            await call.event(answer, id="s_3")
            await call.end()

    cuts: list[float] = []
    host = Host()
    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, host=host, listen=False) as (peer, _),
    ):
        began = asyncio.get_running_loop().time()
        assert bytes(await peer.request("tools/call", {"name": "x"})) == b'{"late": true}'
        assert cuts[0] - began >= 0.06  # as long as the server asked us to wait
        seen = [call.headers["last-event-id"] for call in server.of("GET")]
        assert seen == ["s_1", "s_1", "s_1", "s_2"]
        assert server.of("GET")[0].headers["mcp-session-id"] == SESSION
        assert len(server.of("tools/call")) == 1
        assert host.told.qsize() == 2


@pytest.mark.covers("HTT-05")
@pytest.mark.parametrize("ids", [True, False])
async def test_a_stream_that_cannot_be_taken_up_again_loses_the_request(ids: bool) -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            await call.chunk(b"id: 7\nretry: 1\ndata: \n\n" if ids else b": nothing\n\n")
            await call.end()
        else:
            await call.answer(404, "gone")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, listen=False) as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2"):
            await peer.request("tools/call", {"name": "x"})
        assert len(server.of("GET")) == (1 if ids else 0)
        assert len(server.of("tools/call")) == 1


async def test_an_answer_without_a_body_is_none() -> None:
    async def rest(call: Call) -> None:
        await call.accept()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, listen=False) as (peer, _),
    ):
        with pytest.raises(NoAnswer):
            await peer.request("tools/list")


@pytest.mark.parametrize("packed", [True, False])
async def test_a_body_that_unpacks_to_too_much_is_refused(packed: bool) -> None:
    async def rest(call: Call) -> None:
        body = b'{"jsonrpc":"2.0","id":2,"result":{"x":"' + b" " * 5_000_000 + b'"}}'
        if packed:
            await call.answer(200, gzip.compress(body), Content_Encoding="gzip")
        else:
            await call.answer(200, body)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, limit=1_000_000) as (peer, _),
    ):
        with pytest.raises(TransportError, match="over the limit of 1000000 bytes"):
            await peer.request("tools/list")
        assert peer.connected


async def test_a_stream_that_unpacks_to_too_much_is_refused() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events(Content_Encoding="gzip")
        await call.chunk(gzip.compress(b"data: " + b"x" * 5_000_000 + b"\n\n"))
        await call.end()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, limit=1_000_000) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="over the limit of 1000000"):
            await peer.request("tools/list")


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": 99, "result": {}},
    ],
    ids=["notification", "another answer"],
)
async def test_a_body_that_is_no_answer_loses_the_request(message: dict[str, object]) -> None:
    async def rest(call: Call) -> None:
        await call.answer(200, json.dumps(message), Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2"):
            await peer.request("tools/list")
        assert peer.connected


async def test_an_error_without_an_id_is_the_answer() -> None:
    async def rest(call: Call) -> None:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -5, "message": "no"}}
        await call.answer(200, json.dumps(error), Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError) as refused:
            await peer.request("tools/list")
        assert (refused.value.code, refused.value.message) == (-5, "no")


async def test_a_body_that_cannot_be_read_is_kept_with_the_error() -> None:
    body = b"x" * 300

    async def rest(call: Call) -> None:
        await call.answer(200, body, Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError) as failed:
            await peer.request("tools/list")
    error = failed.value
    assert (error.excerpt, error.size, error.frame) == (repr(body[:200]), 300, body)
