"""Tests of references to inputs and files."""

from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import FoundServer, Input
from fairlead.config.variables.entry_references import (
    absolute,
    env_file_of,
    file_beside,
    files_of,
    hide_values,
    read_dotenv,
    scope_of,
    texts_in,
    values_of,
)
from fairlead.errors import ConfigError
from fairlead.limits import ENTRY_FILES


def found(**more: Any) -> FoundServer:
    fields: dict[str, Any] = {
        "name": "a",
        "host": "opencode",
        "host_title": "opencode",
        "path": "/p/opencode.json",
        "line": 1,
        "level": "project",
        "raw": {"command": "x"},
        "entry": MCPStdioServerConfig(command="x"),
        "dialect": "opencode",
        "workspace": "/p",
        "home": "/h",
    }
    return FoundServer(**{**fields, **more})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("  A = 1  ", "1"),
        ("export A=1", "1"),
        ("A=1 # comment", "1"),
        ("A=", ""),
        ('A="x # y"', "x # y"),
        ('A="x" # y', "x"),
        (r'A="a\nb\tc\rd\"e"', 'a\nb\tc\rd"e'),
        (r"A='a\nb'", r"a\nb"),
        ("A='x", "'x"),
        ("A=1\nA=2", "2"),
        ("A=1\r\nB=2", "1"),
    ],
)
def test_the_value_of_a_variable_is_read_from_a_dotenv_line(line: str, value: str) -> None:
    assert read_dotenv(line)["A"] == value


@pytest.mark.parametrize("line", ["", "# A=1", "1A=2", "A", "A B=1"])
def test_dotenv_lines_without_a_variable_are_ignored(line: str) -> None:
    assert read_dotenv(line) == {}


@pytest.mark.parametrize(
    ("path", "in_project", "beside"),
    [
        ("x", "/p/x", "/p/x"),
        ("../x", "/x", "/p/../x"),
        ("~", "/h", "/h"),
        ("~/x", "/h/x", "/h/x"),
        ("~x", "/p/~x", "/p/~x"),
        ("/x", "/x", "/x"),
    ],
)
def test_referenced_paths_are_relative_to_the_project_or_the_file(
    path: str, in_project: str, beside: str
) -> None:
    assert (absolute(found(), path), file_beside(found(), path)) == (in_project, beside)
    assert absolute(found(workspace=""), "x") == "x"


def test_the_files_that_an_entry_refers_to_are_listed() -> None:
    entry = MCPStdioServerConfig(command="x", env={"A": "{file:./a}", "B": "{file:~/b}{env:C}"})
    one = found(entry=entry, env_file="{env:DIR}/.env")
    assert files_of(one, {"DIR": "/d"}) == ["/d/.env", "/p/./a", "/h/b"]
    assert files_of(found(), {}) == []
    assert env_file_of(found(), scope_of(found(), {})) is None


def test_an_entry_has_no_files_if_its_syntax_has_no_file_references() -> None:
    entry = MCPStdioServerConfig(command="x", env={"A": "{file:./a}"})
    assert files_of(found(entry=entry, dialect="claude"), {}) == []
    assert files_of(found(entry=entry, dialect="literal"), {}) == []


def test_an_env_file_that_depends_on_a_missing_input_is_skipped() -> None:
    one = found(dialect="vscode", env_file="${input:x}/.env")
    assert files_of(one, {}) == []
    answered = found(
        dialect="vscode", env_file="${input:x}/.env", needs_input=(Input(id="x", default="/d"),)
    )
    assert files_of(answered, {}) == ["/d/.env"]


def test_files_of_other_hosts_are_not_opened_on_windows() -> None:
    entry = MCPStdioServerConfig(command="x", env={"A": "{file://host/share}", "B": "{file:/b}"})
    assert files_of(found(entry=entry, platform="win32"), {}) == ["/b"]
    assert files_of(found(entry=entry), {}) == ["//host/share", "/b"]


@pytest.mark.parametrize("extra", [0, 1])
def test_the_number_of_files_an_entry_may_refer_to_is_limited(extra: int) -> None:
    names = {f"V{n}": f"{{file:/f{n}}}" for n in range(ENTRY_FILES.value + extra)}
    one = found(entry=MCPStdioServerConfig(command="x", env=names))
    hits = ENTRY_FILES.hits
    if extra:
        with pytest.raises(ConfigError, match="^the entry refers to more than 16 files$"):
            files_of(one, {})
    else:
        assert len(files_of(one, {})) == 16
    assert ENTRY_FILES.hits == hits + extra


def test_given_inputs_override_the_defaults_of_an_entry() -> None:
    one = found(needs_input=(Input(id="x", default="d"), Input(id="y"), Input(id="z", default="e")))
    scope = scope_of(one, {"A": "1"}, {"x": "given"})
    assert scope.inputs == {"x": "given", "z": "e"}
    assert (scope.home, scope.workspace) == ("/h", "/p")


def test_all_strings_in_a_nested_value_are_found() -> None:
    assert sorted(texts_in({"a": ["b", 1, ("c",)], "d": None})) == ["a", "b", "c", "d"]
    raw = {"command": "x", "env": {"A": "1", "B": ["2", {"c": "3"}], "D": 4}, "args": ["y"]}
    assert list(values_of(raw)) == ["1", "2", "3"]


def test_secret_values_are_redacted_in_texts() -> None:
    assert "hidden-value" not in hide_values("error: hidden-value here", ["hidden-value"])
    assert hide_values("the result") == "the result"
