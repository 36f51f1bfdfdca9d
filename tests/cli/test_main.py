"""Tests of `fairlead` itself: help, version and unknown commands."""

import subprocess
import sys

import pytest

from fairlead import __version__
from fairlead.cli.main import main
from tests.support.cli_process import DEMO, LIMIT, fairlead, on_terminal


def test_the_version_option_prints_the_version() -> None:
    done = fairlead("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fairlead {__version__}\n", "")


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",), ("help",), ("help", "--help")])
def test_the_help_text_names_the_commands(args: tuple[str, ...]) -> None:
    done = fairlead(*args)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("serve", "list", "mcp", "doctor", "tools", "call", "paths", "demo"):
        assert f"\n  {command}" in done.stdout


@pytest.mark.parametrize("command", ["serve", "mcp", "doctor", "tools", "call", "paths", "demo"])
def test_commands_have_a_help_text(command: str) -> None:
    done = fairlead(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: fairlead {command}")
    assert fairlead("help", command).stdout == done.stdout


@pytest.mark.covers("CMD-05")
def test_an_unknown_command_suggests_a_similar_one() -> None:
    done = fairlead("serv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("error: Unknown command 'serv'\nhint: did you mean `fairlead serve`?\n")


@pytest.mark.parametrize("command", ["why", "add", "approve"])
def test_a_subcommand_without_its_group_suggests_the_full_command(command: str) -> None:
    done = fairlead(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean `fairlead mcp {command}`?" in done.stderr


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("run", "fairlead serve server.py"),
        ("dev", "fairlead tools -- python server.py"),
        ("install", "fairlead mcp add NAME -- python server.py"),
        ("version", "fairlead --version"),
    ],
)
def test_a_command_of_fastmcp_suggests_the_one_of_fairlead(command: str, suggested: str) -> None:
    done = fairlead(command, "server.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: Unknown command '{command}'\nhint: did you mean `{suggested}`?\n"


def test_the_help_text_of_doctor_has_at_most_88_columns() -> None:
    shown = fairlead("doctor", "--help").stdout
    assert max(map(len, shown.splitlines())) <= 88
    assert "Check configuration files, required programs" in shown


def test_the_error_for_an_unknown_command_without_a_similar_one_lists_commands() -> None:
    assert "expected one of serve, list, mcp, doctor, tools, call, " in fairlead("xyzzy").stderr
    assert "Unknown option '--frobnicate'" in fairlead("--frobnicate").stderr


def test_main_returns_the_exit_code_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["call", "--help"]) == 0
    assert main(["call"]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_closed_output_pipe_causes_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "tools", *DEMO],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()  # the pipe is closed early, as by `| head`
    _, stderr = process.communicate(timeout=LIMIT)
    assert (process.returncode, stderr) == (1, b"")


@pytest.mark.covers("CMD-05")
def test_colours_are_used_only_on_a_terminal_that_supports_them() -> None:
    assert "\x1b[31merror:" in on_terminal("serv")
    assert "\x1b[" not in on_terminal("serv", env={"NO_COLOR": "1"})
    assert "\x1b[" not in on_terminal("serv", env={"TERM": "dumb"})
    assert "\x1b[" not in fairlead("serv").stderr
    assert "\x1b[" in on_terminal("tools", *DEMO)
    assert "\x1b[36m" not in on_terminal("tools", *DEMO, env={"NO_COLOR": "1"})
    assert "\x1b[" not in fairlead("tools", *DEMO).stdout
