"""The client channel of Streamable HTTP, with correct and misbehaving servers."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    TransportError,
)
from fairlead.protocol.headers import ParamHeader
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.wire import Notification, Request, Success
from tests.support.scripted_door import Asked, ScriptedChannel, reply, stream
from tests.support.scripted_http_server import (
    SESSION,
    Call,
    Host,
    connected,
    echo,
    handshake_server,
    peer_over,
    raw_server,
    stateless_server,
)
from tests.support.virtual_time import VirtualTime


async def test_a_body_of_several_megabytes_is_delivered() -> None:
    async with (
        raw_server(handshake_server(echo)) as server,
        connected(server.url) as (peer, _),
    ):
        result = await peer.request("tools/list", {"x": "y" * 3_000_000})
        assert len(bytes(result)) > 3_000_000


async def test_a_client_connects_to_a_unix_socket(tmp_path: Any) -> None:
    path = str(tmp_path / "a b.sock")
    async with raw_server(handshake_server(echo), path) as server:
        async with connected(f"unix://{path.replace(' ', '%20')}#/there") as (peer, _):
            await peer.request("tools/list")
        assert {call.path for call in server.calls} == {"/there"}


async def test_the_path_of_the_url_is_sent_unchanged() -> None:
    async with raw_server(handshake_server(echo)) as server:
        url = f"http://ada:p%40ss@127.0.0.1:{server.port}/a%2Fb/../c?x=%7E"
        async with connected(url) as (peer, _):
            await peer.request("tools/list")
        assert server.calls[0].path == "/a%2Fb/../c?x=%7E"
        assert server.calls[0].headers["authorization"] == "Basic YWRhOnBAc3M="


@pytest.mark.covers("HTT-15")
async def test_responses_to_server_requests_are_sent_in_posts() -> None:
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


async def test_a_broken_connection_fails_only_its_own_request() -> None:
    async def rest(call: Call) -> None:
        call.cut()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(ChannelClosed, match="without a response|broke") as lost:
            await peer.request("tools/list")
        assert lost.value.delivered
        assert peer.connected


async def test_a_request_counts_as_undelivered_if_connecting_fails() -> None:
    async with raw_server(echo) as server:
        url = server.url
    async with peer_over(HttpChannel(url)) as peer:
        with pytest.raises(ConnectFailed, match="Could not connect to 127.0.0.1") as failed:
            await peer.request("initialize", {})
        assert not failed.value.delivered


async def test_an_invalid_http_response_fails_the_request() -> None:
    async def rest(call: Call) -> None:
        await call.raw(b"220 mail.example.com ESMTP\r\n")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(TransportError, match="sent an invalid HTTP response"):
            await peer.request("initialize", {})


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [307, 308])
async def test_redirects_that_keep_method_and_origin_are_followed(status: int) -> None:
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
        assert detours == (1 if status == 308 else 5)  # a permanent redirect is remembered


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_never_turns_a_post_into_a_get(status: int) -> None:
    async def rest(call: Call) -> None:
        await call.answer(status, Location="/there")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(HttpError, match="would turn a POST into a GET") as refused:
            await peer.request("initialize", {})
        assert refused.value.status == status
        assert [call.path for call in server.calls] == ["/mcp"]


@pytest.mark.covers("HTT-18")
@pytest.mark.parametrize("status", [301, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status: int) -> None:
    async with raw_server(echo) as other:

        async def rest(call: Call) -> None:
            await call.answer(status, Location=other.url)

        async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
            with pytest.raises(HttpError, match="another origin"):
                await peer.request("initialize", {})
        assert other.calls == []


async def test_a_redirect_loop_fails_the_request() -> None:
    async def rest(call: Call) -> None:
        await call.answer(307, Location="/mcp")

    async with raw_server(rest) as server, peer_over(HttpChannel(server.url)) as peer:
        with pytest.raises(HttpError, match="redirects"):
            await peer.request("initialize", {})


@pytest.mark.covers("HTT-09")
async def test_closing_the_channel_ends_its_streams_and_the_session() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "DELETE":
            await call.gone()  # a server that never responds does not delay closing
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
            with pytest.raises(ChannelClosed) as refused:
                channel.send(Notification("x"))
            assert refused.value.delivered is False
            with pytest.raises(ChannelClosed) as refused:
                channel.send_success(1, b"{}")
            assert refused.value.delivered is False
            assert channel._tasks == set()
            assert channel._receiver.pending == {}
        assert server.of("DELETE")[0].headers["mcp-session-id"] == SESSION
        assert len(host.ends) == 1


async def test_notifications_are_sent_before_the_channel_closes() -> None:
    async with raw_server(handshake_server(Call.accept)) as server:
        async with connected(server.url) as (peer, _):
            await peer.notify("notifications/last")
        assert len(server.of("notifications/last")) == 1


async def test_the_http_channel_works_on_every_event_loop_implementation(loop_kind: str) -> None:
    async with (
        raw_server(stateless_server(echo)) as server,
        connected(server.url, "stateless") as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(20)))


# Without a network


def stateless(number: int, method: str, **params: Any) -> Request:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    return Request(number, method, Raw(json.dumps({**params, "_meta": meta}).encode()))


def answer_to(asked: Asked) -> HttpResponse:
    if "id" not in asked.message:
        return reply(405 if asked.method == "GET" else 202)
    result = {"protocolVersion": "2025-11-25"} if asked.rpc == "initialize" else {}
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
    return reply(200, answer, **({"Mcp_Session_Id": "s"} if asked.rpc == "initialize" else {}))


async def answering(asked: Asked) -> HttpResponse:
    return answer_to(asked)


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_a_stateless_notification_has_the_protocol_version_of_the_last_request() -> None:
    async with ScriptedChannel.over(answering) as one:
        await one.channel.tell(Notification("first"))
        one.channel.send(stateless(1, "tools/list"))
        await one.got()
        await one.channel.tell(Notification("second"))
        versions = [asked.headers.get("mcp-protocol-version") for asked in one.door.asked]
        assert versions == [None, "2026-07-28", "2026-07-28"]
        assert "mcp-method" not in one.door.asked[2].headers
        one.channel.send(Request(0, "initialize", Raw(b"{}")))
        await one.got(2)
        await one.channel.tell(Notification("third"))
        assert one.door.asked[-1].headers["mcp-protocol-version"] == "2025-11-25"


async def test_headers_may_be_added_to_all_requests_or_to_one_request() -> None:
    async with ScriptedChannel.over(answering, headers={"X-A": "1"}) as one:
        one.channel.send(Request(1, "tools/list"))
        one.channel.add_headers(1, {"X-B": "2"})
        one.channel.add_headers(99, {"X-B": "3"})
        await one.got()
        one.channel._request_headers.configure({"x-a": "4"})
        one.channel.send(Request(2, "tools/list"))
        await one.got(2)
        seen = [(a.headers.get("x-a"), a.headers.get("x-b")) for a in one.door.asked]
        assert seen == [("1", "2"), ("4", None)]


async def test_hooks_for_argument_headers_and_auth_errors_can_be_set() -> None:
    async with ScriptedChannel.over(answering) as one:
        assert one.channel.param_headers_of is None

        def marks(tool: str) -> tuple[ParamHeader, ...]:
            return ()

        one.channel.param_headers_of = marks
        assert one.channel.param_headers_of is marks
        assert one.channel.on_auth_error is None
        one.channel.on_auth_error = hook = lambda error: None
        assert one.channel.on_auth_error is hook


async def test_waits_for_events_is_true_while_the_stream_of_a_request_is_open() -> None:
    made = stream()

    async def answer(asked: Asked) -> HttpResponse:
        return made

    async with ScriptedChannel.over(answer) as one:
        one.channel.send(stateless(1, "tools/call", name="x"))
        assert not one.channel.waits_for_events(1)
        await turns()
        assert one.channel.waits_for_events(1)
        assert not one.channel.waits_for_events(2)
        made.event({"jsonrpc": "2.0", "id": 1, "result": {}})
        await one.got()
        assert one.channel.related_request_id is None, "no delivery in progress"
        assert not one.channel.waits_for_events(1)


async def test_result_fragments_are_reported_to_the_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = stream()
    part = {"type": "text", "text": "a"}

    async def answer(asked: Asked) -> HttpResponse:
        return made

    async with ScriptedChannel.over(answer) as one:
        parts: list[Any] = []

        def hear(request_id: Any, content: list[Any]) -> None:
            parts.append((request_id, content))
            raise ValueError("odd")

        one.channel.on_fragment = hear
        one.channel.send(stateless(1, "tools/call", name="x"))
        made.event({"content": [part]}, event="result")
        made.event({"content": []}, event="complete")
        answered = await one.got()
        assert json.loads(bytes(answered.result))["content"] == [part]
        assert parts == [(1, [part])]
        assert "on_fragment failed" in caplog.text


async def test_a_failing_hook_does_not_affect_the_channel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(asked: Asked) -> HttpResponse:
        return reply(400)

    def boom(error: Exception) -> None:
        raise ValueError("odd")

    async with ScriptedChannel.over(refuse) as one:
        one.channel.on_error = boom
        for _ in range(2):
            one.channel.send(Notification("x"))
            await turns()
        assert caplog.text.count("on_error failed") == 2
        one.channel.on_error = None
        one.channel.send(Notification("x"))
        await turns()


@pytest.mark.parametrize("hook", [True, False])
async def test_a_refused_listening_stream_is_retried_with_new_credentials(hook: bool) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        if asked.method == "GET" and "x-new" not in asked.headers:
            return reply(401)
        return answer_to(asked)

    async with ScriptedChannel.over(answer) as one:
        if hook:
            one.channel.on_auth_error = lambda error: {"X-New": "1"}
        await one.channel.start_listening()
        await turns()
        news = [asked.headers.get("x-new") for asked in one.door.of("GET")]
        assert news == ([None, "1"] if hook else [None])
        assert one.errors == []


async def test_a_404_for_the_listening_stream_renews_the_session() -> None:
    sessions: list[str] = []

    async def answer(asked: Asked) -> HttpResponse:
        if asked.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-11-25"}
            envelope = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
            return reply(200, envelope, Mcp_Session_Id=sessions[-1])
        if asked.method == "GET" and asked.headers.get("mcp-session-id") == "s0":
            return reply(404)
        return answer_to(asked)

    async with ScriptedChannel.over(answer, listen=False) as one:
        one.channel.send(Request(0, "initialize", Raw(b"{}")))
        await one.got()
        await one.channel.start_listening()
        await turns()
        assert [asked.headers["mcp-session-id"] for asked in one.door.of("GET")] == ["s0", "s1"]
        assert one.channel.session_id == "s1"


async def test_drain_returns_when_the_congested_channel_is_closed() -> None:
    async def never(asked: Asked) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with ScriptedChannel.over(never, pool_size=1) as one:
        for number in range(3):
            one.channel.send(stateless(number, "tools/call", x="y" * (1 << 20)))
        await turns()
        assert one.channel.congested
        draining = asyncio.create_task(one.channel.drain())
        await turns()
        assert not draining.done()
        await one.channel.close()
        async with asyncio.timeout(5):
            await draining
        assert not one.channel.congested


async def test_closing_the_channel_ends_its_run_and_all_tasks() -> None:
    async def never(asked: Asked) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with ScriptedChannel.over(never) as one:
        before = asyncio.all_tasks()
        one.channel.send(Request(1, "tools/list"))
        await turns()
        await one.channel.close()
        await one.channel.close()
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert left == []
        assert (one.door.closed, one.delivered) == (True, [])


async def silent(asked: Asked) -> HttpResponse:
    """Send no response."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_at_most_ten_calls_are_sent_concurrently() -> None:
    async with ScriptedChannel.over(silent) as one:
        for number in range(12):
            one.channel.send(Request(number, "tools/call"))
        await turns()
        assert len(one.door.asked) == 10


async def test_the_first_requests_wait_a_second_for_the_listening_stream(
    virtual_time: VirtualTime,
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        return await silent(asked) if asked.method == "GET" else answer_to(asked)

    async with ScriptedChannel.over(answer) as one:
        one.channel.send(Request(0, "initialize", Raw(b"{}")))
        await one.got()
        begun = virtual_time.now
        one.channel.send(Notification("notifications/initialized"))
        one.channel.send(Request(1, "tools/list"))
        await asyncio.sleep(5)
        assert one.door.of("tools/list")[0].at - begun == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [(Notification("n"), 1.0), (Success(1, Raw(b"{}")), 1.0), (Request(1, "tools/list"), 0.0)],
    ids=["notification", "response", "request"],
)
async def test_closing_waits_one_second_for_queued_messages(
    virtual_time: VirtualTime, message: Any, seconds: float
) -> None:
    async with ScriptedChannel.over(silent) as one:
        one.channel.send(message)
        await turns()
        begun = virtual_time.now
        await one.channel.close()
        assert virtual_time.now - begun == pytest.approx(seconds)
