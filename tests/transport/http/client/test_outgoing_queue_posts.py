"""POSTs that a server accepts or refuses, and their errors."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    HttpError,
    RequestTimeout,
    RpcError,
)
from fairlead.transport.channel import RequestLost
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.wire import Notification, Request, Success
from tests.support.scripted_door import Asked, ScriptedChannel, reply, stream
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    raw_server,
)
from tests.support.virtual_time import VirtualTime


@pytest.mark.covers("HTT-06")
async def test_any_2xx_status_accepts_a_notification_and_400_refuses_it() -> None:
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


@pytest.mark.covers("HTT-11")
async def test_an_error_status_is_raised_as_an_http_error() -> None:
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
async def test_a_json_rpc_error_is_read_with_any_status(status: int, request_id: Any) -> None:
    async def rest(call: Call) -> None:
        error = {"code": -32601, "message": "no such method"}
        given = call.message["id"] if request_id == "own" else request_id
        envelope = {"jsonrpc": "2.0", "id": given, "error": error}
        if request_id == "absent":
            del envelope["id"]
        await call.json(envelope, status)

    if status == 200 and request_id == "server-error":
        return  # a response whose id belongs to another request
    async with (
        raw_server(handshake_server(rest, session=None)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError) as refused:
            await peer.request("tools/list")
        assert (refused.value.code, refused.value.message) == (-32601, "no such method")


@pytest.mark.covers("HTT-20")
async def test_an_http_error_has_the_delay_from_the_retry_after_header() -> None:
    async def rest(call: Call) -> None:
        await call.answer(429, "slowly", Retry_After="7")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(HttpError) as refused:
            await peer.request("tools/list")
        assert (refused.value.retry_after, refused.value.delivered) == (7.0, False)


# Without a network


async def test_the_response_to_a_notification_may_be_a_stream() -> None:
    made = stream()
    made.event({"jsonrpc": "2.0", "method": "notifications/y"})
    made.end()

    async def answer(asked: Asked) -> HttpResponse:
        return made

    async with ScriptedChannel.over(answer) as one:
        await one.channel.tell(Notification("notifications/x"))
        assert await one.got() == Notification("notifications/y")


@pytest.mark.parametrize(
    ("statuses", "hook", "asked", "problem"),
    [
        ([202], {"X-New": "1"}, 1, None),
        ([401, 202], {"X-New": "1"}, 2, None),
        ([403, 202], {"X-New": "1"}, 2, None),
        ([401, 401], {"X-New": "1"}, 2, "HTTP 401"),
        ([400], {"X-New": "1"}, 1, "HTTP 400"),
        ([401], {}, 1, "HTTP 401"),
        ([401], None, 1, "HTTP 401"),
    ],
)
async def test_a_notification_is_repeated_once_with_new_credentials(
    statuses: list[int], hook: dict[str, str] | None, asked: int, problem: str | None
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        return reply(statuses.pop(0))

    async with ScriptedChannel.over(answer) as one:
        one.channel.on_auth_error = None if hook is None else lambda error: hook
        if problem is None:
            await one.channel.tell(Notification("notifications/x"))
        else:
            with pytest.raises(HttpError, match=problem):
                await one.channel.tell(Notification("notifications/x"))
        new = [one.headers.get("x-new") for one in one.door.asked]
        assert new == [None, "1"][:asked]


async def test_a_notification_not_accepted_in_time_raises_a_timeout(
    virtual_time: VirtualTime,
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        await asyncio.sleep(40)
        return reply(202)

    async with ScriptedChannel.over(answer) as one:
        begun = virtual_time.now
        with pytest.raises(RequestTimeout, match="^Notify timeout after 30000ms ") as late:
            await one.channel.tell(Notification("notifications/x"))
        assert virtual_time.now - begun == pytest.approx(30.0)
        assert late.value.seconds == 30.0
        await one.channel.tell(Notification("notifications/x"), timeout=0)
        assert virtual_time.now - begun == pytest.approx(70.0)


ERROR = {"jsonrpc": "2.0", "id": None, "error": {"code": -7, "message": "no"}}


@pytest.mark.parametrize("status", [400, 403])
async def test_only_a_403_response_to_the_probe_is_raised_as_an_http_error(status: int) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        return reply(status, ERROR)

    async with ScriptedChannel.over(answer) as one:
        one.channel.send(Request(5, "server/discover"))
        item = await one.got()
        if status == 403:
            assert (type(item.error), item.error.status) == (HttpError, 403)
        else:
            assert (item.id, item.code) == (5, -7)


@pytest.mark.parametrize(
    ("status", "body", "headers", "http"),
    [
        (400, ERROR, {}, False),
        (403, ERROR, {}, False),
        (403, ERROR, {"WWW_Authenticate": "Bearer"}, True),
        (401, ERROR, {}, True),
        (400, {"other": 1}, {}, True),
        (500, b"", {}, True),
        (404, ERROR, {}, False),
    ],
    ids=["400", "403", "403 authenticate", "401", "no envelope", "500", "404"],
)
async def test_refusals_without_a_json_rpc_error_are_raised_as_http_errors(
    status: int, body: Any, headers: dict[str, str], http: bool
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        return reply(status, body, **headers)

    async with ScriptedChannel.over(answer) as one:
        one.channel.send(Request(5, "tools/list"))
        item = await one.got()
        if http:
            assert (item.request_id, type(item.error)) == (5, HttpError)
            assert item.error.status == status
        else:
            assert (item.id, item.code, item.message) == (5, -7, "no")
        assert len(one.door.asked) == 1


@pytest.mark.parametrize(
    ("statuses", "new", "outcome"),
    [([401, 200], "401", Success), ([403, 200], "403", Success), ([403, 401], "403", RequestLost)],
    ids=["401", "403", "twice"],
)
async def test_a_request_is_repeated_once_with_new_credentials(
    statuses: list[int], new: str, outcome: type
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        body = {"jsonrpc": "2.0", "id": 5, "result": {}}
        status = statuses.pop(0)
        return reply(status, body if status == 200 else b"")

    async with ScriptedChannel.over(answer) as one:
        one.channel.on_auth_error = lambda error: {"X-New": str(error.status)}
        one.channel.send(Request(5, "tools/list"))
        item = await one.got()
        assert type(item) is outcome
        first, second = one.door.asked
        assert "x-new" not in first.headers
        assert second.headers["x-new"] == new
