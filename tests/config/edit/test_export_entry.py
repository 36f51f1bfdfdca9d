"""Entries as other programs want them: what is printed is what their readers here understand."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from fairlead.config.edit.export_entry import export, export_all
from fairlead.config.files.reader import ConfigReader
from fairlead.config.hosts import HOSTS, find_servers
from fairlead.config.variables.resolve import resolve
from fairlead.errors import ConfigError
from tests.support.home_directory import HOME, machine_in, write

FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "goose": ".config/goose/config.yaml",
    "opencode": ".config/opencode/opencode.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
STDIO = MCPStdioServerConfig(
    command="npx", args=["-y", 'a "b" \\ c', "ü"], env={"TOKEN": "${TOKEN}", "MODE": "fast"}
)
HTTP = MCPHttpServerConfig(
    url="https://x.example/mcp", headers={"Authorization": "Bearer ${TOKEN}", "X-A": "1"}
)
LITERAL = ("claude-desktop", "zed")  # these programs have no variables


@pytest.mark.parametrize("host", FILES)
@pytest.mark.parametrize("entry", [STDIO, HTTP], ids=["stdio", "http"])
def test_what_is_printed_means_the_same_to_its_program(
    tmp_path: Path, host: str, entry: MCPServerEntry
) -> None:
    if (host, entry) == ("claude-desktop", HTTP):
        pytest.skip("it has no remote servers in its file")
    machine = machine_in(tmp_path)
    write(tmp_path / HOME, {FILES[host]: export(entry, host, name="my.server")})
    files = ConfigReader()
    [found] = find_servers(next(h for h in HOSTS if h.id == host), machine, files)
    assert (files.problems, found.name) == ([], "my.server")
    made = resolve(found, {"TOKEN": "t"}).entry
    value = "${TOKEN}" if host in LITERAL else "t"
    if isinstance(made, MCPStdioServerConfig):
        assert (made.command, made.args) == ("npx", ["-y", 'a "b" \\ c', "ü"])
        assert made.env == {"TOKEN": value, "MODE": "fast"}
    else:
        assert made.url == "https://x.example/mcp"
        assert made.headers == {"Authorization": f"Bearer {value}", "X-A": "1"}


def test_the_shapes_that_differ() -> None:
    assert json.loads(export(STDIO, "opencode", name="a")) == {
        "mcp": {
            "a": {
                "type": "local",
                "command": ["npx", "-y", 'a "b" \\ c', "ü"],
                "environment": {"TOKEN": "{env:TOKEN}", "MODE": "fast"},
                "enabled": True,
            }
        }
    }
    assert json.loads(export(HTTP, "windsurf", name="a")) == {
        "mcpServers": {
            "a": {
                "serverUrl": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-A": "1"},
            }
        }
    }
    assert tomllib.loads(export(HTTP, "codex", name="a b")) == {
        "mcp_servers": {
            "a b": {
                "url": "https://x.example/mcp",
                "bearer_token_env_var": "TOKEN",
                "http_headers": {"X-A": "1"},
            }
        }
    }
    assert yaml.safe_load(export(STDIO, "goose", name="a"))["extensions"]["a"]["env_keys"] == [
        "TOKEN"
    ]
    slow = MCPStdioServerConfig(command="x", timeout=1500)
    assert '"timeout": 1500' in export(slow, "gemini")
    assert '"timeout": 1.5' in export(slow, "zed")
    assert "tool_timeout_sec = 1.5" in export(slow, "codex")


@pytest.mark.parametrize(
    ("entry", "host", "reason"),
    [
        (STDIO, "emacs", "unknown program 'emacs'"),
        (HTTP, "claude-desktop", "as connectors"),
        (MCPSseServerConfig(url="https://x"), "goose", "no longer"),
        (MCPWebSocketServerConfig(url="wss://x"), "cursor", "WebSocket"),
    ],
)
def test_what_a_program_has_no_word_for(entry: MCPServerEntry, host: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        export(entry, host)


@pytest.mark.parametrize("host", FILES)
def test_several_servers_are_one_text_that_its_program_understands(
    tmp_path: Path, host: str
) -> None:
    entries = {name: MCPStdioServerConfig(command=name) for name in ("a", "b.c", "d")}
    write(tmp_path / HOME, {FILES[host]: export_all(entries, host)})
    files = ConfigReader()
    found = find_servers(next(h for h in HOSTS if h.id == host), machine_in(tmp_path), files)
    assert {one.name: one.entry for one in found} == entries
    assert files.problems == []
