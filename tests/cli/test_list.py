"""`fairlead list`, with real files and servers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .running import fairlead, on_terminal

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


def places(home: Path) -> dict[str, str]:
    names = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "FAIRLEAD_HOME")
    return {"HOME": str(home / "home")} | {name: str(home / name.lower()) for name in names}


def at_home(home: Path, *args: str) -> Any:
    return fairlead(*args, env=places(home))


def test_every_configured_server_is_shown_with_how_it_is(home: Path) -> None:
    done = at_home(home, "list", "--json", "--project", str(home / "project"))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["good"]["status"] == "connected"
    assert rows["good"]["tools"] == 1
    assert rows["good"]["source"] == "Cursor"
    assert rows["bad"]["status"] == "failed"
    assert "no licence" in rows["bad"]["error"]
    assert rows["good"]["protocolVersion"] == "2026-07-28"
    assert rows["good"]["era"] == "stateless"
    assert rows["good"]["latency_ms"] > 0
    assert rows["theirs"]["status"] == "not approved"
    assert rows["theirs"]["path"] == f"{home}/project/.mcp.json:1"
    assert done.stderr == ""  # what went wrong is said once
    plain = at_home(home, "list", "--no-connect", "--project", str(home / "project"))
    assert "good" in plain.stdout
    assert "not approved" in plain.stdout
    assert "connected" not in plain.stdout


def test_those_that_are_off_or_left_out_are_shown_too(home: Path) -> None:
    ours = home / "fairlead_home" / "mcp.json"
    ours.parent.mkdir()
    entries = {"exa": {"command": "x"}, "off": {"command": "x", "enabled": False}}
    ours.write_text(json.dumps({"mcpServers": entries}))
    done = at_home(home, "mcp", "list", "--no-connect", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["off"]["status"] == "disabled"
    assert (rows["exa"]["status"], rows["exa"]["reason"]) == ("left out", "Exa is built in")


def test_on_a_terminal_the_table_fills_while_servers_connect(home: Path) -> None:
    shown = on_terminal("list", "--project", str(home / "project"), env=places(home))
    assert shown.index("connecting") < shown.index("connected")
    assert "\x1b[1A" in shown  # lines are written again
    final = shown[shown.rindex("\x1b[2K") :]
    assert "connecting" not in final
    assert "1 tools" in final
    assert "fairlead doctor" in final


def test_nothing_is_configured(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = at_home(tmp_path, "list", "--project", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No servers are configured. `fairlead mcp add` adds one.\n"
