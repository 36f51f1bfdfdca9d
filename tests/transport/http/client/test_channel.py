"""The client's end of Streamable HTTP, against servers that behave in every way but well."""

import asyncio
import contextlib
import gzip
import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
    TransportError,
)
from fairlead.protocol.headers import ParamHeader
from fairlead.transport.http.client.channel import HttpChannel
from fairlead.wire import Notification
from tests.support.scripted_http_server import (
    SESSION,
    Call,
    Host,
    connected,
    handshake_server,
    handshake_server_with_listening,
    peer_over,
    raw_server,
    shake_hands,
    stateless_server,
)


async def echo(call: Call) -> None:
    await call.result({"said": call.message.get("params")})


def progress(n: int) -> dict[str, Any]:
    params = {"level": "info", "data": n}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


# What is sent


@pytest.mark.covers("HTT-01", "HTT-02", "HTT-03", "HTT-07", "PRO-04", "PRO-05")
async def test_requests_are_posts_with_the_headers_of_the_session() -> None:
    async with raw_server(handshake_server(echo)) as server:
        headers = {"X-Team": "blue", "ACCEPT": "text/html", "mcp-session-id": "mine"}
        headers["MCP-Protocol-Version"] = "2024-11-05"
        channel = HttpChannel(server.url, headers=headers)
        assert server.connections == 0
        async with peer_over(channel) as peer:
            await shake_hands(peer)
            result = await peer.request("tools/list", {"cursor": "x"})
        assert json.loads(bytes(result)) == {"said": {"cursor": "x"}}
        first, told, listening, asked, deleted = server.calls
        assert [c.rpc for c in server.calls] == [
            *("initialize", "notifications/initialized", "GET", "tools/list", "DELETE"),
        ]
        assert (first.method, first.path) == ("POST", "/mcp")
        assert "mcp-protocol-version" not in first.headers
        assert "mcp-session-id" not in first.headers
        for call in (told, asked):
            assert call.headers["content-type"] == "application/json"
            assert call.headers["accept"] == "application/json, text/event-stream"
            assert call.headers["x-team"] == "blue"
        for call in (told, listening, asked, deleted):
            assert call.headers["mcp-session-id"] == SESSION
            assert call.headers["mcp-protocol-version"] == "2025-11-25"
        assert "mcp-method" not in asked.headers


@pytest.mark.covers("PRO-05")
async def test_without_a_session_of_the_server_there_is_none() -> None:
    async with (
        raw_server(handshake_server(echo, session=None)) as server,
        connected(server.url, headers={"Mcp-Session-Id": "mine"}) as (peer, _),
    ):
        await peer.request("tools/list")
    assert "tools/list" in [call.rpc for call in server.calls]
    assert not any("mcp-session-id" in call.headers for call in server.calls)
    assert "DELETE" not in [call.rpc for call in server.calls]


@pytest.mark.covers("HTT-02")
async def test_stateless_requests_mirror_their_members() -> None:
    async with (
        raw_server(stateless_server(echo)) as server,
        connected(server.url, "stateless", headers={"Mcp-Name": "no", "MCP-param-x": "no"}) as (
            peer,
            channel,
        ),
    ):
        marks = (ParamHeader("Region", ("region",), "string"), ParamHeader("N", ("n",), "integer"))
        channel.param_headers_of = lambda name: marks if name == "grüße" else ()
        arguments = {"region": "zürich", "n": None}
        await peer.request("tools/call", {"name": "grüße", "arguments": arguments})
        call = server.calls[-1]
        assert call.headers["mcp-protocol-version"] == "2026-07-28"
        assert call.headers["mcp-method"] == "tools/call"
        assert call.headers["mcp-name"] == "=?base64?Z3LDvMOfZQ==?="
        assert call.headers["mcp-param-region"] == "=?base64?esO8cmljaA==?="
        assert "mcp-param-n" not in call.headers
        assert "mcp-param-x" not in call.headers
        assert "mcp-session-id" not in call.headers


@pytest.mark.covers("TRN-02")
async def test_one_request_may_have_headers_of_its_own() -> None:
    async with (
        raw_server(handshake_server(echo)) as server,
        connected(server.url, headers={"X-A": "1"}) as (peer, channel),
    ):
        extra = {"x-a": "2", "Accept": "no"}
        await peer.request("tools/list", on_sent=lambda i: channel.add_headers(i, extra))
        await peer.request("tools/list")
        one, other = server.of("tools/list")
        assert (one.headers["x-a"], other.headers["x-a"]) == ("2", "1")
        assert one.headers["accept"] == "application/json, text/event-stream"


