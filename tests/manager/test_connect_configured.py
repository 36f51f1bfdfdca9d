"""Discovering and connecting all configured servers in one step."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from fairlead.manager.connect_configured import ConnectReport, connect_configured


class FakeManager:
    """A manager that records the servers to connect, and reports one failed server."""

    def __init__(self) -> None:
        self.specs: dict[str, ServerSpec] = {}

    async def connect_servers(self, configs: Mapping[str, ServerSpec], /) -> ConnectReport:
        self.specs = dict(configs)
        errors = [{"path": "mcp:broken", "error": "no such file"}]
        return ConnectReport(tools=[], errors=errors, connected_servers=sorted(configs))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory that is set in the environment."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


def write(path: Path, servers: dict[str, object] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = servers if isinstance(servers, str) else json.dumps({"mcpServers": servers})
    path.write_text(text)


async def test_configured_servers_are_passed_to_the_manager_with_unresolved_variables(
    home: Path, tmp_path: Path
) -> None:
    manager = FakeManager()
    red = {"command": "red", "args": ["${input:token}"]}
    write(home / ".cursor" / "mcp.json", {"red": red})
    report, keys = await connect_configured(manager, tmp_path, inputs={"token": "t0p"})
    assert (list(manager.specs), report.connected_servers, keys) == (["red"], ["red"], [])
    spec = manager.specs["red"]
    assert isinstance(spec.entry, MCPStdioServerConfig)
    assert spec.entry.args == ["${input:token}"]
    assert spec.resolve is not None
    filled_in = await spec.resolve()
    assert isinstance(filled_in, MCPStdioServerConfig)
    assert filled_in.args == ["t0p"]


async def test_discovery_reports_file_errors_before_server_errors(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(home / ".cursor" / "mcp.json", {"red": {"command": "red"}})
    write(home / ".gemini" / "settings.json", "{ broken")
    report, _ = await connect_configured(FakeManager(), tmp_path)
    first, second = report.errors
    assert (first["path"], second) == (
        str(home / ".gemini" / "settings.json"),
        {"path": "mcp:broken", "error": "no such file"},
    )
    assert first["error"] in caplog.text
    assert report.connected_servers == ["red"]


async def test_exa_api_keys_are_returned_in_place_of_exa_servers(
    home: Path, tmp_path: Path
) -> None:
    manager = FakeManager()
    exa = {"url": "https://mcp.exa.ai/mcp?exaApiKey=k3y"}
    write(home / ".cursor" / "mcp.json", {"exa": exa, "red": {"command": "red"}})
    _, keys = await connect_configured(manager, tmp_path)
    assert (keys, list(manager.specs)) == (["k3y"], ["red"])
    _, keys = await connect_configured(manager, tmp_path, filter_exa=False)
    assert (keys, sorted(manager.specs)) == ([], ["exa", "red"])


async def test_no_server_is_connected_if_discovery_fails(home: Path, tmp_path: Path) -> None:
    manager = FakeManager()
    write(home / ".cursor" / "mcp.json", {"red": {"command": "red"}})
    report, keys = await connect_configured(manager, tmp_path, loading={"hosts": 17})
    (error,) = report.errors
    assert (error["path"], bool(error["error"])) == (".mcp.json", True)
    assert (report.tools, report.connected_servers, keys) == ([], [], [])
    assert manager.specs == {}
