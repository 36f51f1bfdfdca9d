"""Commands on the managing page, which must run in order and be complete."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cli.mcp import mcp
from fairlead.config.edit.export_entry import EXPORTS
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

PAGE = Path(__file__).parents[3] / "docs" / "managing.md"


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"```{kind}[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found


def test_every_command_on_the_managing_page_runs_as_shown(person: Person) -> None:
    for title in ("server.py", "agent.py"):
        [program] = blocks(f'python title="{title}"')
        (person.project / title).write_text(program)
    bin = Path(sys.executable).parent
    env = {**os.environ, **person.env, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"}
    shown = ""
    for block in blocks("sh"):
        done = subprocess.run(
            ["sh", "-e", "-c", block],
            cwd=person.project,
            env=env,
            capture_output=True,
            text=True,
            timeout=4 * LIMIT,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        shown += done.stdout
    for words in (
        "No servers are configured",
        "calendar is disabled",
        "the server works",
        "notes, configured in Fairlead (user)",
        "1 of 1 servers work",
        "shared is approved",
        "\n3\n",
        "Buy bread.",
        "notes responded in",
        "['mcp_notes_add']",
        "'content': [{'type': 'text', 'text': '3'}]",
        '"command": "python"',
        "[mcp_servers.notes]",
    ):
        assert words in shown, words


def test_the_configuration_file_on_the_managing_page_is_valid(person: Person) -> None:
    person.ours.mkdir()
    (person.ours / "mcp.json").write_text(blocks("json")[0])
    done = person.does("list", "--json")
    told = json.loads(done.out)
    assert told["problems"] == []
    assert [(one["name"], one["status"]) for one in told["servers"]] == [
        ("calendar", "disabled"),
        ("files", "configured"),
    ]
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    assert jsonschema_rs.is_valid(
        json.loads(PAGE.with_name("mcp.schema.json").read_text()), json.loads(blocks("json")[0])
    )


def test_the_managing_page_names_every_command_and_program() -> None:
    text = PAGE.read_text()
    for name in mcp.COMMANDS:
        if name not in ("list", "resources", "prompts"):  # aliases for other commands
            assert f"fairlead mcp {name}" in text, name
    for program in set(EXPORTS) - {"claude"}:
        assert f"`{program}`" in text, program
    for name in set(re.findall(r"fairlead mcp (\w+)", text)):
        assert name in mcp.COMMANDS, name
