"""Tests of remedies for failures of configured servers."""

import pytest

from fairlead.cli.framework.command_errors import FAILED, NO_CONNECTION
from fairlead.cli.framework.remedies import diagnose
from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import FoundServer, Input
from fairlead.config.variables.variable_syntax import MissingInput
from fairlead.errors import ConfigError
from fairlead.transport.stdio.start_error import StartFailed, StartProblem


def server(command: str = "notes-server") -> FoundServer:
    return FoundServer(
        name="notes",
        host="fairlead",
        host_title="Fairlead",
        path="/c/mcp.json",
        line=3,
        level="user",
        raw={},
        dialect="fairlead",
        entry=MCPStdioServerConfig(command=command),
        needs_input=(Input("pin", "The PIN"), Input("key", "The API key"), Input("bare")),
    )


@pytest.mark.parametrize(
    ("command", "problem", "hint"),
    [
        ("notes-server", StartProblem.MISSING_PROGRAM, "install notes-server, or set `command` to"),
        ("npx", StartProblem.MISSING_PROGRAM, "install Node.js"),
        ("./notes", StartProblem.MISSING_PROGRAM, "./notes does not exist"),
        ("~/notes", StartProblem.MISSING_PROGRAM, "set `command` to the full path"),
        ("notes-server", StartProblem.MISSING_FOLDER, "correct `cwd` of the entry"),
        ("./notes", StartProblem.NOT_EXECUTABLE, "run `chmod +x ./notes`"),
    ],
)
def test_remedy_depends_on_the_problem_attribute_of_the_error(
    command: str, problem: StartProblem, hint: str
) -> None:
    failed = diagnose(StartFailed("any text", public="", problem=problem), server(command))
    assert (failed.code, failed.sentence) == (NO_CONNECTION, "Any text")
    assert failed.hint.startswith(hint)


def test_error_without_a_problem_attribute_has_a_general_remedy() -> None:
    error = StartFailed("there is no program 'x'", public="", problem=None)
    assert diagnose(error, server()).hint == "the server failed: see its own log"


@pytest.mark.parametrize(
    ("input_id", "hint"),
    [
        ("key", "pass it with `--input key=VALUE` (The API key)"),
        ("bare", "pass it with `--input bare=VALUE`"),
        ("unknown", "pass it with `--input unknown=VALUE`"),
    ],
)
def test_the_remedy_names_the_missing_input(input_id: str, hint: str) -> None:
    failed = diagnose(MissingInput(input_id), server())
    assert (failed.code, failed.hint) == (FAILED, hint)


def test_remedy_for_an_invalid_entry_names_its_file_and_line() -> None:
    assert diagnose(ConfigError("x"), server()).hint == "correct the entry: /c/mcp.json:3"
