"""Discovery of configured servers and their tools, with real servers."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.auth import MemoryCredentialStore, OAuthAuthorizer
from fairlead.client.connection.era_cache import known_eras
from fairlead.config.configured_servers import configured_servers
from fairlead.config.discovery import load_all_mcp_configs
from fairlead.config.stored_logins import own_credential_store
from fairlead.config.trust import Trust
from fairlead.manager.config_watch import ConfigSnapshot, Reloader
from fairlead.manager.discover_tools import discover_and_load_mcp_tools, discover_mcp_servers
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.tool_session import create_tool_session
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from tests.support.managed_servers import entry
from tests.support.oidc_provider import running_provider
from tests.support.protected_server import protected_server

LIMIT = 20.0


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory, and clear variables that name other folders."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.covers("HST-01", "HST-03")
async def test_tools_of_servers_configured_in_several_hosts_are_merged(
    home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"a": entry(tmp_path, "a")}})
    write(home / ".claude.json", {"mcpServers": {"b": {"type": "stdio", **entry(tmp_path, "b")}}})
    write(home / ".gemini" / "settings.json", "{ broken")
    found = await discover_and_load_mcp_tools(project, cache=MCPToolCache(MemoryStore()))
    async with found.manager as manager:
        assert found.connected_servers == ["a", "b"]
        assert {tool.mcp_server_name for tool in found.tools} == {"a", "b"}
        whoami = manager.get_tool("mcp_a_whoami")
        assert whoami is not None
        assert whoami.path == "mcp:a via Cursor"
        assert any(".gemini" in error["path"] for error in found.errors)
        source = manager.get_source("b")
        assert source is not None
        assert source.level == "user"


async def test_servers_of_a_project_are_not_started_before_it_is_approved(
    home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    write(project / ".mcp.json", {"mcpServers": {"p": entry(tmp_path, "p")}})
    trust = Trust(tmp_path / "approvals.json")
    first = await discover_mcp_servers(project, trust=trust)
    async with first.manager:
        assert first.connected_servers == []
        (error,) = first.errors
        assert "is not approved" in error["error"]
    found = load_all_mcp_configs(project).found["p"]
    # no failure is remembered, so the next start-up waits for the server
    assert not MCPToolCache().failed("p", found.entry)
    trust.approve(found)
    second = await discover_mcp_servers(project, trust=trust)
    async with second.manager:
        assert second.connected_servers == ["p"]
    off = await discover_mcp_servers(project, trust=trust, enable_project_config=False)
    async with off.manager:
        assert off.connected_servers == []


@pytest.mark.covers("HST-02")
async def test_a_failed_discovery_is_reported_and_not_raised(home: Path, tmp_path: Path) -> None:
    found = await discover_and_load_mcp_tools(tmp_path, loading={"hosts": 17})
    async with found.manager:
        assert found.tools == []
        (error,) = found.errors
        assert error["path"] == ".mcp.json"


@pytest.mark.covers("HST-04", "HST-42")
async def test_a_tool_session_gets_the_tools_of_servers_that_connect_late(
    home: Path, tmp_path: Path
) -> None:
    write(
        home / ".cursor" / "mcp.json",
        {
            "mcpServers": {
                "quick": entry(tmp_path, "quick"),
                "late": entry(tmp_path, "late", "slow", "0.8"),
            }
        },
    )
    session = await create_tool_session(
        tmp_path, cache=MCPToolCache(MemoryStore()), startup="background"
    )
    async with session:
        assert session.mcp_manager is not None
        await until(lambda: {t.mcp_server_name for t in session.mcp_tools} == {"quick", "late"})


@pytest.mark.covers("HST-04")
async def test_a_tool_session_uses_its_logins_and_logs_errors_of_servers(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryCredentialStore()
    tools = MemoryStore()
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        place = home / ".cursor" / "mcp.json"
        servers = {"safe": {"url": server.url}, "gone": {"url": "http://127.0.0.1:1/mcp"}}
        write(place, {"mcpServers": servers})
        write(tmp_path / ".mcp.json", {"mcpServers": {"project": entry(tmp_path, "p")}})
        session = await create_tool_session(
            tmp_path, auth_storage=store, cache=MCPToolCache(tools), enable_project_config=False
        )
        async with session:
            assert [tool.mcp_server_name for tool in session.mcp_tools] == ["safe"]
            assert session.mcp_manager is not None
            assert session.mcp_manager.get_connection_status("project") == "disconnected"
        assert "gone" in caplog.text
        assert "project" not in caplog.text
        # Without the store there is no login.
        async with await create_tool_session(
            tmp_path, cache=MCPToolCache(MemoryStore()), enable_project_config=False
        ) as other:
            assert other.mcp_tools == []
        assert "requires a login" in caplog.text


@pytest.mark.covers("HST-04")
@pytest.mark.parametrize("connect", [discover_and_load_mcp_tools, create_tool_session])
async def test_a_renewed_login_is_kept_in_the_given_storage_only(
    connect: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(home / "fairlead"))
    store = MemoryCredentialStore()
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        [login] = store.logins()
        tokens = replace(login.tokens, expires_at=1.0)
        store.save(replace(login, tokens=tokens))
        write(home / ".cursor" / "mcp.json", {"mcpServers": {"safe": {"url": server.url}}})
        found = await connect(tmp_path, auth_storage=store, enable_project_config=False)
        async with found.manager if connect is discover_and_load_mcp_tools else found:
            [renewed] = store.logins()
            assert renewed.generation == login.generation + 1
            assert server.tokens[-1] == renewed.tokens.access_token
    own = own_credential_store()
    assert own.logins() == []
    # Neither the tool cache nor another file contains a token.
    secrets = [str(value) for one in (login, renewed) for value in one.secrets.values() if value]
    files = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not [one for one in secrets if any(one.encode() in file for file in files)]


async def test_a_changed_file_affects_only_its_changed_servers(home: Path, tmp_path: Path) -> None:
    place = home / ".cursor" / "mcp.json"
    write(place, {"mcpServers": {n: entry(tmp_path, n) for n in ("stays", "goes", "changes")}})
    trust = Trust(tmp_path / "approvals.json")

    def load() -> ConfigSnapshot:
        found = load_all_mcp_configs(tmp_path)
        broken = frozenset(problem.path for problem in found.warnings)
        return ConfigSnapshot(
            configured_servers(found, trust=trust), [*found.files, str(place)], broken
        )

    async with MCPManager() as manager:
        await manager.connect_servers(load().wanted)
        before = manager.connections
        reloader = Reloader(manager, load, interval=0.05)
        reloader.start()
        changed = entry(tmp_path, "changes", "slow", "0.01")
        servers = {"stays": entry(tmp_path, "stays"), "changes": changed}
        write(place, {"mcpServers": {**servers, "comes": entry(tmp_path, "comes")}})
        await until(lambda: manager.get_connected_servers() == ["changes", "comes", "stays"])
        after = manager.connections
        assert after["stays"].client is before["stays"].client
        assert after["changes"].client is not before["changes"].client
        place.write_text("{ half written")
        await asyncio.sleep(0.2)  # long enough for another read of the files
        assert manager.get_connected_servers() == ["changes", "comes", "stays"]
        await reloader.close()


@pytest.mark.parametrize(
    ("call", "given", "closest"),
    [
        (discover_and_load_mcp_tools, "on_elicitation", "on_elicit"),
        (discover_and_load_mcp_tools, "filter", "filters"),
        (discover_mcp_servers, "start_up", "startup"),
        (create_tool_session, "input", "inputs"),
        (MCPManager().discover_and_connect, "trusted", "trust"),
        (MCPManager().watch, "intervall", "interval"),
    ],
)
async def test_a_misspelt_keyword_of_discovery_is_a_type_error(
    call: Any, given: str, closest: str
) -> None:
    text = f"unknown keyword argument '{given}': did you mean '{closest}'"
    with pytest.raises(TypeError, match=text):
        await call(**{given: None})
    if call is discover_and_load_mcp_tools:
        with pytest.raises(TypeError, match=text):
            await call(manager=MCPManager(), **{given: None})


def test_a_misspelt_keyword_of_a_manager_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'max_start': did you mean 'max_starts'"):
        MCPManager(max_start=1)  # type: ignore[call-arg]
