"""Tests of servers that Claude Code disables by a list, a rule or managed settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.host_files.host import ConfigLocation
from fairlead.config.hosts.claude_code import places, project_keys, switches
from fairlead.config.paths import HostPaths

PROJECT = ConfigLocation("/p/.mcp.json", "project")
LOCAL = ConfigLocation("/h/.claude.json", "local")
RUNS = {"command": "x", "args": ["a"]}


class Files:
    """Home, project and system folders of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        home, project = root / "home", root / "project"
        self.machine = HostPaths(
            platform="linux", home=str(home), env={}, cwd=str(project), root=str(root / "system")
        )

    def write(self, place: str, data: Any) -> None:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))

    def project_settings(self, **settings: Any) -> None:
        self.write("home/.claude.json", {"projects": {str(self.root / "project"): settings}})

    def why(self, name: str, place: ConfigLocation = PROJECT, raw: Any = RUNS) -> str | None:
        return switches(self.machine, ConfigReader())(name, place, raw)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


OFF_PROJECT = "disabled in Claude Code for this project"
OFF_SETTINGS = "disabled in Claude Code's settings"


def test_servers_are_enabled_if_there_are_no_configuration_files(files: Files) -> None:
    assert files.why("a") is None


def test_server_lists_of_the_project_disable_servers_of_claude_code(files: Files) -> None:
    files.project_settings(disabledMcpServers=["a", "b", 1], enabledMcpServers=["b"])
    assert [files.why(name) for name in ("a", "b", "c")] == [OFF_PROJECT, None, None]
    assert files.why("a", LOCAL) == OFF_PROJECT


def test_enabled_mcp_json_servers_override_disabled_servers(files: Files) -> None:
    files.project_settings(disabledMcpServers=["a", "b"], enabledMcpjsonServers=["b"])
    assert [files.why(name) for name in ("a", "b")] == [OFF_PROJECT, None]


def test_disabled_mcp_json_servers_do_not_affect_other_files(files: Files) -> None:
    files.project_settings(disabledMcpjsonServers=["a"])
    assert (files.why("a"), files.why("a", LOCAL)) == (OFF_SETTINGS, None)


@pytest.mark.parametrize(
    "place",
    [
        "home/.claude/settings.json",
        "project/.claude/settings.json",
        "project/.claude/settings.local.json",
    ],
)
def test_settings_can_disable_servers_in_mcp_json(files: Files, place: str) -> None:
    files.write(place, {"disabledMcpjsonServers": ["a"]})
    assert (files.why("a"), files.why("b"), files.why("a", LOCAL)) == (OFF_SETTINGS, None, None)


def test_managed_servers_exclude_all_other_servers(files: Files) -> None:
    path = "system/etc/claude-code/managed-mcp.json"
    files.write(path, {"mcpServers": {}})
    assert files.why("a") == f"excluded by {files.root / path}, which allows only its own servers"
    assert files.why("a", ConfigLocation("/x", "managed")) is None


DENIED = "denied by Claude Code's managed settings"
NOT_ALLOWED = "not allowed by Claude Code's managed settings"


@pytest.mark.parametrize(
    ("rule", "raw", "matches"),
    [
        ({"serverName": "a"}, RUNS, True),
        ({"serverName": "b"}, RUNS, False),
        ({"serverCommand": ["x", "a"]}, RUNS, True),
        ({"serverCommand": ["x"]}, RUNS, False),
        ({"serverCommand": ["x"]}, {"command": "x"}, True),
        ({"serverUrl": "https://*.example.com/*"}, {"url": "https://a.example.com/mcp"}, True),
        ({"serverUrl": "https://*.example.com/*"}, {"url": "https://a.example.org/mcp"}, False),
        ({"serverUrl": "*"}, RUNS, True),
        ({"serverUrl": "?*"}, RUNS, False),
        ({}, RUNS, False),
        ("a", RUNS, False),
    ],
)
def test_managed_rules_match_servers_by_name_command_or_url(
    files: Files, rule: Any, raw: Any, matches: bool
) -> None:
    place = "system/etc/claude-code/managed-settings.json"
    files.write(place, {"deniedMcpServers": [rule]})
    assert files.why("a", raw=raw) == (DENIED if matches else None)
    files.write(place, {"allowedMcpServers": [rule]})
    assert files.why("a", raw=raw) == (None if matches else NOT_ALLOWED)
    files.write(place, {"allowedMcpServers": [rule], "deniedMcpServers": [rule]})
    assert files.why("a", raw=raw) == (DENIED if matches else NOT_ALLOWED)


def test_managed_rules_that_are_not_lists_are_ignored(files: Files) -> None:
    files.write(
        "system/etc/claude-code/managed-settings.json",
        {"allowedMcpServers": {"a": 1}, "deniedMcpServers": "a"},
    )
    assert files.why("a") is None


@pytest.mark.parametrize(
    ("platform", "home", "managed", "own"),
    [
        ("linux", "/h", "/etc/claude-code/managed-mcp.json", "/h/.claude.json"),
        (
            "darwin",
            "/h",
            "/Library/Application Support/ClaudeCode/managed-mcp.json",
            "/h/.claude.json",
        ),
        (
            "win32",
            r"C:\h",
            r"C:\Program Files\ClaudeCode\managed-mcp.json",
            r"C:\h\.claude.json",
        ),
    ],
)
def test_claude_code_files_depend_on_the_platform(
    platform: str, home: str, managed: str, own: str
) -> None:
    machine = HostPaths(platform=platform, home=home, env={}, cwd=home)
    found = [(one.path, one.level) for one in places(machine, ConfigReader())]
    assert found == [(managed, "managed"), (own, "local"), (own, "user")]


def test_project_keys_on_windows_are_lower_case() -> None:
    windows = HostPaths(platform="win32", home=r"C:\h", env={}, cwd="C:\\Work\\Thing\\")
    assert project_keys(windows) == ["c:/work/thing"]
    root = HostPaths(platform="linux", home="/h", env={}, cwd="/")
    assert project_keys(root) == ["/"]