async def test_a_body_of_several_megabytes_arrives() -> None:
    async with (
        raw_server(handshake_server(echo)) as server,
        connected(server.url) as (peer, _),
    ):
        result = await peer.request("tools/list", {"x": "y" * 3_000_000})
        assert len(bytes(result)) > 3_000_000


async def test_a_unix_socket_is_reached(tmp_path: Any) -> None:
    path = str(tmp_path / "a b.sock")
    async with raw_server(handshake_server(echo), path) as server:
        async with connected(f"unix://{path.replace(' ', '%20')}#/there") as (peer, _):
            await peer.request("tools/list")
        assert {call.path for call in server.calls} == {"/there"}


async def test_a_path_is_sent_as_it_is_written() -> None:
    async with raw_server(handshake_server(echo)) as server:
        url = f"http://ada:p%40ss@127.0.0.1:{server.port}/a%2Fb/../c?x=%7E"
        async with connected(url) as (peer, _):
            await peer.request("tools/list")
        assert server.calls[0].path == "/a%2Fb/../c?x=%7E"
        assert server.calls[0].headers["authorization"] == "Basic YWRhOnBAc3M="


@pytest.mark.covers("HTT-06")
async def test_a_notification_is_accepted_with_any_success() -> None:
    async def rest(call: Call) -> None:
        if call.message["params"]["n"] == 3:
            await call.answer(400, "no")
        else:
            await call.answer((200, 202, 204)[call.message["params"]["n"]])

    host = Host()
    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        channel.on_error = host.errors.append
        for n in range(4):
            await peer.notify("notifications/x", {"n": n})
        await server.wait_for("notifications/x", 4)
        with pytest.raises(HttpError, match="HTTP 400: no"):
            await channel.tell(Notification("notifications/x", Raw(b'{"n":3}')))
        assert [call.message["params"]["n"] for call in server.of("notifications/x")][:4] == [
            *(0, 1, 2, 3)
        ]
        assert [str(error) for error in host.errors] == ["HTTP 400: no"]


@pytest.mark.covers("HTT-10")
async def test_a_notification_that_nobody_accepts_times_out() -> None:
    async def rest(call: Call) -> None:
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (_, channel),
    ):
        with pytest.raises(RequestTimeout, match="Notify timeout after 50ms"):
            await channel.tell(Notification("notifications/x"), timeout=0.05)


async def test_requests_wait_for_notifications_that_were_sent_before() -> None:
    accepted = asyncio.Event()

    async def rest(call: Call) -> None:
        if call.rpc == "notifications/x":
            await accepted.wait()
            await call.accept()
        else:
            await call.result({"after": accepted.is_set()})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        await peer.notify("notifications/x")
        asking = asyncio.create_task(peer.request("tools/list"))
        await server.wait_for("notifications/x")
        accepted.set()
        assert bytes(await asking) == b'{"after": true}'


# What comes back


@pytest.mark.covers("HTT-04", "SSE-02", "SSE-07")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_messages_of_a_stream_are_delivered_as_they_come(era: str) -> None:
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
        assert server.connections <= 3  # the connection of an ended stream is used again


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


@pytest.mark.covers("HTT-15")
async def test_requests_of_the_server_are_answered_by_posts() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            await call.event({"jsonrpc": "2.0", "id": "q1", "method": "roots/list"})
            answer = await server.wait_for("POST")
            await call.result_event({"heard": answer.message})
            await call.end()
        else:
            await call.accept()

    async with raw_server(handshake_server(rest)) as server:
        async with connected(server.url) as (peer, _):
            result = json.loads(bytes(await peer.request("tools/call", {"name": "x"})))
        assert result["heard"] == {"jsonrpc": "2.0", "id": "q1", "result": {"roots": []}}
        assert server.of("POST")[0].headers["mcp-session-id"] == SESSION


