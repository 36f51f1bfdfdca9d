"""Requests with a repeated security-relevant header are rejected, not interpreted."""

import asyncio

import pytest

from tests.support.gateway_servers import LIMIT, make
from tests.support.http_server import serving


@pytest.mark.attack(
    "a second `Authorization`, `Host` or `Mcp-Session-Id` header in a GET or DELETE request",
    "security-relevant headers may occur only once",
    "400, and the session is unchanged",
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    "name", ["Authorization", "Host", "Mcp-Session-Id", "MCP-Protocol-Version", "Origin"]
)
async def test_a_repeated_security_header_is_rejected_in_get_and_delete_requests(
    method: str, name: str
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("one"), verify_token=lambda token: token) as web,
    ):
        web.http.headers["Authorization"] = "Bearer bob"
        session = await web.initialize()
        port = web.url.split(":")[2].split("/")[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        fields = {
            "Host": "localhost",
            "Authorization": "Bearer bob",
            "Mcp-Session-Id": session.headers["Mcp-Session-Id"],
            "MCP-Protocol-Version": "2025-11-25",
            "Origin": "http://localhost",
            "Accept": "text/event-stream",
            "Connection": "close",
        }
        lines = [f"{method} /mcp HTTP/1.1", f"{name}: x", *(f"{k}: {v}" for k, v in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        assert (await session.call("who")).status == 200
