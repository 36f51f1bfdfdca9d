"""The client's end of Streamable HTTP, against servers that behave in every way but well."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    TransportError,
)
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.wire import Notification
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


async def test_notifications_still_leave_when_we_close() -> None:
    async with raw_server(handshake_server(Call.accept)) as server:
        async with connected(server.url) as (peer, _):
            await peer.notify("notifications/last")
        assert len(server.of("notifications/last")) == 1


async def test_it_works_on_the_plain_loop_too(loop_kind: str) -> None:
    async with (
        raw_server(stateless_server(echo)) as server,
        connected(server.url, "stateless") as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(20)))
