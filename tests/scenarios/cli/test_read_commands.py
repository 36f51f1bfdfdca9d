"""`resources`, `read`, `prompts`, `prompt` and `ping`, against the demo server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import LIMIT, fairlead

DEMO = ("--", sys.executable, "-m", "fairlead.demo")


def test_resources_are_listed_one_per_line() -> None:
    done = fairlead("resources", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("demo://sunrise.png") and "image/png" in line for line in lines)
    listed = json.loads(fairlead("resources", "--json", *DEMO).stdout)
    assert {item["uri"] for item in listed} >= {"demo://about", "notes://all"}


def test_read_writes_a_text_resource_unchanged() -> None:
    done = fairlead("read", "demo://about", *DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# Fairlead demo\n")


def test_read_writes_a_binary_resource_to_a_pipe_unchanged() -> None:
    command = [sys.executable, "-m", "fairlead", "read", "demo://sunrise.png", *DEMO]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT)
    assert done.returncode == 0
    assert done.stdout.startswith(b"\x89PNG\r\n")


def test_read_fails_for_an_unknown_resource() -> None:
    done = fairlead("read", "demo://nothing", *DEMO)
    assert done.returncode == 1
    assert "Resource not found: demo://nothing" in done.stderr


def test_prompts_are_listed_and_rendered() -> None:
    listed = fairlead("prompts", *DEMO)
    assert "write_note" in listed.stdout
    assert "(topic*" in listed.stdout
    filled = fairlead("prompt", "write_note", "topic=knots", *DEMO)
    assert (filled.returncode, filled.stderr) == (0, "")
    assert filled.stdout.startswith("user: Write a short note about knots")
    missing = fairlead("prompt", "write_note", *DEMO)
    assert missing.returncode == 1
    assert "Missing arguments of prompt 'write_note': topic" in missing.stderr


def test_ping_shows_the_name_and_revision_of_the_server() -> None:
    done = fairlead("ping", *DEMO)
    assert done.returncode == 0
    assert done.stdout.startswith("fairlead-demo responded in ")
    assert done.stdout.rstrip().endswith("(protocol 2026-07-28)")
    facts = json.loads(fairlead("ping", "--json", *DEMO).stdout)
    assert facts["ok"] is True


@pytest.mark.parametrize("command", ["resources", "prompts", "ping"])
def test_a_server_command_without_two_dashes_is_rejected_with_the_correct_form(
    command: str,
) -> None:
    done = fairlead(command, "python", "server.py")
    assert done.returncode == 2
    assert f"`fairlead {command} -- python server.py`" in done.stderr


def test_a_prompt_argument_is_completed_and_the_tools_of_a_file_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        """
from typing import Literal
from fairlead import MCPServer

server = MCPServer("s")

@server.prompt()
def paint(colour: Literal["red", "green", "grey"]) -> str:
    return colour

@server.tool()
def brush() -> str:
    \"\"\"Select a brush.

    The brush must be clean.
    \"\"\"
    return ""
"""
    )
    serve = ("--", sys.executable, "-m", "fairlead", "serve", str(file))
    done = fairlead("complete", "paint", "colour", "gr", *serve)
    assert (done.returncode, done.stdout, done.stderr) == (0, "green\ngrey\n", "")
    listed = fairlead("serve", "--list-tools", str(file))
    assert (listed.returncode, listed.stdout) == (0, "brush  Select a brush.\n")
