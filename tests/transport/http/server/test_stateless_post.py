"""What an interceptor waited for was cancelled: that ends a request, and not the server."""

import asyncio

import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed
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
