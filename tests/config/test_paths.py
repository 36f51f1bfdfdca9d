"""Tests of settings, data and cache folders for any platform, home and environment."""

import os
from pathlib import Path

import pytest

from fairlead.config.paths import HostPaths, local_host_paths

HOMES = {"linux": "/home/u", "darwin": "/Users/u", "win32": r"C:\Users\u"}


def machine(platform: str, **env: str) -> HostPaths:
    home = HOMES[platform]
    return HostPaths(platform=platform, home=home, env=env, cwd=home)


@pytest.mark.parametrize(
    ("platform", "config", "support", "own", "data", "cache"),
    [
        (
            "linux",
            "/home/u/.config",
            "/home/u/.config",
            ("/home/u/.config/fairlead",),
            "/home/u/.local/share/fairlead",
            "/home/u/.cache/fairlead",
        ),
        (
            "darwin",
            "/Users/u/.config",
            "/Users/u/Library/Application Support",
            ("/Users/u/.config/fairlead", "/Users/u/Library/Application Support/fairlead"),
            "/Users/u/Library/Application Support/fairlead",
            "/Users/u/Library/Caches/fairlead",
        ),
        (
            "win32",
            r"C:\Users\u\AppData\Roaming",
            r"C:\Users\u\AppData\Roaming",
            (r"C:\Users\u\AppData\Roaming\fairlead",),
            r"C:\Users\u\AppData\Local\fairlead",
            r"C:\Users\u\AppData\Local\fairlead\Cache",
        ),
    ],
)
def test_the_folders_of_fairlead_depend_on_the_platform(
    platform: str, config: str, support: str, own: tuple[str, ...], data: str, cache: str
) -> None:
    found = machine(platform)
    assert (found.config, found.app_support, found.own_config) == (config, support, own)
    assert (found.own_data, found.own_cache) == (data, cache)
    assert found.is_windows is (platform == "win32")


def test_environment_variables_set_the_configuration_data_and_cache_folders() -> None:
    xdg = machine("linux", XDG_CONFIG_HOME="/c", XDG_DATA_HOME="/d", XDG_CACHE_HOME="/k")
    assert (xdg.own_config, xdg.own_data, xdg.own_cache) == (
        ("/c/fairlead",),
        "/d/fairlead",
        "/k/fairlead",
    )
    for platform in ("linux", "darwin"):
        moved = machine(platform, FAIRLEAD_HOME="/f", XDG_DATA_HOME="/d")
        assert (moved.own_config, moved.own_data, moved.own_cache) == (
            ("/f",),
            "/f/data",
            "/f/cache",
        )
    windows = machine("win32", APPDATA=r"D:\a", LOCALAPPDATA=r"D:\l")
    assert (windows.app_data, windows.local_app_data) == (r"D:\a", r"D:\l")


def test_folder_variables_with_relative_paths_are_ignored() -> None:
    relative = machine("linux", XDG_CONFIG_HOME="c", FAIRLEAD_HOME="")
    assert relative.own_config == ("/home/u/.config/fairlead",)
    assert relative.variable("XDG_CONFIG_HOME") == ""
    assert relative.variable("XDG_CONFIG_HOME", "/d") == "/d"


def test_paths_are_joined_with_the_separator_of_the_platform() -> None:
    linux = machine("linux")
    assert linux.at_home("a", "..", "b") == "/home/u/b"
    assert linux.in_project("x") == "/home/u/x"
    assert linux.of_system("x", linux="/etc", win32="C:") == "/etc/x"
    other = HostPaths(platform="linux", home="/h", env={}, cwd="/h", root="/r")
    assert other.of_system("x", linux="/etc", win32="C:") == "/r/etc/x"
    assert machine("win32").at_home("a", "b") == r"C:\Users\u\a\b"


def test_project_folders_are_searched_up_to_the_repository_root(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "a" / "b"
    inner.mkdir(parents=True)
    here = HostPaths(platform="linux", home="/nowhere", env={}, cwd=str(inner))
    assert list(here.upwards()) == [str(inner)], "outside a repository"
    (tmp_path / "repository" / ".git").mkdir()
    expected = [inner, inner.parent, inner.parent.parent]
    assert list(here.upwards()) == [str(folder) for folder in expected]
    at_home = HostPaths(platform="linux", home=str(inner.parent), env={}, cwd=str(inner))
    assert list(at_home.upwards()) == [str(inner)], "the home folder is not part of a project"
    (inner / ".git").mkdir()
    assert list(here.upwards()) == [str(inner)]


@pytest.mark.parametrize(
    ("platform", "kind"),
    [
        ("linux", "linux"),
        ("linux2", "linux"),
        ("freebsd14", "linux"),
        ("openbsd7", "linux"),
        ("cygwin", "linux"),
        ("darwin", "darwin"),
        ("win32", "win32"),
    ],
)
def test_platform_variants_are_mapped_to_a_known_platform(platform: str, kind: str) -> None:
    assert local_host_paths("/x", env={"HOME": "/h"}, platform=platform).platform == kind


def test_the_home_folder_is_read_from_the_environment() -> None:
    env = {"HOME": "/h", "USERPROFILE": r"C:\u"}
    assert local_host_paths("/x", env=env, platform="linux").home == "/h"
    assert local_host_paths("/x", env=env, platform="win32").home == r"C:\u"
    assert local_host_paths("/x", env={"HOME": "/h"}, platform="win32").home == "/h"
    assert local_host_paths("/x", env={}, platform="linux").home == os.path.expanduser("~")
    assert local_host_paths("/x", env=env, home="/other", platform="linux").home == "/other"


def test_a_relative_folder_is_resolved_against_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_host_paths("a/../b", env={}).cwd == str(tmp_path / "b")
    assert local_host_paths(env={}).cwd == str(tmp_path)
    assert local_host_paths("/a/../b", env={}).cwd == "/b"


def test_a_removed_current_folder_is_replaced_by_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert local_host_paths(env={"HOME": "/h"}, platform="linux").cwd == "/h"
