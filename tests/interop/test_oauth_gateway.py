"""Our client logs in to a `fairlead gateway` process with `[auth]` at a real authorization server.

Each test runs in both eras, through `/mcp` and `/mcp/NAME`.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.errors import FairleadError
from tests.support.gateway_servers import free_port, program
from tests.support.login_command import Fairlead
from tests.support.oidc_provider import Provider, running_provider

LIMIT = 50.0
FILE = """
listen = "127.0.0.1:{port}"
[servers.red]
command = "{command}"
args = {args}
[views.part]
deny = ["*_secret"]
[auth]
issuer = "{issuer}"
public_url = "http://127.0.0.1:{port}"
scopes = ["mcp:basic"]
"""
ADMINS = '[[auth.rules]]\ngroups = "admins"\nclient = "admins"\n'
READERS = '[[auth.rules]]\ngroups = "readers"\nclient = "readers"\nview = "part"\n'
WRITERS = '[[auth.rules]]\ngroups = "readers"\nscopes = "mcp:write"\nclient = "writers"\n'
PLACES = pytest.mark.parametrize("path", ["/mcp", "/mcp/red"])
ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


class Place:
    """A running gateway and its authorization server."""

    def __init__(self, provider: Provider, file: Path, base: str, head: str) -> None:
        self.provider = provider
        self._file = file
        self._base = base
        self._head = head

    def write(self, *rules: str) -> None:
        """Replace the rules in the file, which the gateway reads periodically."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(self._head + "".join(rules))
        fresh.replace(self._file)

    def login(self, name: str, path: str) -> OAuthAuthorizer:
        """Return the credentials of a user who logs in when a token is needed."""
        return OAuthAuthorizer(self._base + path, authorize=self.provider.user(name))

    def client(self, login: OAuthAuthorizer, era: str, path: str) -> Any:
        config = MCPClientConfig(protocol_version=era, timeout_seconds=LIMIT, max_retries=0)
        return MCPClient.connect_http(self._base + path, config, auth=login)


@contextlib.asynccontextmanager
async def scene(folder: Path, *rules: str, **options: Any) -> AsyncIterator[Place]:
    """Run an authorization server and a gateway with these rules."""
    file, port = folder / "gateway.toml", free_port()
    async with asyncio.timeout(LIMIT), running_provider(**options) as provider:
        entry = program("red")
        head = FILE.format(
            port=port,
            command=sys.executable,
            args=json.dumps(entry["args"]),
            issuer=provider.issuer,
        )
        place = Place(provider, file, f"http://127.0.0.1:{port}", head)
        place.write(*rules)
        gateway = await Fairlead(folder / "home").start("gateway", str(file), "--json")
        try:
            assert gateway.stdout is not None
            await gateway.stdout.readuntil(b"\n}\n")
            yield place
        finally:
            gateway.terminate()
            await gateway.communicate()


async def tools(client: MCPClient) -> set[str]:
    """Return the names of the tools, without the name of their server."""
    listed = await client.list_tools(cache=False)
    return {tool["name"].removeprefix("red_") for tool in listed}


async def refusal(client: MCPClient) -> str:
    """Return the error of a request, or an empty text."""
    try:
        await tools(client)
    except FairleadError as exc:
        return str(exc)
    return ""


def named(path: str, tool: str) -> str:
    return f"red_{tool}" if path == "/mcp" else tool


@pytest.mark.covers("AUT-06")
@PLACES
@ERAS
async def test_a_user_who_logs_in_gets_the_view_of_the_matching_rule(
    path: str, era: str, tmp_path: Path
) -> None:
    async with scene(tmp_path, ADMINS, READERS) as place:
        for name, sees in (("alice", True), ("bob", False)):
            async with place.client(place.login(name, path), era, path) as client:
                assert {"who"} <= await tools(client)
                assert ("secret" in await tools(client)) is sees
                found = await client.call(named(path, "who"), {})
                assert found.text.startswith("red ")
                if not sees:
                    with pytest.raises(FairleadError, match="secret"):
                        await client.call(named(path, "secret"), {})
        assert [one.url.count("mcp%3Abasic") for one in place.provider.visits] == [1, 1]


@PLACES
@ERAS
async def test_a_user_without_a_rule_is_refused_after_one_login(
    path: str, era: str, tmp_path: Path
) -> None:
    async with scene(tmp_path, ADMINS) as place:
        with pytest.raises(FairleadError) as caught:
            async with place.client(place.login("bob", path), era, path):
                pass
        assert "This gateway has no rule for your access token" in str(caught.value)
        assert len(place.provider.visits) == 1


@PLACES
@ERAS
async def test_changed_rules_apply_to_connected_users(path: str, era: str, tmp_path: Path) -> None:
    async with scene(tmp_path, ADMINS, READERS) as place:
        login = place.login("bob", path)
        async with place.client(login, era, path) as client:
            assert "secret" not in await tools(client)
            place.write(ADMINS, READERS.replace('view = "part"\n', ""))
            while "secret" not in await tools(client):
                await asyncio.sleep(0.05)  # the gateway looks at its file periodically
            place.write(ADMINS)
            while "no rule for your access token" not in await refusal(client):
                await asyncio.sleep(0.05)
            place.write(ADMINS, READERS)
            while (again := await refusal(client)) and "no rule" in again:
                await asyncio.sleep(0.05)
        async with place.client(login, era, path) as client:
            assert "secret" not in await tools(client)
        assert len(place.provider.visits) == 1


@PLACES
@ERAS
async def test_an_expiring_token_is_renewed_within_a_session(
    path: str, era: str, tmp_path: Path
) -> None:
    """The client renews a short-lived token after half of its lifetime."""
    async with scene(tmp_path, ADMINS, ttl=2) as place:
        async with place.client(place.login("alice", path), era, path) as client:
            while (await place.provider.counts()).get("refresh_token 200", 0) < 2:
                assert "secret" in await tools(client)
                await asyncio.sleep(0.1)  # nothing reports the age of a token
            assert "secret" in await tools(client)
        counts = await place.provider.counts()
        assert (counts["authorization_code 200"], len(place.provider.visits)) == (1, 1)


@PLACES
@ERAS
async def test_a_first_login_requests_the_scope_of_a_rule(
    path: str, era: str, tmp_path: Path
) -> None:
    async with scene(tmp_path, ADMINS, WRITERS) as place:
        async with place.client(place.login("bob", path), era, path) as client:
            assert "secret" in await tools(client)
            await client.call(named(path, "who"), {})
        asked = ["mcp%3Awrite" in visit.url for visit in place.provider.visits]
        assert asked == [True]


@PLACES
@ERAS
async def test_a_new_rule_with_a_scope_makes_a_connected_client_request_it(
    path: str, era: str, tmp_path: Path
) -> None:
    async with scene(tmp_path, ADMINS, READERS) as place:
        async with place.client(place.login("bob", path), era, path) as client:
            assert "secret" not in await tools(client)
            place.write(ADMINS, WRITERS)
            while "secret" not in await tools(client):
                await asyncio.sleep(0.05)  # the gateway looks at its file periodically
        asked = ["mcp%3Awrite" in visit.url for visit in place.provider.visits]
        assert asked == [False, True]