@pytest.mark.covers("HTT-16")
async def test_full_pools_do_not_block_answers_and_cancellations() -> None:
    """Ten calls wait for answers that the client owes."""
    answers = asyncio.Queue[Any]()

    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            question = {"jsonrpc": "2.0", "id": call.message["id"], "method": "roots/list"}
            await call.event(question)
            await call.result_event({"n": (await answers.get())["id"]})
            await call.end()
        else:
            answers.put_nowait(call.message)
            await call.accept()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=3) as (peer, _),
    ):
        calls = [peer.request("tools/call", {"name": "x"}) for _ in range(9)]
        assert len(await asyncio.gather(*calls)) == 9


@pytest.mark.covers("HTT-16")
async def test_at_most_so_many_calls_are_made_at_once_over_kept_connections() -> None:
    running = most = 0

    async def rest(call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        await call.result({})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=4) as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(40)))
        assert most <= 4
        assert server.connections <= 6


@pytest.mark.covers("TRN-13")
async def test_senders_are_asked_to_wait_when_much_is_waiting() -> None:
    go_on = asyncio.Event()

    async def rest(call: Call) -> None:
        await go_on.wait()
        await call.result({})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, channel),
    ):
        big = {"x": "y" * 400_000}
        calls = [asyncio.create_task(peer.request("tools/list", big)) for _ in range(6)]
        await server.wait_for("tools/list")
        while not channel.congested:
            await asyncio.sleep(0)
        draining = asyncio.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        go_on.set()
        await asyncio.gather(*calls, draining)
        assert not channel.congested


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


@pytest.mark.covers("HTT-12")
async def test_an_event_that_cannot_be_read_fails_its_request_only() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event("{this is no json")
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="not valid JSON"):
            await peer.request("tools/list")
        assert peer.connected


