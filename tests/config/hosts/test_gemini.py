"""Tests of the files of Gemini CLI and Qwen Code, and of servers they disable."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.host_files.host import ConfigLocation, Host
from fairlead.config.hosts.gemini import GEMINI, QWEN
from fairlead.config.paths import HostPaths

PLACE = ConfigLocation("/x", "user")


class Files:
    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.machine = HostPaths(
            platform="linux",
            home=str(root / "home"),
            env={},
            cwd=str(root / "project"),
            root=str(root / "system"),
        )

    def write(self, place: str, data: Any) -> None:
        path = self.root / place.format(self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))

    def why(self, host: Host, server: str) -> str | None:
        assert host.switches is not None
        return host.switches(self.machine, ConfigReader())(server, PLACE, {})


HOSTS = [(GEMINI, "gemini"), (QWEN, "qwen")]
EXCLUDED, NOT_ALLOWED = "excluded by `mcp.excluded`", "not in `mcp.allowed`"
SWITCHED_OFF = "disabled in mcp-server-enablement.json"


@pytest.mark.parametrize(("host", "name"), HOSTS)
def test_server_lists_in_the_settings_of_gemini_disable_servers(
    host: Host, name: str, tmp_path: Path
) -> None:
    files = Files(tmp_path, name)
    assert files.why(host, "a") is None
    files.write("home/.{}/settings.json", {"mcp": {"excluded": ["a"]}})
    files.write("project/.{}/settings.json", {"mcp": {"excluded": ["b"]}})
    assert [files.why(host, one) for one in "abc"] == [EXCLUDED, EXCLUDED, None]
    files.write("home/.{}/settings.json", {"mcp": {"allowed": ["c"]}})
    assert [files.why(host, one) for one in "abc"] == [NOT_ALLOWED, EXCLUDED, None]
    files.write("system/etc/{}-cli/settings.json", {"mcp": {"allowed": ["a"]}})
    assert [files.why(host, one) for one in "ac"] == [None, NOT_ALLOWED], (
        "system settings take precedence"
    )


@pytest.mark.parametrize(("host", "name"), HOSTS)
def test_server_lists_of_the_wrong_type_are_ignored(host: Host, name: str, tmp_path: Path) -> None:
    files = Files(tmp_path, name)
    files.write("home/.{}/settings.json", {"mcp": {"excluded": "a", "allowed": "b"}})
    files.write("project/.{}/settings.json", {"mcp": ["a"]})
    assert files.why(host, "a") is None


@pytest.mark.parametrize(
    ("state", "server", "off"),
    [
        ({"a": {"enabled": False}}, "a", True),
        ({"a": {"enabled": False}}, " A ", True),
        ({"a": {"enabled": True}}, "a", False),
        ({"a": {}}, "a", False),
        ({"a": False}, "a", False),
        ({"b": {"enabled": False}}, "a", False),
    ],
)
def test_a_server_disabled_in_the_enablement_file_is_disabled(
    tmp_path: Path, state: Any, server: str, off: bool
) -> None:
    files = Files(tmp_path, "gemini")
    files.write("home/.{}/mcp-server-enablement.json", state)
    assert files.why(GEMINI, server) == (SWITCHED_OFF if off else None)


@pytest.mark.parametrize(
    ("platform", "home", "system"),
    [
        ("linux", "/h", "/etc/gemini-cli/settings.json"),
        ("darwin", "/h", "/Library/Application Support/GeminiCli/settings.json"),
        ("win32", r"C:\h", r"C:\ProgramData\gemini-cli\settings.json"),
    ],
)
def test_gemini_files_depend_on_the_platform(platform: str, home: str, system: str) -> None:
    machine = HostPaths(platform=platform, home=home, env={}, cwd=home)
    first, project, user, last = GEMINI.places(machine, ConfigReader())
    assert (first.path, first.level) == (system, "managed")
    assert (project.level, user.level, last.level) == ("project", "user", "managed")
    assert last.path.endswith("system-defaults.json")


def test_servers_in_extension_files_of_gemini_are_read(tmp_path: Path) -> None:
    files = Files(tmp_path, "gemini")
    files.write("home/.{}/extensions/one/gemini-extension.json", {})
    found = [one.path for one in GEMINI.places(files.machine, ConfigReader())]
    assert str(tmp_path / "home/.gemini/extensions/one/gemini-extension.json") in found
