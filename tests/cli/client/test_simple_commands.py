"""Tests of commands that send a single request."""

import json
from pathlib import Path

import pytest

from fairlead import RpcError
from fairlead.cli.client.simple_commands import arguments_of
from fairlead.cli.framework.connect_target import ConnectTarget
from fairlead.cli.framework.describe_failure import describe_failure
from tests.support.cli_process import DEMO, fairlead, on_terminal, run_by, server_file


def test_the_tools_command_lists_tools_as_text() -> None:
    done = fairlead("tools", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fairlead-demo 1.0.0 · 6 tools · protocol 2026-07-28\n")
    assert (
        """
search_notes  Search notes
  Find the notes that contain a phrase in their title or text.
  query*  string             Text to search for, ignoring case
  limit   integer 1..50 = 5  Maximum number of notes
"""
        in done.stdout
    )
    assert done.stdout.endswith("\n* required\n")
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]


@pytest.mark.covers("CMD-05")
def test_the_tools_command_lists_tools_as_json() -> None:
    done = fairlead("tools", "--json", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    tools = json.loads(done.stdout)
    assert [tool["name"] for tool in tools] == [
        "search_notes",
        "add_note",
        "convert_units",
        "summarize_text",
        "count_slowly",
        "roll_dice",
    ]
    assert tools[1]["inputSchema"]["required"] == ["title", "text"]


def test_an_empty_tool_list_is_shown_for_a_server_without_tools(tmp_path: Path) -> None:
    file = server_file(tmp_path, "")
    done = fairlead("tools", *run_by(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 tools" in done.stdout
    assert fairlead("tools", "--json", *run_by(file)).stdout == "[]\n"


def test_a_server_command_without_two_dashes_causes_a_hint() -> None:
    done = fairlead("tools", "python", "server.py")
    assert done.returncode == 2
    assert "`fairlead tools -- python server.py`" in done.stderr
    done = fairlead("tools")
    assert done.returncode == 2
    assert "Missing server: pass a configured name, a URL, or a command after `--`" in done.stderr


def test_a_missing_program_causes_exit_code_3() -> None:
    done = fairlead("tools", "--", "no-such-program", "--flag")
    assert (done.returncode, done.stdout) == (3, "")
    assert "program 'no-such-program' was not found" in done.stderr


def test_a_server_command_in_quotes_causes_a_hint() -> None:
    done = fairlead("tools", "--", "python server.py")
    assert done.returncode == 3
    assert "without quotes" in done.stderr


def test_control_characters_in_text_from_a_server_are_escaped(tmp_path: Path) -> None:
    file = server_file(
        tmp_path, r"@server.tool('t', 'evil \x1b]0;title\x07')" + "\ndef f() -> None: ...\n"
    )
    shown = on_terminal("tools", *run_by(file))
    assert "evil ␛]0;title␇" in shown
    assert "\x1b]0" not in shown


def test_tools_with_invalid_schemas_can_be_listed() -> None:
    assert list(arguments_of({"name": "t"})) == []
    assert list(arguments_of({"name": "t", "inputSchema": {"properties": [1]}})) == []
    strange = {"properties": {"a": True, "b": {"type": 5, "default": {"x": 1}}}, "required": "a"}
    assert [a[:2] for a in arguments_of({"inputSchema": strange})] == [("a", False), ("b", False)]


BROKEN = """
@server.resource("memo://broken")
def broken():
    raise KeyError("missing key")
"""


def test_an_internal_error_causes_a_hint_where_its_reason_is_shown(tmp_path: Path) -> None:
    file = server_file(tmp_path, BROKEN)
    done = fairlead("read", "memo://broken", *run_by(file))
    assert done.returncode == 1
    assert "The server returned an error: Internal error (code -32603)" in done.stderr
    assert "hint: --verbose shows the output of the server, which may contain" in done.stderr
    assert "missing key" not in done.stderr
    assert "missing key" in fairlead("read", "-v", "memo://broken", *run_by(file)).stderr


@pytest.mark.parametrize(
    ("data", "target", "hint"),
    [
        (
            {"correlation_id": "a1b2"},
            ConnectTarget(url="http://127.0.0.1:1/mcp"),
            "the log of the server contains the reason: look for a1b2",
        ),
        (
            {"correlation_id": "\x1b[2J"},
            ConnectTarget(url="http://127.0.0.1:1/mcp"),
            "the log of the server contains the reason",
        ),
        (
            {"correlation_id": "a1b2"},
            ConnectTarget(name="notes"),
            "--verbose or the log of the server shows the reason: look for a1b2",
        ),
        (
            "text",
            ConnectTarget(name="notes"),
            "--verbose or the log of the server shows the reason",
        ),
    ],
    ids=["url", "unprintable", "name", "no object"],
)
def test_the_hint_for_an_internal_error_contains_its_correlation_id(
    data: object, target: ConnectTarget, hint: str
) -> None:
    assert describe_failure(RpcError(-32603, "Internal error", data), target).hint == hint
    assert describe_failure(RpcError(-32602, "no", data), target).hint == ""
