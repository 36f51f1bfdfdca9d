"""Clients that disconnect before their session is open."""

import asyncio
import json

import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.support.http_server import LIMIT, introduction, make_server, serving


@pytest.mark.covers("GTW-05")
async def test_a_disconnect_during_initialize_leaves_no_session() -> None:
    begun, go_on, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "initialize" and not begun.is_set():
            begun.set()
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                gone.set()
                raise
        return await proceed(exchange)

    plain = make_server()
    server = MCPServer(plain.config, interceptors=[hold])
    async with asyncio.timeout(LIMIT), serving(server, max_sessions=1) as web:
        port = int(web.url.split(":")[2].split("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(introduction()).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await begun.wait()
        writer.close()
        await gone.wait()  # the session and its requests were terminated
        # The terminated session does not count towards the limit.
        answer = await web.post(introduction())
        assert answer.status == 200
