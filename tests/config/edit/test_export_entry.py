"""Tests of entries exported in the formats of other programs and read back."""

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
from fairlead.config.files.config_reader import ConfigReader
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
SSE = MCPSseServerConfig(url="https://x.example/sse", headers={"A": "${TENANT}/${TENANT}"})
WEBSOCKET = MCPWebSocketServerConfig(url="wss://x.example/ws")
LITERAL = ("claude-desktop", "zed")  # these programs do not support variables


@pytest.mark.parametrize("host", FILES)
@pytest.mark.parametrize("entry", [STDIO, HTTP], ids=["stdio", "http"])
def test_an_exported_entry_is_read_back_unchanged(
    tmp_path: Path, host: str, entry: MCPServerEntry
) -> None:
    if (host, entry) == ("claude-desktop", HTTP):
        pytest.skip("the file has no remote servers")
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


def test_exported_fields_have_the_names_and_units_of_the_program() -> None:
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
        (WEBSOCKET, "codex", "Codex does not support WebSocket servers"),
        (WEBSOCKET, "cursor", "Cursor does not support WebSocket servers"),
        (WEBSOCKET, "goose", "Goose does not support WebSocket servers"),
        (WEBSOCKET, "opencode", "opencode does not support WebSocket servers"),
        (WEBSOCKET, "vscode", "VS Code does not support WebSocket servers"),
        (WEBSOCKET, "windsurf", "Windsurf does not support WebSocket servers"),
        (WEBSOCKET, "zed", "Zed does not support WebSocket servers"),
    ],
)
def test_export_rejects_servers_that_the_program_does_not_support(
    entry: MCPServerEntry, host: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        export(entry, host)


@pytest.mark.parametrize("host", FILES)
def test_several_servers_are_exported_as_one_text(tmp_path: Path, host: str) -> None:
    entries = {name: MCPStdioServerConfig(command=name) for name in ("a", "b.c", "d")}
    write(tmp_path / HOME, {FILES[host]: export_all(entries, host)})
    files = ConfigReader()
    found = find_servers(next(h for h in HOSTS if h.id == host), machine_in(tmp_path), files)
    assert {one.name: one.entry for one in found} == entries
    assert files.problems == []


LOCAL = MCPStdioServerConfig(
    command="ü",
    args=["${A:-b}"],
    env={"SAME": "${SAME}", "OTHER": "${A}", "PLAIN": "\x7f"},
    cwd="${DIR}",
    timeout=2000,
)


@pytest.mark.parametrize(
    ("entry", "host", "fields"),
    [
        (SSE, "claude", {"type": "sse", "url": SSE.url, "headers": SSE.headers}),
        (SSE, "cursor", {"url": SSE.url, "headers": {"A": "${env:TENANT}/${env:TENANT}"}}),
        (SSE, "gemini", {"url": SSE.url, "headers": SSE.headers, "type": "sse"}),
        (WEBSOCKET, "gemini", {"tcp": "wss://x.example/ws"}),
        (MCPStdioServerConfig(command="x"), "gemini", {"command": "x"}),
        (MCPStdioServerConfig(command="x"), "windsurf", {"command": "x"}),
        (SSE, "zed", {"url": SSE.url, "headers": SSE.headers}),
        (
            LOCAL,
            "zed",
            {"command": "ü", "args": ["${A:-b}"], "env": LOCAL.env, "timeout": 2},
        ),
        (
            LOCAL,
            "opencode",
            {
                "type": "local",
                "command": ["ü", "{env:A}"],
                "environment": {"SAME": "{env:SAME}", "OTHER": "{env:A}", "PLAIN": "\x7f"},
                "cwd": "{env:DIR}",
                "enabled": True,
            },
        ),
        (
            SSE,
            "opencode",
            {
                "type": "remote",
                "url": SSE.url,
                "headers": {"A": "{env:TENANT}/{env:TENANT}"},
                "enabled": True,
            },
        ),
        (
            LOCAL,
            "vscode",
            {
                "type": "stdio",
                "command": "ü",
                "args": ["${env:A}"],
                "env": {"SAME": "${env:SAME}", "OTHER": "${env:A}", "PLAIN": "\x7f"},
                "cwd": "${env:DIR}",
            },
        ),
    ],
)
def test_an_entry_is_exported_with_the_fields_of_each_format(
    entry: MCPServerEntry, host: str, fields: dict[str, object]
) -> None:
    [servers] = json.loads(export(entry, host)).values()
    assert servers == {"server": fields}


def test_entries_for_codex_are_exported_as_toml() -> None:
    assert export(LOCAL, "codex", name="a b") == (
        '[mcp_servers."a b"]\n'
        'command = "ü"\n'
        'args = ["${A:-b}"]\n'
        'cwd = "${DIR}"\n'
        'env_vars = ["SAME"]\n'
        "tool_timeout_sec = 2\n"
        'env = { PLAIN = "\\u007f", OTHER = "${A}" }\n'
    )
    named = MCPHttpServerConfig(url="https://x", headers={"A": "${B}", "Authorization": "Basic x"})
    assert export(named, "codex") == (
        "[mcp_servers.server]\n"
        'url = "https://x"\n'
        'http_headers = { Authorization = "Basic x" }\n'
        'env_http_headers = { A = "B" }\n'
    )
    assert export(MCPHttpServerConfig(url="u"), "codex") == '[mcp_servers.server]\nurl = "u"\n'


def test_entries_for_goose_are_exported_as_yaml() -> None:
    assert export(LOCAL, "goose", name="ö") == (
        "extensions:\n"
        '  "\\u00f6":\n'
        '    name: "ö"\n'
        "    enabled: true\n"
        '    type: "stdio"\n'
        '    cmd: "ü"\n'
        '    args: ["${A:-b}"]\n'
        '    envs: {"PLAIN": "\x7f"}\n'
        '    env_keys: ["SAME", "OTHER"]\n'
        "    timeout: 2\n"
    )
    remote = MCPHttpServerConfig(url="https://${TENANT}.x", headers={"A": "${TENANT} ${B}"})
    assert yaml.safe_load(export(remote, "goose"))["extensions"]["server"] == {
        "name": "server",
        "enabled": True,
        "type": "streamable_http",
        "uri": "https://${TENANT}.x",
        "headers": {"A": "${TENANT} ${B}"},
        "env_keys": ["TENANT", "B"],
    }
