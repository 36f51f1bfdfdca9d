"""Commands and files of the tutorial, which must run as shown."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person
from tests.support.running_gateway import running

from .test_gateway_page import environment

__all__ = ["person"]

pytestmark = pytest.mark.slow  # runs in `make test-all`

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
TOKENS = {"ALICE_TOKEN": "a1ice", "BOB_TOKEN": "b0b"}


def test_commands_in_the_tutorial_run_as_shown(person: Person) -> None:
    prepare(person)
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL):
        done = shell(person, block)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        if block.startswith("python client.py"):
            assert f"```text\n{done.stdout}```" in TEXT
    # As the page says, more requests are recorded if the server starts slowly.
    assert re.search(r"\b[3-9] compared, 0 differ", done.stdout), done.stdout
    failed = shell(person, titled("fails"))
    assert (failed.returncode, failed.stderr) == (1, "error: unknown note 'tomorrow'\n")


@pytest.mark.parametrize(
    ("file", "place", "program"),
    [
        (".vscode/mcp.json", "project", "vscode"),
        ("claude_desktop_config.json", "home", "claude-desktop"),
    ],
)
def test_the_entries_for_other_programs_start_the_server(
    person: Person, file: str, place: str, program: str
) -> None:
    prepare(person)
    [entry] = re.findall(rf'```json title="{re.escape(file)}"\n(.*?)```', TEXT, re.DOTALL)
    entry = entry.replace("/home/you/notes/.venv/bin/python", sys.executable)
    path = person.project / file
    if place == "home":
        path = person.home / ".config" / "Claude" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(entry.replace("/home/you/notes", str(person.project)))
    approve = "fairlead mcp approve notes --yes >&2\n" if place == "project" else ""
    done = shell(person, f"{approve}fairlead call notes titles")
    assert (done.returncode, done.stdout) == (0, '["today"]\n'), done.stderr
    exported = shell(person, f"fairlead mcp export {program} notes")
    assert sys.executable in exported.stdout, exported.stderr


def test_the_tutorial_server_stores_notes_over_http(person: Person) -> None:
    prepare(person)
    port = free_port()
    command = titled("server").replace("8080", port).split()
    with running(person, *command[1:], env=environment(person)) as server:
        server.wait_for("serving: ")
        done = shell(person, titled("over HTTP").replace("8080", port))
    assert done.stdout == 'wrote \'idea\' (8 characters)\n["idea","today"]\n', done.stderr


def test_the_tutorial_gateway_lists_for_each_client_only_the_tools_in_its_view(person: Person) -> None:
    prepare(person)
    port = free_port()
    *_, command = titled("gateway").strip().split("\n")
    env = {**environment(person), **TOKENS}
    with running(person, *command.split()[1:], "--port", port, env=env) as gateway:
        for server in ("notes", "demo"):
            gateway.wait_for(f"{server}: connected")
        done = shell(person, titled("behind the gateway").replace("8765", port))
    assert done.returncode == 0, done.stderr
    alice, bob = done.stdout.split("wrote 'idea'")
    assert "demo_roll_dice" in alice
    assert [line for line in bob.split("\n") if line.startswith(("notes_", "demo_"))] == [
        "notes_titles"
    ]
    assert '["idea","today"]' in bob


def prepare(person: Person) -> None:
    for file in (ROOT / "examples" / "tutorial").iterdir():
        if file.is_file():
            shutil.copy(file, person.project)
    # The page creates this environment, and installs Fairlead into it.
    python = person.project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def titled(title: str) -> str:
    [block] = re.findall(rf'```sh title="{title}"\n(.*?)```', TEXT, re.DOTALL)
    return str(block)


def shell(person: Person, block: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"set -e\n{block}"],
        cwd=person.project,
        env=environment(person),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT,
    )


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])
