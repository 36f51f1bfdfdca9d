"""Stored logins of configured servers, in managers and gateways."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPManager
from fairlead.auth.client.api_key import ApiKeyAuthorizer
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.config.stored_logins import authorizer_for, own_credential_store
from fairlead.errors import ConfigError
from fairlead.gateway import Gateway
from tests.support.oidc_provider import running_provider
from tests.support.protected_server import ProtectedServer, protected_server

LIMIT = 60.0
URL = "https://h.example/mcp"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))


async def log_in(server: ProtectedServer, authorize: Any) -> None:
    await OAuthAuthorizer(server.url, store=own_credential_store(), authorize=authorize).log_in()


async def test_managers_and_gateways_use_the_stored_login_of_a_server() -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await log_in(server, provider.user())
        entry = {"type": "http", "url": server.url}
        async with MCPManager() as manager:
            report = await manager.connect_servers({"notes": entry})
            assert report.errors == []
            assert [tool.mcp_tool_name for tool in report.tools] == ["add"]
        async with Gateway() as gateway:
            await gateway.connect({"notes": entry})
            await gateway.listed()
            assert gateway.upstreams["notes"].state == "connected"
        assert len(provider.visits) == 1


async def test_the_error_for_a_server_without_a_login_names_the_login_command() -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        entry = {"type": "http", "url": server.url, "auth": {"type": "oauth"}}
        async with MCPManager() as manager:
            report = await manager.connect_servers({"notes": entry})
        assert "run `fairlead login notes`" in str(report.errors[0])


# A server whose tool returns the access token in its environment.
PROGRAM = """
import os
from fairlead import MCPServer
server = MCPServer("local")

@server.tool()
async def token() -> str:
    return os.environ.get("OAUTH_ACCESS_TOKEN", "none")

server.run()
"""


@pytest.mark.covers("AUT-02")
async def test_a_local_program_gets_the_access_token_for_the_resource_in_its_auth_block(
    tmp_path: Path,
) -> None:
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await log_in(server, provider.user())
        [login] = own_credential_store().logins()
        plain = {"command": sys.executable, "args": [str(program)]}
        entries = {
            "without": plain,
            "stored": {**plain, "auth": {"resource": server.url}},
            "own": {
                **plain,
                "auth": {"resource": server.url},
                "env": {"OAUTH_ACCESS_TOKEN": "configured"},
            },
        }
        async with MCPManager() as manager:
            report = await manager.connect_servers(entries)
            found = {tool.mcp_server_name: (await tool.execute()).text for tool in report.tools}
        assert found == {
            "without": "none",
            "stored": login.tokens.access_token,
            "own": "configured",
        }


@pytest.mark.covers("AUT-01", "AUT-02")
async def test_an_api_key_is_stored_by_credential_id_and_sent_as_a_bearer_token() -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        login = await OAuthAuthorizer(server.url, authorize=provider.user()).log_in()
        block = {"type": "apikey", "credentialId": "mine"}
        entry = MCPHttpServerConfig(url=server.url, auth=block)
        key = authorizer_for(entry)
        assert isinstance(key, ApiKeyAuthorizer)
        await key.log_in(login.tokens.access_token)
        [stored] = own_credential_store().logins()
        assert (stored.server, stored.kind) == ("mine", "apikey")
        server.tokens.clear()
        async with MCPManager() as manager:
            report = await manager.connect_servers({"notes": entry})
        assert report.errors == []
        assert set(server.tokens) == {login.tokens.access_token}


@pytest.mark.covers("AUT-01")
async def test_an_auth_block_with_a_token_url_needs_neither_discovery_nor_a_user() -> None:
    service = {
        "client_id": "service",
        "client_secret": "a-secret",
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }
    async with (
        asyncio.timeout(LIMIT),
        running_provider(clients=[service]) as provider,
        protected_server(provider.issuer) as server,
    ):
        block = {
            "type": "oauth",
            "grant": "client_credentials",
            "tokenUrl": f"{provider.issuer}/token",
            "clientId": "service",
            "clientSecret": "a-secret",
            "resource": server.url,
        }
        async with MCPManager() as manager:
            entry = {"type": "http", "url": server.url, "auth": block}
            report = await manager.connect_servers({"notes": entry})
        assert report.errors == []
        assert await provider.counts() == {"client_credentials 200": 1}


def test_a_configured_authorization_header_disables_oauth() -> None:
    entry = MCPHttpServerConfig(url=URL, headers={"authorization": "Bearer x"}, auth=True)
    assert authorizer_for(entry) is None


def test_a_local_program_has_an_authorizer_only_with_an_auth_block() -> None:
    assert authorizer_for(MCPStdioServerConfig(command="x")) is None
    with pytest.raises(ConfigError, match="needs `resource`, the URL that its token is for"):
        authorizer_for(MCPStdioServerConfig(command="x", auth=True))
    block = {"resource": "https://mcp.example/mcp"}
    assert authorizer_for(MCPStdioServerConfig(command="x", auth=block)) is not None


def test_a_server_without_a_login_and_an_auth_block_has_no_authorizer() -> None:
    assert authorizer_for(MCPHttpServerConfig(url=URL)) is None


INVALID_URLS = ("http://[::1", "https://h:99999/mcp", "https://bob:PLANTED/word@h.example/mcp")


@pytest.mark.parametrize("url", INVALID_URLS)
def test_an_invalid_url_is_a_configuration_error_that_quotes_no_password(url: str) -> None:
    for entry in (
        MCPHttpServerConfig(url=url),
        MCPHttpServerConfig(url=url, auth={"type": "apikey"}),
    ):
        with pytest.raises(ConfigError, match="Invalid server URL") as caught:
            authorizer_for(entry, store=own_credential_store())
        assert "PLANTED" not in str(caught.value)


async def test_a_server_with_an_invalid_url_affects_no_other_server() -> None:
    """Logins of all servers are looked up as soon as one is stored."""
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await log_in(server, provider.user())
        entries = {str(number): {"url": url} for number, url in enumerate(INVALID_URLS)}
        async with MCPManager() as manager:
            report = await manager.connect_servers({"notes": {"url": server.url}, **entries})
        assert [tool.mcp_tool_name for tool in report.tools] == ["add"]
        assert len(report.errors) == len(INVALID_URLS)
        assert "PLANTED" not in str(report.errors)


def test_an_invalid_oauth_block_is_reported() -> None:
    entry = MCPHttpServerConfig(url=URL, oauth={"client": "x"})
    with pytest.raises(ConfigError, match="unknown member of an auth block 'client'"):
        authorizer_for(entry)
