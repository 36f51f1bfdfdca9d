"""Clients of other projects log in to our server and gateway with a real authorization server.

The official Python SDK, FastMCP, the TypeScript SDK and `mcp-remote` find the authorization server
through our challenge and metadata, register themselves, call tools, renew their tokens and request
more scopes. At the gateway, the tools are in a view that a rule gives to the token.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.auth.server import token_claims
from fairlead.auth.server.server_auth import ServerAuth
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import GatewayFile, read_gateway_file
from tests.support.gateway_servers import serving as serving_at
from tests.support.gateway_servers import until
from tests.support.http_server import serving
from tests.support.interop.oauth_peers import PEERS
from tests.support.oidc_provider import Provider, running_provider

LIMIT = 50.0
LIFETIME = 3  # seconds of a token in tests of renewals
RENEW_AFTER_REFUSAL = ("TypeScript", "mcp-remote")  # the other clients renew by their clock

PLACES = ["server", "/mcp", "/mcp/plain"]
BY_EVERY_PEER = pytest.mark.parametrize("peer", PEERS)
AT_EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
# mcp-remote opens no page after it has connected. A changed rule of a gateway ends sessions, and
# the official client opens no new one.
STEP_UPS = [
    (peer, place)
    for peer in PEERS
    for place in PLACES
    if peer != "mcp-remote" and (peer != "mcp, handshake" or place == "server")
]
pytestmark = pytest.mark.filterwarnings("ignore:Using in-memory token storage")

GATEWAY = """
[views.users]
deny = ["*_hidden"]
[auth]
issuer = "{issuer}"
public_url = "{url}"
scopes = ["mcp:basic"]
[[auth.rules]]
scopes = "{scope}"
client = "users"
view = "users"
"""


class Place:
    """A protected endpoint, its authorization server, and the prefix of its tools.

    `restrict` makes the scope `mcp:write` necessary for the tool `write`.
    """

    def __init__(
        self, provider: Provider, url: str, prefix: str, restrict: Callable[[], Awaitable[object]]
    ) -> None:
        self.provider, self.url, self.prefix, self.restrict = provider, url, prefix, restrict

    async def grants(self) -> dict[str, int]:
        """Return the number of successful token requests by grant."""
        counts = await self.provider.counts()
        grants = ("authorization_code", "refresh_token")
        return {grant: counts.get(f"{grant} 200", 0) for grant in grants}


def protected_server(issuer: str) -> MCPServer:
    server = MCPServer("protected", auth=ServerAuth(issuer=issuer, scopes=["mcp:basic"]))

    @server.tool()
    async def whoami(ctx: Context) -> str:
        return str(ctx.subject)

    @server.tool(scopes=["mcp:write"])
    async def write() -> str:
        return "written"

    return server


def plain_server() -> MCPServer:
    """Return a server without authorization, for a gateway."""
    server = MCPServer("plain")

    @server.tool()
    async def whoami() -> str:
        return "alice"

    @server.tool()
    async def write() -> str:
        return "written"

    @server.tool()
    async def hidden() -> str:
        return "hidden"

    return server


@contextlib.asynccontextmanager
async def protected_gateway(provider: Provider, folder: Path, path: str) -> AsyncIterator[Place]:
    """Run a gateway with a section `[auth]` and one server."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url, source = f"http://127.0.0.1:{port}", folder / "gateway.toml"

    def write(scope: str) -> GatewayFile:
        source.write_text(GATEWAY.format(issuer=provider.issuer, url=url, scope=scope))
        return read_gateway_file(source)

    file = write("mcp:basic")
    access = ClientAccess(file)
    async with (
        serving(plain_server()) as upstream,
        Gateway(settings=file.settings, views=file.views, roles=file.role_views) as gateway,
        serving_at(gateway, port=port, verify_token=access.verify, auth=access.access()),
    ):
        await gateway.connect({"plain": {"type": "http", "url": upstream.url}})
        await until(lambda: gateway.is_ready)
        prefix = "plain_" if path == "/mcp" else ""
        yield Place(
            provider, url + path, prefix, lambda: access.follow(write("mcp:write"), gateway)
        )


@contextlib.asynccontextmanager
async def protected(place: str, folder: Path, **options: Any) -> AsyncIterator[Place]:
    """Run an authorization server and our server or gateway."""

    async def restrict() -> None:
        """Do nothing: the tool of the server always needs the scope."""

    async with asyncio.timeout(LIMIT), running_provider(**options) as provider:
        if place == "server":
            async with serving(protected_server(provider.issuer)) as web:
                yield Place(provider, web.url, "", restrict)
        else:
            async with protected_gateway(provider, folder, place) as scene:
                yield scene


@pytest.mark.covers("AUT-06")
@BY_EVERY_PEER
@AT_EVERY_PLACE
async def test_a_client_logs_in_and_renews_its_token(
    peer: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer in RENEW_AFTER_REFUSAL:
        monkeypatch.setattr(token_claims, "LEEWAY", 0.0)  # expired tokens are refused at once
    async with protected(place, tmp_path, ttl=LIFETIME) as scene:
        async with PEERS[peer](scene.url, tmp_path) as call:
            tool = f"{scene.prefix}whoami"
            while (await scene.grants())["refresh_token"] < 2:
                assert await call(tool) == "alice"
                await asyncio.sleep(0.2)  # nothing reports the expiry of a token
            assert await call(tool) == "alice"
        assert (await scene.grants())["authorization_code"] == 1


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(("peer", "place"), STEP_UPS)
async def test_a_client_requests_the_scopes_that_a_tool_needs(
    peer: str, place: str, tmp_path: Path
) -> None:
    """At the server, `write` needs another scope; at the gateway, a changed rule needs it."""
    async with protected(place, tmp_path, anyScope=True) as scene:
        async with PEERS[peer](scene.url, tmp_path) as call:
            assert await call(f"{scene.prefix}whoami") == "alice"
            assert (await scene.grants())["authorization_code"] == 1
            await scene.restrict()
            assert await call(f"{scene.prefix}write") == "written"
            assert await call(f"{scene.prefix}whoami") == "alice"
        assert (await scene.grants())["authorization_code"] == 2
