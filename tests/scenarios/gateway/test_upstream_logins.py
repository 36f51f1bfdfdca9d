"""Servers of a gateway that require a login: all clients share the one that the owner stored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.config.stored_logins import own_credential_store
from fairlead.errors import FairleadError
from fairlead.gateway import Gateway
from tests.support.gateway_servers import config, serving, until
from tests.support.http_server import stateless
from tests.support.oidc_provider import Provider, running_provider
from tests.support.protected_server import ProtectedServer, protected_server

LIMIT = 50.0
TOKENS = {"a": "ann", "b": "ben"}
ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
PATHS = pytest.mark.parametrize(("path", "tool"), [("", "sums_add"), ("/sums", "add")])
SUM = {"a": 1, "b": 2}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[tuple[Provider, ProtectedServer, str]]:
    """Run a gateway in front of a protected server, and yield the URL of the gateway."""
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        store = own_credential_store()
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        entry = {"type": "http", "url": server.url, "auth": {"type": "oauth"}}
        async with Gateway() as gateway, serving(gateway, verify_token=TOKENS.get) as url:
            await gateway.connect({"sums": entry})
            await gateway.listed()
            yield provider, server, url


@contextlib.asynccontextmanager
async def two_clients(url: str, era: str) -> AsyncIterator[list[MCPClient]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                MCPClient.connect_http(url, config(era), headers={"Authorization": f"Bearer {one}"})
            )
            for one in TOKENS
        ]


@pytest.mark.slow
@ERAS
@PATHS
async def test_clients_of_a_gateway_share_the_login_of_its_owner_and_its_renewal(
    path: str, tool: str, era: str
) -> None:
    async with scene() as (provider, server, url), two_clients(url + path, era) as clients:
        for client in clients:
            assert (await client.call(tool, SUM)).text == "3"
        [first] = set(server.tokens) - {None}  # a login begins with a request without a token
        assert first not in TOKENS
        assert "refresh_token 200" not in await provider.counts()

        server.revoked.add(str(first))
        calls = [client.call(tool, SUM) for client in clients for _ in range(8)]
        assert {result.text for result in await asyncio.gather(*calls)} == {"3"}
        assert (await provider.counts())["refresh_token 200"] == 1
        assert len(set(server.tokens) - {None}) == 2
        assert len(provider.visits) == 1


async def raw_call(url: str, tool: str) -> tuple[int, str | None, Any]:
    """Call a tool without a session; return status, challenge and body."""
    body, headers = stateless("tools/call", {"name": tool, "arguments": SUM})
    sent = {**headers, "Accept": "application/json, text/event-stream"}
    sent["Authorization"] = "Bearer a"
    async with aiohttp.ClientSession() as web, web.post(url, json=body, headers=sent) as reply:
        return reply.status, reply.headers.get("WWW-Authenticate"), await reply.json()


@pytest.mark.slow
@PATHS
async def test_a_gateway_does_not_forward_the_challenge_of_a_server(
    path: str, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client would log in at the wrong place; only the owner of the gateway can log in."""
    async with scene() as (provider, server, url):
        assert (await raw_call(url + path, tool))[2]["result"]["content"][0]["text"] == "3"
        server.required = {"mcp:write"}
        status, challenge, answer = await raw_call(url + path, tool)
        assert (status not in (401, 403), challenge) == (True, None)
        assert len(provider.visits) == 1
        scopes = "--scope mcp:basic --scope offline_access --scope mcp:write"
        assert answer["error"]["message"] == (
            "server 'sums' requires a login with more scopes: mcp:write; the operator of this "
            f"proxy has to run `fairlead login sums {scopes}`"
        )
        assert (
            f"requires more scopes (mcp:write): run `fairlead login sums {scopes}`" in caplog.text
        )


@pytest.mark.slow
@ERAS
async def test_clients_are_told_that_a_login_is_missing_and_the_owner_how_to_log_in(
    era: str,
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
        Gateway() as gateway,
        serving(gateway, verify_token=TOKENS.get) as url,
    ):
        await gateway.connect({"sums": {"url": server.url, "auth": {"type": "oauth"}}})
        await until(lambda: gateway.upstreams["sums"].state == "failed")
        assert "run `fairlead login sums`" in str(gateway.upstreams["sums"].error)
        async with two_clients(url, era) as clients:
            assert await clients[0].list_tools() == []
        with pytest.raises(FairleadError, match="requires a login"):
            async with two_clients(f"{url}/sums", era) as clients:
                await clients[0].call("add", SUM)
