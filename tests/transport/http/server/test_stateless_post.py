"""What an interceptor waited for was cancelled: that ends a request, and not the server."""

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead import MCPServer
from fairlead.errors import LocalProtocolError, RemoteProtocolError, RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.transport.http.server.stateless_post import failure_of
from fairlead.wire import Request
from tests.support.http_server import LIMIT, call, make_server, serving


@pytest.mark.parametrize("era", ["stateless", "session"])
async def test_an_interceptor_that_waits_for_something_cancelled_has_failed(era: str) -> None:
    async def waits(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other
        return await proceed(exchange)

    server = MCPServer(make_server().config, interceptors=[waits])
    async with asyncio.timeout(LIMIT), serving(server) as web:
        if era == "stateless":
            answer = await web.stateless("tools/call", {"name": "add", "arguments": {}})
        else:
            session = await web.initialize()
            answer = await session.post(call("add"))
        assert answer.status != 503  # which would say that the server ends
        assert answer.error == -32603
        again = await web.stateless("tools/list")
        assert again.status == 200


@pytest.mark.parametrize(
    ("error", "body"),
    [
        (RpcError(-1, "no", {"a": 1}), {"code": -1, "message": "no", "data": {"a": 1}}),
        (
            RpcError(-1, "no", raw=b'{"code":-1,"message":"no","more":2}'),
            {"code": -1, "message": "no", "more": 2},
        ),
        (LocalProtocolError("not now", code=-32600), {"code": -32600, "message": "not now"}),
        (RemoteProtocolError("odd", code=-32700), {"code": -32700, "message": "odd"}),
    ],
    ids=["data", "bytes", "local", "remote"],
)
def test_the_failure_of_a_request_says_what_was_wrong(
    error: RpcError | LocalProtocolError | RemoteProtocolError, body: dict[str, Any]
) -> None:
    made = failure_of(Request(7, "x"), error)
    assert (made.id, made.code, made.message) == (7, body["code"], body["message"])
    assert msgspec.json.decode(made.error) == body