async def test_json_under_another_name_is_read_all_the_same() -> None:
    async def rest(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": {}}
        await call.answer(200, json.dumps(answer), Content_Type="text/plain; charset=utf-8")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        assert bytes(await peer.request("tools/list")) == b"{}"


async def test_answers_may_come_on_other_streams_and_in_batches() -> None:
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


# Streams that break


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


async def test_a_connection_that_breaks_loses_one_request() -> None:
    async def rest(call: Call) -> None:
        call.cut()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(ChannelClosed, match="without an answer|broke") as lost:
            await peer.request("tools/list")
        assert lost.value.delivered
        assert peer.connected


async def test_nobody_there_means_nothing_was_sent() -> None:
    async with raw_server(echo) as server:
        url = server.url
    async with peer_over(HttpChannel(url)) as peer:
        with pytest.raises(ConnectFailed, match="Could not connect to 127.0.0.1") as failed:
            await peer.request("initialize", {})
        assert not failed.value.delivered


async def test_what_is_no_http_is_an_error() -> None:
    async def rest(call: Call) -> None:
        await call.raw(b"220 mail.example.com ESMTP\r\n")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(TransportError, match="does not speak HTTP properly"):
            await peer.request("initialize", {})


# Too much


async def test_an_endless_event_is_refused_without_being_kept() -> None:
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


# Refusals


@pytest.mark.covers("HTT-11")
async def test_a_refusal_is_the_http_error() -> None:
    async def rest(call: Call) -> None:
        headers = {"WWW_Authenticate": 'Bearer realm="x"', "Mcp_Auth_Server": "https://a.example"}
        await call.answer(401, "who are you?", **headers)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(HttpError) as refused:
            await peer.request("tools/list")
        error = refused.value
        assert str(error) == (
            'HTTP 401: who are you? [WWW-Authenticate: Bearer realm="x"; '
            "Mcp-Auth-Server: https://a.example]"
        )
        assert (error.status, error.www_authenticate) == (401, 'Bearer realm="x"')


@pytest.mark.covers("HTT-11", "DEC-08")
@pytest.mark.parametrize("request_id", ["own", None, "absent", "server-error"])
@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_an_error_envelope_counts_with_any_status(status: int, request_id: Any) -> None:
    async def rest(call: Call) -> None:
        error = {"code": -32601, "message": "no such method"}
        given = call.message["id"] if request_id == "own" else request_id
        envelope = {"jsonrpc": "2.0", "id": given, "error": error}
        if request_id == "absent":
            del envelope["id"]
        await call.json(envelope, status)

    if status == 200 and request_id == "server-error":
        return  # an answer to something else
    async with (
        raw_server(handshake_server(rest, session=None)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError) as refused:
            await peer.request("tools/list")
        assert (refused.value.code, refused.value.message) == (-32601, "no such method")


@pytest.mark.covers("HTT-20")
async def test_retry_after_can_be_read() -> None:
    async def rest(call: Call) -> None:
        await call.answer(429, "slowly", Retry_After="7")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(HttpError) as refused:
            await peer.request("tools/list")
        assert (refused.value.retry_after, refused.value.delivered) == (7.0, False)


@pytest.mark.covers("HTT-19")
@pytest.mark.parametrize("fresh", [{"authorization": "Bearer new"}, None, {"Authorization": "x"}])
async def test_new_credentials_are_tried_once(fresh: dict[str, str] | None) -> None:
    async def rest(call: Call) -> None:
        if call.headers.get("authorization") == "Bearer new":
            await call.result({})
        else:
            await call.answer(401, "no")

    asked: list[HttpError] = []

    async def renew(error: HttpError) -> dict[str, str] | None:
        asked.append(error)
        return fresh

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, headers={"Authorization": "Bearer old"}) as (peer, channel),
    ):
        channel.on_auth_error = renew
        if fresh == {"authorization": "Bearer new"}:
            await peer.request("tools/list")
            await peer.request("tools/list")
        else:
            with pytest.raises(HttpError, match="HTTP 401"):
                await peer.request("tools/list")
        assert len(asked) == 1
        tries = [call.headers["authorization"] for call in server.of("tools/list")]
        expected = {
            "Bearer new": ["Bearer old", "Bearer new", "Bearer new"],
            "x": ["Bearer old", "x"],
        }
        assert tries == expected.get(next(iter((fresh or {"": ""}).values())), ["Bearer old"])


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [307, 308])
async def test_redirects_that_keep_the_method_are_followed_at_home(status: int) -> None:
    async def rest(call: Call) -> None:
        if call.path == "/mcp":
            await call.answer(status, Location="/there?x=1")
        else:
            await handshake_server(echo)(call)

    async with raw_server(rest) as server:
        async with connected(server.url, headers={"Authorization": "Bearer s"}) as (peer, _):
            await peer.request("tools/list")
        assert server.calls[1].path == "/there?x=1"
        assert server.calls[1].headers["authorization"] == "Bearer s"
        assert server.calls[1].message["method"] == "initialize"
        detours = sum(call.path == "/mcp" for call in server.calls)
        assert detours == (1 if status == 308 else 5)  # a permanent one is remembered


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_post_is_never_made_a_get(status: int) -> None:
    async def rest(call: Call) -> None:
        await call.answer(status, Location="/there")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(HttpError, match="would turn a POST into a GET") as refused:
            await peer.request("initialize", {})
        assert refused.value.status == status
        assert [call.path for call in server.calls] == ["/mcp"]


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [301, 307, 308])
async def test_nothing_is_carried_to_another_origin(status: int) -> None:
    async with raw_server(echo) as other:

        async def rest(call: Call) -> None:
            await call.answer(status, Location=other.url)

        async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
            with pytest.raises(HttpError, match="another origin"):
                await peer.request("initialize", {})
        assert other.calls == []


async def test_circles_of_redirects_end() -> None:
    async def rest(call: Call) -> None:
        await call.answer(307, Location="/mcp")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(HttpError, match="redirects"):
            await peer.request("initialize", {})


# Giving up


@pytest.mark.covers("HTT-10")
async def test_a_stateless_request_is_cancelled_by_hanging_up() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        try:
            await call.begin_events()
            await call.gone()
        finally:
            hung_up.set()

    async with raw_server(stateless_server(rest)) as server:
        async with connected(server.url, "stateless") as (peer, _):
            with pytest.raises(RequestTimeout, match="SSE response timeout after 100ms"):
                await peer.request("tools/call", {"name": "x"}, timeout=0.1)
            async with asyncio.timeout(5):
                await hung_up.wait()
        assert [call.rpc for call in server.calls] == ["server/discover", "tools/call"]


@pytest.mark.covers("HTT-10")
async def test_a_handshake_request_is_cancelled_by_a_notification_and_hanging_up() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        try:
            await call.gone()
        finally:
            hung_up.set()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, _),
    ):
        asking = asyncio.create_task(peer.request("tools/call", {"name": "x"}))
        never_sent = asyncio.create_task(peer.request("tools/call", {"name": "y"}))
        await server.wait_for("tools/call")
        never_sent.cancel()
        asking.cancel()
        told = await server.wait_for("notifications/cancelled")
        assert told.message["params"]["requestId"] == 2
        async with asyncio.timeout(5):
            await hung_up.wait()
        assert len(server.of("notifications/cancelled")) == 1
        assert len(server.of("tools/call")) == 1


