"""Tests of `fairlead list` with real files and servers."""

import json
import os
import re
import subprocess
import sys
import time
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


HANGS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    time.sleep(60)
"""


def python(code: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", code, *args], **more}


def rows_of(done: Any) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(done.stdout)["servers"]}


def test_connected_servers_are_shown_with_their_state(home: Path) -> None:
    done = at_home(home, "list", "--connect", "--json", "--project", str(home / "project"))
    assert done.returncode == 0, done.stderr
    rows = rows_of(done)
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


def test_list_starts_no_server_and_shows_what_the_last_run_found(home: Path) -> None:
    started = home / "started"
    mark = f"open({str(started)!r}, 'a').close()\n"
    has(home, marked=python(mark + SERVER), fails=python(mark + "raise SystemExit(1)"))
    before = rows_of(at_home(home, "list", "--json"))["marked"]
    assert (before["status"], "tools" in before, started.exists()) == ("configured", False, False)
    at_home(home, "list", "--connect", "--json")
    started.unlink()
    rows = rows_of(at_home(home, "list", "--json", "--project", str(home / "project")))
    assert not started.exists()
    after = rows["marked"]
    assert (after["status"], after["tools"], after["era"]) == ("configured", 1, "stateless")
    assert (after["lastStatus"], after["protocolVersion"]) == ("connected", "2026-07-28")
    assert (rows["fails"]["lastStatus"], "tools" in rows["fails"]) == ("failed", False)
    assert rows["theirs"]["status"] == "not approved"
    plain = at_home(home, "list").stdout
    assert "1 tool " in plain
    assert [line.split()[:4] for line in plain.splitlines() if line.startswith("fails")] == [
        ["fails", "configured,", "failed", "last"]
    ]


def test_list_of_twenty_servers_of_which_one_hangs_needs_half_a_second(home: Path) -> None:
    entries = {f"s{n}": python(SERVER, str(n)) for n in range(19)}
    has(home, hangs=python(HANGS), **entries)
    command = [sys.executable, "-m", "fairlead", "list", "--project", str(home)]
    process = subprocess.Popen(command, env={**os.environ, **places(home)}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    shown = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    assert (process.returncode, shown.count(b"configured")) == (0, 22)
    # Processor time, because other tests run at the same time and nothing is awaited.
    assert usage.ru_utime + usage.ru_stime < 0.5


def test_connecting_ends_within_the_limit_although_a_server_ignores_sigterm(home: Path) -> None:
    has(home, hangs=python(HANGS), works=python(SERVER))
    began = time.monotonic()
    rows = rows_of(at_home(home, "list", "--connect", "--timeout", "6", "--json"))
    assert time.monotonic() - began < 7
    assert rows["works"]["status"] == "connected"
    assert (rows["hangs"]["status"], rows["hangs"]["transport"]) == ("failed", "stdio")
    assert "No connection within 3000ms" in rows["hangs"]["error"]


def test_error_of_a_failed_server_begins_with_its_name(home: Path) -> None:
    shown = at_home(home, "list", "--connect").stdout.splitlines()
    [line] = [line for line in shown if "exited with code 1" in line]
    assert line.startswith("bad: ")


def test_era_option_is_used_for_connections(home: Path) -> None:
    rows = rows_of(at_home(home, "list", "--connect", "--era", "handshake", "--json"))
    assert (rows["good"]["era"], rows["good"]["protocolVersion"]) == ("handshake", "2025-11-25")
    assert at_home(home, "list", "--era", "handshake").returncode == 2


def has(home: Path, **entries: dict[str, Any]) -> None:
    ours = home / "fairlead_home" / "mcp.json"
    ours.parent.mkdir(exist_ok=True)
    ours.write_text(json.dumps({"mcpServers": entries}))


def test_disabled_and_duplicate_servers_are_listed_with_their_status(home: Path) -> None:
    good = json.loads((home / "home/.cursor/mcp.json").read_text())["mcpServers"]["good"]
    has(home, exa={"command": "x"}, off={"command": "y", "enabled": False}, mine=good)
    done = at_home(home, "mcp", "list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["off"]["status"] == "disabled"
    assert rows["exa"]["status"] == "configured"  # the command line does not replace Exa servers
    assert (rows["good"]["status"], rows["good"]["sameServerAs"]) == ("duplicate", "mine")
    plain = at_home(home, "list").stdout
    assert [line.split()[1:4] for line in plain.splitlines() if line.startswith("good")] == [
        ["same", "as", "mine"]
    ]
    assert "doctor" not in plain  # a duplicate is not a problem


def test_on_a_terminal_the_table_fills_while_servers_connect(home: Path) -> None:
    shown = on_terminal("list", "--connect", "--project", str(home / "project"), env=places(home))
    assert shown.index("connecting") < shown.index("connected")
    assert "\x1b[1A" in shown  # lines are drawn again
    final = shown[shown.rindex("\x1b[2K") :]
    assert "connecting" not in final
    assert "1 tool " in final
    assert "fairlead doctor" in final


def test_on_a_terminal_the_final_table_replaces_the_earlier_ones(home: Path) -> None:
    shown = on_terminal("list", "--connect", "--project", str(home / "project"), env=places(home))
    final = re.sub(r"\x1b\[[0-9;]*[A-Zm]", "", shown[shown.rindex("\x1b[2K") :])
    first_words = [line.split()[0] for line in final.splitlines() if line]
    assert first_words == ["bad", "good", "theirs", "bad:", "Run"]


def test_without_a_terminal_each_server_has_one_line(home: Path) -> None:
    name = "a-server-with-a-name-of-some-length-" + "x" * 80
    has(home, **{name: {"command": f"/nowhere/{'y' * 80}"}})
    shown = at_home(home, "list", "--connect", "--project", str(home / "project")).stdout
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
