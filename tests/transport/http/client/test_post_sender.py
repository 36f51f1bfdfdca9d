"""POSTs that a server accepts or refuses."""

from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    HttpError,
    RpcError,
)
from fairlead.wire import Notification
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    raw_server,
)


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
