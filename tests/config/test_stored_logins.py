"""Stored logins of configured servers, in managers and gateways."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPManager
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


async def test_the_error_of_a_server_without_a_login_names_the_command() -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        entry = {"type": "http", "url": server.url, "auth": {"type": "oauth"}}
        async with MCPManager() as manager:
            report = await manager.connect_servers({"notes": entry})
        assert "run `fairlead login notes`" in str(report.errors[0])


def test_a_configured_header_is_used_without_oauth() -> None:
    entry = MCPHttpServerConfig(url=URL, headers={"authorization": "Bearer x"}, auth=True)
    assert authorizer_for(entry) is None


def test_programs_have_no_authorizer() -> None:
    assert authorizer_for(MCPStdioServerConfig(command="x", auth=True)) is None


def test_a_server_without_logins_loads_no_oauth() -> None:
    assert authorizer_for(MCPHttpServerConfig(url=URL)) is None


def test_an_invalid_block_is_reported() -> None:
    entry = MCPHttpServerConfig(url=URL, oauth={"client": "x"})
    with pytest.raises(ConfigError, match="unknown member of an auth block 'client'"):
        authorizer_for(entry)