@pytest.mark.covers("HTT-09")
async def test_closing_ends_streams_and_the_session() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "DELETE":
            await call.gone()  # a server that never answers does not hold us
        await call.begin_events()
        await call.gone()

    async def all_of_it(call: Call) -> None:
        await (rest(call) if call.rpc in ("GET", "DELETE") else handshake_server(rest)(call))

    async with raw_server(all_of_it) as server:
        host = Host()
        async with connected(server.url, host=host) as (peer, channel):
            asking = asyncio.create_task(peer.request("tools/call", {"name": "x"}))
            await server.wait_for("tools/call")
            async with asyncio.timeout(5):
                await peer.close()
            with pytest.raises(ChannelClosed, match="Transport closed"):
                await asking
            with pytest.raises(ChannelClosed):
                channel.send(Notification("x"))
        assert server.of("DELETE")[0].headers["mcp-session-id"] == SESSION
        assert len(host.ends) == 1


async def test_notifications_still_leave_when_we_close() -> None:
    async with raw_server(handshake_server(Call.accept)) as server:
        async with connected(server.url) as (peer, _):
            await peer.notify("notifications/last")
        assert len(server.of("notifications/last")) == 1


# Listening


@pytest.mark.covers("HTT-13", "HTT-14")
async def test_the_listening_stream_is_restored() -> None:
    async def rest(call: Call) -> None:
        count = len(server.of("GET"))
        await call.begin_events()
        await call.event(progress(count), id=f"g_{count}", retry="1")
        if count == 3:
            await call.gone()
        elif count == 2:
            call.cut()
        else:
            await call.end()

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (_, channel),
    ):
        channel.on_error = host.errors.append
        told = [await host.told.get() for _ in range(3)]
        assert [json.loads(bytes(n.params))["data"] for n in told] == [1, 2, 3]  # type: ignore[arg-type]
        seen = [call.headers.get("last-event-id") for call in server.of("GET")]
        assert seen == [None, "g_1", "g_2"]
        assert server.of("GET")[0].headers["accept"] == "text/event-stream"
        assert [type(error) for error in host.errors] == [ChannelClosed]


@pytest.mark.covers("HTT-13")
@pytest.mark.parametrize("status", [405, 400, 500])
async def test_a_refused_listening_stream_is_not_asked_for_again(status: int) -> None:
    async def rest(call: Call) -> None:
        await (call.answer(status) if call.rpc == "GET" else call.result({}))

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        channel.on_error = host.errors.append
        await peer.request("tools/list")
        assert channel._listener.task is not None
        await asyncio.wait((channel._listener.task,))
        assert len(server.of("GET")) == 1
        assert host.errors == []


@pytest.mark.covers("HTT-13")
async def test_listening_can_be_turned_off() -> None:
    async with raw_server(handshake_server(echo)) as server:
        async with connected(server.url, listen=False) as (peer, _):
            await peer.request("tools/list")
        assert server.of("GET") == []


@pytest.mark.covers("HTT-14")
async def test_a_listening_stream_that_cannot_be_restored_ends_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.http.client.listen_stream.TRIES", 2)
    monkeypatch.setattr("fairlead.transport.http.client.listen_stream.SHORTEST", 0.01)

    async def rest(call: Call) -> None:
        if len(server.of("GET")) == 1:
            await call.begin_events()
            call.cut()
        else:
            await call.answer(503)

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (peer, _),
    ):
        end = await peer.wait_closed()
        assert "cannot be restored" in str(end)
        assert len(host.ends) == 1


@pytest.mark.covers("HTT-12")
async def test_an_unreadable_event_on_the_listening_stream_is_reported() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event("{no json")
        await call.event(progress(1))
        await call.gone()

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host),
    ):
        await host.told.get()
        assert [type(error) for error in host.errors] == [RemoteProtocolError]


# Sessions that are forgotten


