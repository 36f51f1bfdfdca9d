"""Tests of edits to Fairlead's own `mcp.json`."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import MCPHttpServerConfig
from fairlead.config.paths import HostPaths
from fairlead.errors import ConfigError
from fairlead.manager import ConfigFile

pytestmark = pytest.mark.covers("CFG-11")


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_entries_can_be_added_updated_and_removed(tmp_path: Path) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.add("b", {"command": "b", "note": "kept"})
    file.add("a", MCPHttpServerConfig(url="https://a", headers={"X": "${T}"}, timeout=5000))
    assert file.entries() == {
        "b": {"command": "b", "note": "kept"},
        "a": {"type": "http", "url": "https://a", "headers": {"X": "${T}"}, "timeout": 5000.0},
    }
    file.update("b", {"command": "c"})
    file.remove("a")
    assert read(file.path) == {"mcpServers": {"b": {"command": "c"}}}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [one.name for one in file.path.parent.iterdir()] == ["mcp.json"]


def test_editing_a_file_keeps_unknown_keys_and_their_order(tmp_path: Path) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.path.parent.mkdir()
    before = {
        "$schema": "s",
        "zzz": [1, {"ü": None}],
        "mcpServers": {"z": {"command": "z", "extra": {"k": 1}}, "a": {"command": "a"}},
        "aaa": 2.5,
    }
    file.path.write_text(json.dumps(before))
    file.path.chmod(0o644)
    file.disable("z")
    file.enable("z")
    file.add("m", {"command": "m"})
    before["mcpServers"]["m"] = {"command": "m"}  # type: ignore[index]
    assert json.dumps(read(file.path)) == json.dumps(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644


def test_entries_of_this_file_and_of_other_programs_can_be_disabled_and_enabled(
    tmp_path: Path,
) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.add("mine", {"command": "m"})
    file.disable("mine")
    file.disable("theirs")
    file.disable("theirs")
    assert read(file.path) == {
        "mcpServers": {"mine": {"command": "m", "enabled": False}},
        "disabledServers": ["theirs"],
    }
    file.enable("mine")
    file.enable("theirs")
    assert read(file.path) == {
        "mcpServers": {"mine": {"command": "m"}},
        "disabledServers": [],
        "enabledServers": ["theirs"],
    }
    file.disable("theirs")
    assert read(file.path)["enabledServers"] == []


@pytest.mark.parametrize(
    ("name", "entry"), [("a b", {"command": "x"}), ("a", {}), ("a", {"command": "x", "url": "y"})]
)
def test_an_invalid_entry_is_not_written(tmp_path: Path, name: str, entry: Any) -> None:
    file = ConfigFile.of_project(tmp_path)
    with pytest.raises(ConfigError, match=f'Server "{name}"'):
        file.add(name, entry)
    assert not file.path.exists()


def test_add_rejects_an_existing_name_and_update_rejects_a_missing_one(tmp_path: Path) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.add("a", {"command": "a"})
    with pytest.raises(ConfigError, match="already exists"):
        file.add("a", {"command": "b"})
    with pytest.raises(ConfigError, match="not in this file"):
        file.update("b", {"command": "b"})
    with pytest.raises(ConfigError, match="not in this file"):
        file.remove("b")
    assert file.entries() == {"a": {"command": "a"}}


@pytest.mark.parametrize(
    "path",
    [
        ".cursor/mcp.json",
        ".mcp.json",
        ".claude.json",
        "mcp.json",
        ".fairlead/mcp.toml",
        ".fairlead/other.json",
        ".fairlead/../.cursor/mcp.json",
    ],
)
def test_configuration_files_of_other_programs_cannot_be_edited(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="not a Fairlead configuration file"):
        ConfigFile(tmp_path / path)


def test_a_link_to_a_file_of_another_program_is_rejected(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").write_text("{}")
    (tmp_path / ".fairlead").symlink_to(tmp_path / ".cursor")
    with pytest.raises(ConfigError, match="not a Fairlead configuration file"):
        ConfigFile.of_project(tmp_path).add("a", {"command": "a"})
    assert (tmp_path / ".cursor/mcp.json").read_text() == "{}"


@pytest.mark.parametrize("content", ["{", '{"mcpServers": []}', '{"mcpServers": {}, // why\n}'])
def test_a_file_with_comments_or_errors_is_not_changed(tmp_path: Path, content: str) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(content)
    with pytest.raises(ConfigError):
        file.add("a", {"command": "a"})
    assert file.path.read_text() == content


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.add("a", {"command": "a"})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        file.add("b", {"command": "b"})
    assert file.entries() == {"a": {"command": "a"}}
    assert [one.name for one in file.path.parent.iterdir()] == ["mcp.json"]


def test_the_user_file_is_in_the_configuration_folder_or_in_fairlead_home(tmp_path: Path) -> None:
    machine = HostPaths(platform="linux", home=str(tmp_path), env={}, cwd="/")
    file = ConfigFile.of_user(machine)
    file.add("a", {"command": "a"})
    assert file.path == tmp_path / ".config/fairlead/mcp.json"
    moved = HostPaths(platform="linux", home="/h", env={"FAIRLEAD_HOME": str(tmp_path)}, cwd="/")
    assert ConfigFile.of_user(moved).path == tmp_path / "mcp.json"


@pytest.mark.parametrize("change", ["update", "remove"])
def test_a_failed_change_creates_no_folder(tmp_path: Path, change: str) -> None:
    file = ConfigFile.of_project(tmp_path)
    arguments = ("a", {"command": "a"}) if change == "update" else ("a",)
    with pytest.raises(ConfigError, match='Server "a": not in this file'):
        getattr(file, change)(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_removing_an_entry_also_removes_its_name_from_both_server_lists(
    tmp_path: Path,
) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.add("a", {"command": "a"})
    data = {**read(file.path), "disabledServers": ["a", "b"], "enabledServers": ["b", "a"]}
    file.path.write_text(json.dumps(data))
    file.remove("a")
    assert read(file.path) == {
        "mcpServers": {},
        "disabledServers": ["b"],
        "enabledServers": ["b"],
    }


def test_the_nearest_existing_project_file_is_edited(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    machine = HostPaths(platform="linux", home="/nowhere", cwd=str(inner), env={})
    assert ConfigFile.of_nearest_project(machine).path == inner / ".fairlead" / "mcp.json"
    ConfigFile.of_project(tmp_path / "a").add("x", {"command": "x"})
    assert ConfigFile.of_nearest_project(machine).path == tmp_path / "a/.fairlead/mcp.json"


def test_reading_a_file_whose_mcp_servers_are_not_a_map_is_an_error(tmp_path: Path) -> None:
    file = ConfigFile.of_project(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text('{"mcpServers": []}')
    with pytest.raises(ConfigError) as refused:
        file.entries()
    assert refused.value.args[0] == "`mcpServers` must be a map"
    assert (refused.value.path, refused.value.line) == (str(file.path), 1)
