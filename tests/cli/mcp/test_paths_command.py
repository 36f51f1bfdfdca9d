"""Tests of `fairlead paths`, on each platform."""

import json
from pathlib import Path

import pytest

from fairlead.config.paths import HostPaths
from tests.support.cli_user import Person, person

__all__ = ["person"]


@pytest.mark.covers("CFG-13")
def test_all_paths_are_inside_the_folder_named_by_fairlead_home(person: Person) -> None:
    places = json.loads(person.does("paths", "--json").out)
    ours, project = str(person.ours), str(person.project)
    assert places == {
        "config": ours,
        "servers": f"{ours}/mcp.json",
        "gateway": f"{ours}/gateway.toml",
        "project": f"{project}/.fairlead/mcp.json",
        "cache": f"{ours}/cache",
        "tools": f"{ours}/cache/tools",
        "eras": f"{ours}/cache/eras.json",
        "data": f"{ours}/data",
        "approvals": f"{ours}/data/approvals.json",
        "logins": f"{ours}/data/auth",
        "tapes": f"{ours}/data/tapes",
        "FAIRLEAD_HOME": ours,
    }


@pytest.mark.covers("CFG-13")
def test_without_fairlead_home_the_default_folders_of_linux_are_used(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    places = json.loads(person.does("paths", "--json").out)
    assert places["config"] == f"{person.home}/.config/fairlead"
    assert places["cache"] == f"{person.home}/.cache/fairlead"
    assert places["data"] == f"{person.home}/.local/share/fairlead"
    assert places["FAIRLEAD_HOME"] is None


def test_the_paths_command_marks_paths_that_do_not_exist(person: Person) -> None:
    person.does("mcp", "add", "a", "--", "x")
    lines = person.does("paths").out.splitlines()
    assert f"servers    {person.ours}/mcp.json" in lines
    assert f"approvals  {person.ours}/data/approvals.json  (does not exist)" in lines


@pytest.mark.covers("CFG-13")
def test_fairlead_writes_its_files_to_the_printed_paths(person: Person) -> None:
    person.has("project/.mcp.json", {"p": person.server()})
    person.does("mcp", "approve", "p", "--yes")
    assert person.runs("list", "--connect").code == 0
    places = json.loads(person.does("paths", "--json").out)
    assert Path(places["approvals"]).is_file()
    assert len(list(Path(places["tools"]).glob("*.json"))) == 1
    assert Path(places["eras"]).is_file()
    assert list(person.home.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "env", "data", "cache"),
    [
        ("linux", {}, "/h/.local/share/fairlead", "/h/.cache/fairlead"),
        (
            "linux",
            {"XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"},
            "/d/fairlead",
            "/c/fairlead",
        ),
        (
            "darwin",
            {},
            "/h/Library/Application Support/fairlead",
            "/h/Library/Caches/fairlead",
        ),
        ("darwin", {"FAIRLEAD_HOME": "/f"}, "/f/data", "/f/cache"),
        (
            "win32",
            {"LOCALAPPDATA": r"C:\L"},
            r"C:\L\fairlead",
            r"C:\L\fairlead\Cache",
        ),
    ],
)
def test_data_and_cache_paths_depend_on_the_platform(
    platform: str, env: dict[str, str], data: str, cache: str
) -> None:
    machine = HostPaths(platform=platform, home="/h", env=env, cwd="/")
    assert (machine.own_data, machine.own_cache) == (data, cache)
