"""Tests of `fairlead list` with real files and servers."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_process import fairlead, on_terminal

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


def test_every_configured_server_is_shown_with_its_state(home: Path) -> None:
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
    assert done.stderr == ""  # problems are reported once
    plain = at_home(home, "list", "--no-connect", "--project", str(home / "project"))
    assert "good" in plain.stdout
    assert "not approved" in plain.stdout
    assert "connected" not in plain.stdout


def has(home: Path, **entries: dict[str, Any]) -> None:
    ours = home / "fairlead_home" / "mcp.json"
    ours.parent.mkdir(exist_ok=True)
    ours.write_text(json.dumps({"mcpServers": entries}))


def test_disabled_and_duplicate_servers_are_listed_with_their_status(home: Path) -> None:
    good = json.loads((home / "home/.cursor/mcp.json").read_text())["mcpServers"]["good"]
    has(home, exa={"command": "x"}, off={"command": "y", "enabled": False}, mine=good)
    done = at_home(home, "mcp", "list", "--no-connect", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["off"]["status"] == "disabled"
    assert rows["exa"]["status"] == "configured"  # the command line does not replace Exa servers
    assert (rows["good"]["status"], rows["good"]["sameServerAs"]) == ("duplicate", "mine")
    plain = at_home(home, "list", "--no-connect").stdout
    assert [line.split()[1:4] for line in plain.splitlines() if line.startswith("good")] == [
        ["same", "as", "mine"]
    ]
    assert "doctor" not in plain  # a duplicate is not a problem


def test_lazy_server_is_listed_as_idle_with_its_cached_tools(home: Path) -> None:
    has(home, slow={"command": sys.executable, "args": [str(home / "server.py")], "lazy": True})
    first, second = (at_home(home, "list", "--json") for _ in range(2))
    status = [
        (row["status"], row["tools"])
        for done in (first, second)
        for row in json.loads(done.stdout)["servers"]
        if row["name"] == "slow"
    ]
    assert status == [("connected", 1), ("idle", 1)]


def test_on_a_terminal_the_table_fills_while_servers_connect(home: Path) -> None:
    shown = on_terminal("list", "--project", str(home / "project"), env=places(home))
    assert shown.index("connecting") < shown.index("connected")
    assert "\x1b[1A" in shown  # lines are drawn again
    final = shown[shown.rindex("\x1b[2K") :]
    assert "connecting" not in final
    assert "1 tool " in final
    assert "fairlead doctor" in final


def test_on_a_terminal_the_final_table_replaces_the_earlier_ones(home: Path) -> None:
    shown = on_terminal("list", "--project", str(home / "project"), env=places(home))
    final = re.sub(r"\x1b\[[0-9;]*[A-Zm]", "", shown[shown.rindex("\x1b[2K") :])
    first_words = [line.split()[0] for line in final.splitlines() if line]
    assert first_words == ["bad", "good", "theirs", "bad:", "Run"]


def test_without_a_terminal_each_server_has_one_line(home: Path) -> None:
    name = "a-server-with-a-name-of-some-length-" + "x" * 80
    has(home, **{name: {"command": f"/nowhere/{'y' * 80}"}})
    shown = at_home(home, "list", "--project", str(home / "project")).stdout
    assert "\x1b" not in shown
    [row] = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
    assert "failed" in row
    assert row.endswith("(user)")
    [why] = [line for line in shown.splitlines() if line.startswith(f"{name}:")]
    assert "y" * 80 in why


def test_a_missing_project_folder_is_an_error(home: Path) -> None:
    done = at_home(home, "list", "--project", str(home / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Folder not found" in done.stderr


def test_an_empty_list_suggests_mcp_add(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = at_home(tmp_path, "list", "--project", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No servers are configured; add one with `fairlead mcp add`.\n"
