"""Headers of requests, and new credentials after a refusal."""

import asyncio
import json

import pytest

from fairlead.errors import (
    HttpError,
)
from fairlead.protocol.headers import ParamHeader
from fairlead.transport.http.client.http_channel import HttpChannel
from tests.support.scripted_http_server import (
    SESSION,
    Call,
    Host,
    connected,
    echo,
    handshake_server,
    handshake_server_with_listening,
    peer_over,
    progress,
    raw_server,
    shake_hands,
    stateless_server,
)


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
async def test_a_configured_session_id_is_not_sent() -> None:
    async with (
        raw_server(handshake_server(echo, session=None)) as server,
        connected(server.url, headers={"Mcp-Session-Id": "mine"}) as (peer, _),
    ):
        await peer.request("tools/list")
    assert "tools/list" in [call.rpc for call in server.calls]
    assert not any("mcp-session-id" in call.headers for call in server.calls)
    assert "DELETE" not in [call.rpc for call in server.calls]


@pytest.mark.covers("HTT-02")
async def test_stateless_requests_mirror_method_name_and_arguments_in_headers() -> None:
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
async def test_headers_can_be_added_to_a_single_request() -> None:
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


@pytest.mark.covers("HTT-19")
@pytest.mark.parametrize("fresh", [{"authorization": "Bearer new"}, None, {"Authorization": "x"}])
async def test_new_credentials_are_used_for_one_retry(fresh: dict[str, str] | None) -> None:
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


@pytest.mark.covers("HTT-19")
async def test_notifications_and_listening_streams_are_repeated_with_new_credentials() -> None:
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
async def test_concurrent_refused_requests_share_new_credentials() -> None:
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
        # Only for the ten requests in progress; other requests waited for a slot.
        assert len(asked) <= 10


async def test_a_failing_auth_hook_does_not_hide_the_refusal() -> None:
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
