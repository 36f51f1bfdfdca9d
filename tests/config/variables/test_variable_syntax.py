"""Tests of the variable syntax of each program."""

from typing import Any

import pytest

from fairlead.config.variables.variable_syntax import (
    DIALECTS,
    VariableScope,
    looks_like_variables,
    substitute,
)
from fairlead.errors import ConfigError


def scope(**more: Any) -> VariableScope:
    fields: dict[str, Any] = {
        "env": {"A": "1", "EMPTY": ""},
        "home": "/h",
        "workspace": "/w/project/",
        "inputs": {"id": "typed"},
    }
    return VariableScope(**{**fields, **more})


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("literal", "${A}", "${A}"),
        ("unknown", "${A}", "${A}"),
        ("fairlead", "x${A}y${A}", "x1y1"),
        ("fairlead", "${NONE}", "${NONE}"),
        ("fairlead", "${EMPTY}", ""),
        ("fairlead", "${EMPTY:-d}", "d"),
        ("fairlead", "${A:-d}", "1"),
        ("fairlead", "${NONE:-d}", "d"),
        ("fairlead", "${NONE:-}", ""),
        ("fairlead", "${NONE:-${A}}", "1"),
        ("fairlead", "${A%x}", "${A%x}"),
        ("fairlead", "$A", "$A"),
        ("mcporter", "$env:A-${A}", "1-1"),
        ("vscode", "${env:A}${/}${userHome}", "1//h"),
        ("vscode", "${env:NONE}", ""),
        ("roo", "${env:NONE}", "${env:NONE}"),
        ("vscode", "${input:id}", "typed"),
        ("vscode", "${workspaceFolder}", "/w/project/"),
        ("vscode", "${workspaceFolder:a}", "/w/project/"),
        ("vscode", "${workspaceFolderBasename}", "project"),
        ("vscode", "${pathSeparator}", "/"),
        ("vscode", "${other}", "${other}"),
        ("vscode", "${file:x}", "${file:x}"),
        ("gemini", "$A ${A} $NONE", "1 1 $NONE"),
        ("gemini-again", "$A %A% $NONE", "1 %A% "),
        ("opencode", "{env:A}{env:NONE}", "1"),
        ("continue", "${{ secrets.A }} ${{ inputs.A }}", "1 1"),
        ("continue", "${{ secrets.NONE }}", "${{ secrets.NONE }}"),
    ],
)
def test_variables_are_replaced_in_the_syntax_of_each_program(
    dialect: str, text: str, expected: str
) -> None:
    assert substitute(text, dialect, scope()) == expected


def test_backslashes_and_percent_variables_are_used_on_windows() -> None:
    windows = scope(platform="win32", workspace="C:\\w\\project\\")
    assert substitute("${/}${pathSeparator}", "vscode", windows) == "\\\\"
    assert substitute("%A% %NONE%", "gemini-again", windows) == "1 "
    assert substitute("${workspaceFolderBasename}", "cursor", windows) == "project"


def test_variables_are_replaced_only_in_supported_fields() -> None:
    assert substitute("$A", "goose", scope(), "url") == "1"
    assert substitute("${ A }", "goose", scope(), "headers") == "1"
    assert substitute("$A", "goose", scope(), "args") == "$A"
    assert substitute("$A", "goose", scope()) == "$A"


def test_file_references_are_replaced_by_the_text_from_the_reader() -> None:
    asked: list[str] = []
    reading = scope(read_file=lambda path: asked.append(path) or "text")
    assert substitute("{file:./x}", "opencode", reading) == "text"
    assert (asked, reading.used) == (["./x"], {("file", "./x"): None})


@pytest.mark.parametrize(
    ("dialect", "text", "reason"),
    [
        ("mcporter", "${NONE}", "the environment variable NONE is not set"),
        ("vscode", "${input:other}", "missing input 'other'"),
        ("vscode", "${config:x}", "${config:x} has a value only inside the editor"),
        ("cursor", "${command:x}", "${command:x} has a value only inside the editor"),
    ],
)
def test_variables_that_the_program_of_the_entry_would_reject_are_rejected(
    dialect: str, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        substitute(text, dialect, scope())
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("dialect", "text", "used", "missing"),
    [
        ("fairlead", "${A}", [("variable", "A")], []),
        ("fairlead", "${NONE:-d}", [("default", "NONE")], []),
        ("fairlead", "${NONE}${A}${OTHER}", [("variable", "A")], ["NONE", "OTHER"]),
        ("vscode", "${env:A}", [("variable", "A")], []),
        ("vscode", "${env:NONE}", [], ["NONE"]),
        ("vscode", "${input:id}", [("input", "id")], []),
        ("continue", "${{ secrets.A }}", [("variable", "A")], []),
        ("continue", "${{ secrets.NONE }}", [], ["NONE"]),
    ],
)
def test_substitution_records_used_and_missing_variables(
    dialect: str, text: str, used: list[tuple[str, str]], missing: list[str]
) -> None:
    one = scope()
    substitute(text, dialect, one)
    assert (list(one.used), list(one.missing)) == (used, missing)


def test_variables_in_substituted_values_are_not_expanded() -> None:
    assert substitute("${A}", "fairlead", scope(env={"A": "${B}", "B": "2"})) == "${B}"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("${x}", True),
        ("$HOME", True),
        ("{env:x}", True),
        ({"a": ["${x}"]}, True),
        ("$x", False),
        ("$A", False),
        ("{}", False),
    ],
)
def test_text_that_looks_like_a_variable_is_recognised(raw: Any, expected: bool) -> None:
    assert looks_like_variables(raw) is expected


def test_only_entries_of_fairlead_and_oh_my_pi_run_commands() -> None:
    runs = {name for name, one in DIALECTS.items() if one.runs_commands}
    assert runs == {"fairlead", "omp"}
