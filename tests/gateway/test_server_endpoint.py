"""The endpoint of one server, for clients with and without a restricted view."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead import MCPClient, RpcError
from fairlead.errors import ConnectFailed
from fairlead.gateway import Gateway, View
from tests.support.gateway_servers import BOTH, LIMIT, joining, make, names, serving, until


@asynccontextmanager
async def at_red(version: str, view: View) -> AsyncIterator[MCPClient]:
    """Connect a client with the given view to the endpoint of `red`."""
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway(view=view) as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway.endpoints["red"], version) as client:
            yield client


@pytest.mark.parametrize("version", BOTH)
async def test_a_restricted_client_reaches_only_items_in_its_view(version: str) -> None:
    view = View(deny=("*secret", "red_hello", "red://item/*"))
    async with at_red(version, view) as client:
        assert "who" in await names(client)
        assert "secret" not in await names(client)
        assert (await client.call("who")).text.startswith("red ")
        missing = -32602 if client.protocol_version == "2026-07-28" else -32002
        refused: list[tuple[Any, int, str]] = [
            (client.call_tool("secret", {}), -32602, "Unknown tool: secret"),
            (client.get_prompt("hello", {"city": "x"}), -32602, "Unknown prompt: hello"),
            (client.read_resource("red://item/7"), missing, "Resource not found: red://item/7"),
            (client.complete("prompt", "hello", "city", ""), -32602, "Unknown prompt: hello"),
            (client.request("no/such/method"), -32601, "Method not found: no/such/method"),
        ]
        for request, code, message in refused:
            with pytest.raises(RpcError, match=message) as caught:
                await request
            assert caught.value.code == code


@pytest.mark.parametrize("version", BOTH)
async def test_an_unrestricted_client_gets_the_unchanged_results_of_the_server(
    version: str,
) -> None:
    async with at_red(version, View.everything()) as client:
        assert (await client.call("secret")).text == "the secret of red"
        with pytest.raises(RpcError) as caught:
            await client.request("no/such/method")
        assert (caught.value.data or {}).get("source") != "proxy"


@pytest.mark.parametrize("version", BOTH)
async def test_a_server_outside_the_view_is_reported_as_unknown(version: str) -> None:
    with pytest.raises(ConnectFailed, match="Unknown server: red"):
        async with at_red(version, View(servers=("blue",))):
            pass
