"""Rules on an endpoint path apply to every spelling of the path."""

import asyncio

import pytest

from fairlead.gateway import Gateway
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.support.gateway_servers import LIMIT, make, until
from tests.support.http_server import serving


@pytest.mark.attack(
    "a POST to `/`, `///` or `/mcp/`, which also reach the endpoint at `/mcp`",
    "`path` is the path of the endpoint that serves the request",
    "rules on `path` apply",
)
@pytest.mark.parametrize("stateless", [True, False])
@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("", "/mcp"),
        ("/", "/mcp"),
        ("///", "/mcp"),
        ("/mcp/", "/mcp"),
        ("/mcp///", "/mcp"),
        ("/mcp/one", "/mcp/one"),
        ("/mcp/one/", "/mcp/one"),
    ],
)
async def test_trailing_slashes_do_not_change_the_path_of_an_endpoint(
    written: str, path: str, stateless: bool
) -> None:
    seen: list[str | None] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange.transport.path)
        return await proceed(exchange)

    async with (
        asyncio.timeout(LIMIT),
        serving(make("one")) as behind,
        Gateway(interceptors=[watch]) as gateway,
        serving(gateway) as web,
    ):
        await gateway.connect({"one": {"type": "http", "url": behind.url}})
        await until(lambda: gateway.is_ready)
        seen.clear()
        web.url = web.url.removesuffix("/mcp") + written
        if stateless:
            await web.stateless("tools/list")
        else:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            await web.post(body, {"MCP-Protocol-Version": "2025-11-25"})
    assert set(seen) == {path}
