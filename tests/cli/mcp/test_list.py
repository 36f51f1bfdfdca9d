"""Tests of `fairlead list` with real files and servers."""

import json
import os
import re
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
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


@pytest.mark.covers("CMD-03")
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


def test_list_starts_no_server_and_shows_tools_found_by_the_last_run(home: Path) -> None:
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


def test_listing_twenty_servers_takes_less_than_half_a_second_of_processor_time(home: Path) -> None:
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
    # Processor time is measured because other tests run at the same time.
    assert usage.ru_utime + usage.ru_stime < 0.5


def timed(home: Path, *args: str) -> tuple[Any, float]:
    """Run a command; return its result and its duration without the start of the program."""
    times = []
    for command in (("list",), args):
        began = time.monotonic()
        done = at_home(home, *command)
        times.append(time.monotonic() - began)
    return done, times[1] - times[0]


@pytest.mark.parametrize("limit", [1, 2, 6])
def test_list_returns_within_the_time_limit_although_a_server_ignores_sigterm(
    home: Path, limit: int
) -> None:
    has(home, hangs=python(HANGS), works=python(SERVER))
    done, took = timed(home, "list", "--connect", "--timeout", str(limit), "--json")
    assert took < limit
    rows = rows_of(done)
    assert (rows["hangs"]["status"], rows["hangs"]["transport"]) == ("failed", "stdio")
    if limit == 6:  # the working server may need more than a second to start
        assert rows["works"]["status"] == "connected"
        assert re.search(r"No connection within 3\d00ms", rows["hangs"]["error"])


def test_servers_that_wait_for_their_start_do_not_extend_the_time_limit(home: Path) -> None:
    has(home, **{f"hangs{n}": python(HANGS, str(n)) for n in range(12)})
    done, took = timed(home, "list", "--connect", "--timeout", "3", "--json")
    assert took < 3
    rows = rows_of(done)
    assert {rows[f"hangs{n}"]["status"] for n in range(12)} == {"failed"}
    assert any("was not started" in row.get("error", "") for row in rows.values())


class StopsAnswering(BaseHTTPRequestHandler):
    """A server that answers nothing after the handshake, not even the end of its session."""

    protocol_version = "HTTP/1.1"
    released = Event()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(asked) if asked["method"] in ("initialize", "server/discover") else self.hang()

    def answer(self, asked: dict[str, Any]) -> None:
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}}
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        unknown = {"code": -32601, "message": "unknown"}
        told |= {"result": result} if asked["method"] == "initialize" else {"error": unknown}
        body = json.dumps(told).encode()
        self.send_response(200)
        for name, value in (("Type", "application/json"), ("Length", str(len(body)))):
            self.send_header(f"Content-{name}", value)
        self.send_header("Mcp-Session-Id", "one")
        self.end_headers()
        self.wfile.write(body)

    def hang(self) -> None:
        self.released.wait(30)
        self.close_connection = True

    do_GET = do_DELETE = hang

    def log_message(self, *args: object) -> None:
        pass


def test_list_returns_within_the_time_limit_although_a_session_cannot_be_ended(home: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), StopsAnswering) as web:
        thread = Thread(target=web.serve_forever)
        thread.start()
        has(home, hangs={"type": "http", "url": f"http://127.0.0.1:{web.server_port}/mcp"})
        try:
            done, took = timed(home, "list", "--connect", "--timeout", "2", "--json")
        finally:
            StopsAnswering.released.set()
            web.shutdown()
            thread.join()
    assert took < 2
    assert rows_of(done)["hangs"]["status"] in ("tools unavailable", "failed")


def test_the_error_of_a_failed_server_begins_with_its_name(home: Path) -> None:
    shown = at_home(home, "list", "--connect").stdout.splitlines()
    [line] = [line for line in shown if "exited with code 1" in line]
    assert line.startswith("bad: ")


def test_the_era_option_selects_the_era_of_connections(home: Path) -> None:
    rows = rows_of(at_home(home, "list", "--connect", "--era", "handshake", "--json"))
    assert (rows["good"]["era"], rows["good"]["protocolVersion"]) == ("handshake", "2025-11-25")
    assert at_home(home, "list", "--era", "handshake").returncode == 2


def has(home: Path, **entries: dict[str, Any]) -> None:
    ours = home / "fairlead_home" / "mcp.json"
    ours.parent.mkdir(exist_ok=True)
    ours.write_text(json.dumps({"mcpServers": entries}))


@pytest.mark.covers("CMD-03")
def test_disabled_and_duplicate_servers_are_listed_with_their_status(home: Path) -> None:
    good = json.loads((home / "home/.cursor/mcp.json").read_text())["mcpServers"]["good"]
    has(home, exa={"command": "x"}, off={"command": "y", "enabled": False}, mine=good)
    done = at_home(home, "mcp", "list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["servers"]}
    assert rows["off"]["status"] == "disabled"
    assert rows["exa"]["status"] == "configured"  # this command does not replace Exa servers
    assert (rows["good"]["status"], rows["good"]["sameServerAs"]) == ("duplicate", "mine")
    plain = at_home(home, "list").stdout
    assert [line.split()[1:4] for line in plain.splitlines() if line.startswith("good")] == [
        ["same", "as", "mine"]
    ]
    assert "doctor" not in plain  # a duplicate is not a problem


def test_on_a_terminal_the_table_is_updated_while_servers_connect(home: Path) -> None:
    shown = on_terminal("list", "--connect", "--project", str(home / "project"), env=places(home))
    assert shown.index("connecting") < shown.index("connected")
    assert "\x1b[1A" in shown  # lines are redrawn
    final = shown[shown.rindex("\x1b[2K") :]
    assert "connecting" not in final
    assert "1 tool " in final
    assert "fairlead doctor" in final


def test_on_a_terminal_the_final_table_replaces_the_earlier_ones(home: Path) -> None:
    shown = on_terminal("list", "--connect", "--project", str(home / "project"), env=places(home))
    final = re.sub(r"\x1b\[[0-9;]*[A-Zm]", "", shown[shown.rindex("\x1b[2K") :])
    first_words = [line.split()[0] for line in final.splitlines() if line]
    assert first_words == ["bad", "good", "theirs", "bad:", "→", "Run"]


def test_without_a_terminal_the_list_has_one_line_per_server_and_one_per_error(home: Path) -> None:
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
