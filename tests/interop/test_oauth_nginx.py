"""A gateway with `[auth]` behind nginx, which ends TLS: public URLs, proofs and cookies."""

import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.auth import OAuthAuthorizer, OAuthSettings
from fairlead.auth.challenge import parse_challenges
from fairlead.transport.http.client.http1.http_client import _usual
from tests.support.certificates import self_signed
from tests.support.gateway_servers import free_port, program
from tests.support.interop.nginx import program as nginx
from tests.support.interop.nginx import proxied
from tests.support.login_command import Fairlead
from tests.support.oidc_provider import Provider, running_provider

LIMIT = 50.0
FILE = """
listen = "127.0.0.1:{port}"
[servers.red]
command = "{command}"
args = {args}
[auth]
issuer = "{issuer}"
public_url = "{public}"
dpop = "{dpop}"
scopes = ["mcp:basic"]
[[auth.rules]]
client = "users"
"""
# The forwarded headers are false, as an attacker could send them through a careless proxy.
SETTINGS = (
    "proxy_http_version 1.1",
    "proxy_set_header Host $http_host",
    "proxy_set_header X-Forwarded-Proto http",
    "proxy_set_header X-Forwarded-Host evil.example",
    "proxy_set_header Upgrade $http_upgrade",
    "proxy_set_header Connection $http_connection",
)


class Place(NamedTuple):
    """A gateway behind nginx."""

    provider: Provider
    url: str  # of the merged endpoint, as clients use it
    base: str
    tls: ssl.SSLContext

    def login(self, url: str, **settings: Any) -> OAuthAuthorizer:
        return OAuthAuthorizer(url, OAuthSettings(**settings), authorize=self.provider.user())


@pytest.fixture(autouse=True, scope="module")
def _nginx() -> None:
    nginx()


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Create a certificate that clients in this process trust, and its key."""
    files = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    _usual.cache_clear()
    yield files
    _usual.cache_clear()


@contextlib.asynccontextmanager
async def scene(tls: tuple[Path, Path], dpop: str = "off") -> AsyncIterator[Place]:
    port, folder = free_port(), tls[0].parent
    behind = f"http://127.0.0.1:{port}"
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        proxied(behind, folder, *SETTINGS, tls=tls) as url,
    ):
        base = url.removesuffix("/mcp")
        file = folder / "gateway.toml"
        file.write_text(
            FILE.format(
                port=port,
                command=sys.executable,
                args=json.dumps(program("red")["args"]),
                issuer=provider.issuer,
                public=base,
                dpop=dpop,
            )
        )
        gateway = await Fairlead(folder / "home").start("gateway", str(file), "--json")
        try:
            assert gateway.stdout is not None
            await gateway.stdout.readuntil(b"\n}\n")
            trusted = ssl.create_default_context(cafile=str(tls[0]))
            yield Place(provider, url, base, trusted)
        finally:
            gateway.terminate()
            await gateway.communicate()


async def test_metadata_and_challenges_contain_the_public_urls_of_the_proxy(
    certificate: tuple[Path, Path],
) -> None:
    async with (
        scene(certificate) as place,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=place.tls)) as web,
    ):
        for path in ("/mcp", "/mcp/red"):
            # A cookie does not authenticate a client, and the gateway sets none.
            async with web.post(place.base + path, json={}, headers={"Cookie": "a=b"}) as reply:
                assert reply.status == 401
                assert "Set-Cookie" not in reply.headers
                (challenge,) = parse_challenges(reply.headers["WWW-Authenticate"])
            metadata = f"{place.base}/.well-known/oauth-protected-resource{path}"
            assert challenge.get("resource_metadata") == metadata
            async with web.get(metadata) as reply:
                document = await reply.json()
                assert "Set-Cookie" not in reply.headers
            assert document["resource"] == place.base + path
            assert "evil" not in json.dumps(document)


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("dpop", ["off", "required"])
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_client_logs_in_to_a_gateway_behind_a_proxy(
    dpop: str, era: str, certificate: tuple[Path, Path]
) -> None:
    """The gateway sees plain HTTP; the proofs of the client contain the public URL."""
    config = MCPClientConfig(protocol_version=era, timeout_seconds=LIMIT, max_retries=0)
    async with scene(certificate, dpop) as place:
        for path, tool in (("", "red_who"), ("/red", "who")):
            url = place.url + path
            login = place.login(url)
            async with MCPClient.connect_http(url, config, auth=login) as client:
                assert (await client.call(tool, {})).text.startswith("red ")
            scheme = "DPoP" if dpop == "required" else "Bearer"
            assert login.current("POST", url)["Authorization"].startswith(f"{scheme} ")


@pytest.mark.parametrize("dpop", ["off", "required"])
async def test_a_websocket_is_opened_through_the_proxy(
    dpop: str, certificate: tuple[Path, Path]
) -> None:
    async with scene(certificate, dpop) as place:
        url = f"{place.base}/ws".replace("https", "wss", 1)
        async with MCPClient.connect_websocket(url, auth=place.login(url)) as client:
            assert (await client.call("red_who", {})).text.startswith("red ")