@pytest.mark.covers("HTT-08")
async def test_a_forgotten_session_is_renewed_once_for_all() -> None:
    sessions: list[str] = []

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.rpc == "GET":
            await call.answer(405)
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            error = {"code": -32600, "message": "Session not found"}
            await call.json({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        elif "id" in call.message:
            await call.result({"n": call.message["id"]})
        else:
            await call.accept()

    async with raw_server(handle) as server, connected(server.url) as (peer, channel):
        renewals: list[bool] = []
        channel.on_renewed = lambda: renewals.append(True)
        await peer.request("logging/setLevel", {"level": "info"})
        await peer.request("resources/subscribe", {"uri": "a:1"})
        await peer.request("resources/subscribe", {"uri": "a:2"})
        await peer.request("resources/unsubscribe", {"uri": "a:1"})
        before = len(server.calls)
        sessions.append("another")
        results = await asyncio.gather(*(peer.request("tools/list") for _ in range(5)))
        assert [json.loads(bytes(r))["n"] for r in results] == [6, 7, 8, 9, 10]
        assert renewals == [True]
        assert len(server.of("initialize")) == 2
        again = server.of("initialize")[1]
        assert "mcp-session-id" not in again.headers
        assert again.message["params"] == server.of("initialize")[0].message["params"]
        restored = [
            (call.rpc, call.message.get("params"))
            for call in server.calls[before:]
            if call.rpc not in ("tools/list", "initialize", "GET")
        ]
        assert restored == [
            ("notifications/initialized", None),
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "a:2"}),
        ]
        assert channel.session_id == "s2"


@pytest.mark.covers("HTT-08")
async def test_a_second_404_is_final() -> None:
    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        # The same id again would look like a session that somebody else has renewed.
        with pytest.raises(HttpError, match="HTTP 404: who\\?"):
            await peer.request("tools/list")
        assert len(server.of("tools/list")) == 2


async def test_a_404_that_speaks_of_the_method_is_an_answer() -> None:
    async def rest(call: Call) -> None:
        error = {"code": -32601, "message": "no such method"}
        await call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, 404)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError, match="no such method"):
            await peer.request("tools/list")
        assert len(server.of("initialize")) == 1


async def test_a_server_that_gives_no_new_session_is_reported() -> None:
    refuse = False

    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async def handle(call: Call) -> None:
        if call.rpc == "initialize" and refuse:
            await call.answer(503, "later")
        else:
            await handshake_server(rest)(call)

    async with raw_server(handle) as server, connected(server.url) as (peer, _):
        refuse = True
        with pytest.raises(HttpError, match="HTTP 404: who\\?") as lost:
            await peer.request("tools/list")
        assert isinstance(lost.value.__cause__, HttpError)
        assert lost.value.__cause__.status == 503


# Fragments


@pytest.mark.covers("SSE-04", "DEC-24", "DEC-06")
async def test_parts_of_a_result_are_put_together() -> None:
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
async def test_parts_without_an_end_are_attached_to_the_failure() -> None:
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
async def test_an_error_event_is_the_refusal() -> None:
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


@pytest.mark.covers("HTT-08", "HTT-13")
@pytest.mark.parametrize("who", ["request", "listener"])
async def test_a_renewed_session_is_listened_to(who: str) -> None:
    """Whoever notices first that the session is gone: the new one is heard."""
    sessions: list[str] = []
    forget = asyncio.Event()

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            await call.answer(404)
        elif call.rpc == "GET":
            await call.begin_events()
            await call.event(progress(len(sessions)), id=f"g{len(sessions)}", retry="1")
            if who == "listener" and len(sessions) == 1:
                await forget.wait()
                await call.end()
            else:
                await call.gone()
        elif "id" in call.message:
            await call.result({})
        else:
            await call.accept()

    host = Host()
    async with (
        raw_server(handle) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        await host.told.get()
        sessions.append("another")
        forget.set()
        if who == "request":
            await peer.request("tools/list")
        told = await host.told.get()
        assert json.loads(bytes(told.params))["data"] == 3  # type: ignore[arg-type]
        assert channel.session_id == "s2"
        assert "last-event-id" not in server.of("GET")[-1].headers
        assert len(server.of("initialize")) == 2
        await peer.request("tools/list")


async def test_a_subscription_is_not_counted_and_ends_when_it_is_cancelled() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        if call.rpc == "subscriptions/listen":
            await call.begin_events()
            await call.event(progress(1))
            await call.gone()
            hung_up.set()
        else:
            await call.result({})

    host = Host()
    async with (
        raw_server(stateless_server(rest)) as server,
        connected(server.url, "stateless", host, pool_size=1) as (peer, _),
    ):
        listening = asyncio.create_task(peer.request("subscriptions/listen", {}, timeout=0))
        await host.told.get()
        await peer.request("tools/list")
        listening.cancel()
        async with asyncio.timeout(5):
            await hung_up.wait()


async def test_it_works_on_the_plain_loop_too(loop_kind: str) -> None:
    async with (
        raw_server(stateless_server(echo)) as server,
        connected(server.url, "stateless") as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(20)))


