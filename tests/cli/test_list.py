"""`fairlead list`, with real files and servers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .running import fairlead

SERVER = """
from fairlead import MCPServer
server = MCPServer("x")
server.tool(name="t")(lambda: "x")
server.run()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    good = {"command": sys.executable, "args": [str(program)]}
    other = {"command": sys.executable, "args": [str(program), "other"]}
    bad = {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]}
    cursor = tmp_path / "home" / ".cursor" / "mcp.json"
    cursor.parent.mkdir(parents=True)
    cursor.write_text(json.dumps({"mcpServers": {"good": good, "bad": bad}}))
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": other}}))
    return tmp_path


def at_home(home: Path, *args: str) -> Any:
    names = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
    places = {name: str(home / name.lower()) for name in names}
    return fairlead(*args, env={"HOME": str(home / "home"), **places})


def test_every_configured_server_is_shown_with_how_it_is(home: Path) -> None:
    done = at_home(home, "list", "--json", "--project", str(home / "project"))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["good"]["status"] == "connected"
    assert rows["good"]["tools"] == 1
    assert rows["good"]["source"] == "Cursor"
    assert rows["bad"]["status"] == "failed"
    assert "no licence" in rows["bad"]["error"]
    assert rows["theirs"]["status"] == "not approved"
    plain = at_home(home, "list", "--no-connect", "--project", str(home / "project"))
    assert "good" in plain.stdout
    assert "not approved" in plain.stdout
    assert "connected" not in plain.stdout