async def test_answers_may_come_on_the_listening_stream() -> None:
    """Some servers take every POST with a 202."""
    listening: list[Call] = []

    async def rest(call: Call) -> None:
        if call.rpc == "GET":
            listening.append(call)
            await call.begin_events()
            await call.gone()
        else:
            await call.accept()
            await listening[0].event({"jsonrpc": "2.0", "id": call.message["id"], "result": {}})

    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        assert bytes(await peer.request("tools/list")) == b"{}"


@pytest.mark.covers("HTT-19")
async def test_notifications_and_listening_are_repeated_with_new_credentials_too() -> None:
    async def rest(call: Call) -> None:
        if call.headers.get("authorization") != "Bearer new":
            await call.answer(401)
        elif call.rpc == "GET":
            await call.begin_events()
            await call.event(progress(1))
            await call.gone()
        else:
            await call.accept()

    async def handle(call: Call) -> None:
        inner = handshake_server_with_listening(rest)
        await (rest(call) if call.rpc == "notifications/initialized" else inner(call))

    asked: list[int] = []

    def renew(error: HttpError) -> dict[str, str]:
        asked.append(error.status)
        return {"Authorization": "Bearer new"}

    host = Host()
    async with raw_server(handle) as server:
        channel = HttpChannel(server.url)
        channel.on_auth_error = renew
        async with peer_over(channel, host) as peer:
            await shake_hands(peer)
            await host.told.get()
        assert asked == [401]
        assert len(server.of("notifications/initialized")) == 2


@pytest.mark.covers("HTT-19")
async def test_many_refused_requests_share_new_credentials() -> None:
    async def rest(call: Call) -> None:
        if call.headers.get("authorization") == "Bearer new":
            await call.result({})
        else:
            await call.answer(401)

    async def renew(error: HttpError) -> dict[str, str]:
        asked.append(error)
        return {"Authorization": "Bearer new"}

    asked: list[HttpError] = []
    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, channel),
    ):
        channel.on_auth_error = renew
        await asyncio.gather(*(peer.request("tools/list") for _ in range(20)))
        assert len(asked) <= 10  # those that were under way; the others waited for a slot


async def test_a_hook_that_fails_does_not_hide_the_refusal() -> None:
    async def rest(call: Call) -> None:
        await call.answer(403, "no")

    def renew(error: HttpError) -> None:
        raise RuntimeError("oops")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, channel),
    ):
        channel.on_auth_error = renew
        with pytest.raises(HttpError, match="HTTP 403: no"):
            await peer.request("tools/list")


@pytest.mark.covers("TRN-06")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_nothing_is_left_after_requests_that_end_in_every_way(era: str) -> None:
    async def rest(call: Call) -> None:
        n = call.message["id"]
        match n % 6:
            case 0:
                await call.result({})
            case 1:
                await call.answer(500, "no")
            case 2:
                call.cut()
            case 3:
                await call.begin_events()
                await call.result_event({})
                await call.end()
            case 4:
                await call.begin_events()
                await call.gone()
            case 5:
                await call.gone()

    wrapped = handshake_server(rest) if era == "handshake" else stateless_server(rest)
    async with (
        raw_server(wrapped) as server,
        connected(server.url, era, pool_size=5) as (peer, channel),
    ):

        async def one(n: int) -> None:
            with contextlib.suppress(FairleadError):
                await peer.request("tools/list", timeout=0.02 * (n % 10) + 0.005)

        tasks = [asyncio.create_task(one(n)) for n in range(150)]
        for n, task in enumerate(tasks):
            if n % 7 == 0:
                task.cancel()
            elif n % 10 == 0:
                await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert channel._receiver.pending == {}
        async with asyncio.timeout(5):
            for _ in range(5):
                await channel._slots.take(1)  # every slot is free again
        assert not channel.congested
        assert peer.connected
