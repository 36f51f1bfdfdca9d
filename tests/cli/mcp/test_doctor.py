"""Tests of `fairlead doctor` and `fairlead mcp test`: problems and remedies."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.support.cli_process import interrupt, signpost
from tests.support.cli_user import Person, person

__all__ = ["person"]


class _Refuses(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def refusing() -> Iterator[str]:
    """Run a web server that responds with 401, and yield its URL."""
    with HTTPServer(("127.0.0.1", 0), _Refuses) as web:
        thread = Thread(target=web.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}/mcp"
        finally:
            web.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def python(code: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", code]}


def examine(person: Person, *args: str) -> tuple[int, dict[str, Any], Any]:
    """Return the exit code, the servers by name, and the complete report."""
    done = person.runs("doctor", "--json", *args)
    told = json.loads(done.out)
    return done.code, {server["name"]: server for server in told["servers"]}, told


def test_the_report_for_a_working_server_lists_the_steps_of_its_check(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": person.server()})
    code, servers, told = examine(person)
    assert (code, told["ok"]) == (0, True)
    notes = servers["notes"]
    assert (notes["status"], notes["tools"], notes["server"]) == ("ok", 2, "test 1.0.0")
    assert notes["protocolVersion"] == "2026-07-28"
    steps = [(step["step"], step["ok"]) for step in notes["steps"]]
    names = ("approve", "resolve", "program", "connect", "tools")
    assert steps == [(name, True) for name in names]
    assert all(step["ms"] >= 0 for step in notes["steps"])
    assert told["machine"][0]["text"].startswith("Python 3.")


def test_doctor_shows_a_remedy_for_each_problem(person: Person) -> None:
    with refusing() as url:
        person.has(
            "ours/mcp.json",
            {
                "good": person.server(),
                "gone": {"command": "no-such-program-here"},
                "node": {"command": "npx", "args": ["x"], "env": {"PATH": "/nowhere"}},
                "dies": python("import sys; sys.exit('no licence found')"),
                "lacks": python("import no_such_module"),
                "refused": {"type": "http", "url": url, "headers": {"X-Key": "${MY_KEY}"}},
                "silent": {**python("import sys; sys.stdin.read()"), "timeout": 500},
                "nobody": {"type": "http", "url": f"http://127.0.0.1:{free_port()}/mcp"},
                "folder": {**python(""), "cwd": "/no/such/folder"},
            },
        )
        code, servers, told = examine(person)
    assert (code, told["ok"]) == (1, False)
    assert servers["good"]["status"] == "ok"
    failed = {name: one for name, one in servers.items() if one["status"] == "failed"}
    assert set(failed) == set(servers) - {"good"}
    assert "Program not found in the PATH: 'no-such-program-here'" in failed["gone"]["error"]
    assert "set `command` to its full path" in failed["gone"]["hint"]
    assert "install Node.js" in failed["node"]["hint"]
    assert failed["node"]["stderr"] == ["PATH=/nowhere"]
    assert "exited with code 1" in failed["dies"]["error"]
    assert failed["dies"]["stderr"] == ["no licence found"]
    assert "missing module no_such_module" in failed["lacks"]["hint"]
    assert failed["refused"]["error"] == "The server responded with HTTP 401"
    assert "check MY_KEY" in failed["refused"]["hint"]
    assert "MY_KEY is not set in the environment" in failed["refused"]["warnings"]
    assert "500ms" in failed["silent"]["error"]
    assert '"timeout" (milliseconds) in the entry' in failed["silent"]["hint"]
    assert "check that the server is running" in failed["nobody"]["hint"]
    assert "correct `cwd`" in failed["folder"]["hint"]
    assert [step["step"] for step in failed["dies"]["steps"] if not step["ok"]] == ["connect"]


def test_doctor_reports_invalid_files_and_missing_programs(person: Person) -> None:
    file = person.has("home/.cursor/mcp.json", {})
    file.write_text('{\n "mcpServers": {\n  "a": nonsense\n}}')
    person.has("ours/mcp.json", {"tool": {"command": "uvx", "args": ["x"]}})
    done = person.runs("doctor", env={"PATH": "/nowhere"})
    assert done.code == 1
    assert f"✗ {file}:3: not valid JSON" in done.out
    assert "✗ uvx is missing, but required by tool\n    → install uv" in done.out
    assert "0 of 1 servers work, 3 problems to fix" in done.out


def test_a_variable_that_is_not_set_is_marked_as_a_possible_cause(person: Person) -> None:
    entry = {**person.server(), "env": {"KEY": "${MY_KEY}"}}
    person.has("ours/mcp.json", {"notes": entry})
    for command in (("doctor",), ("mcp", "test", "notes")):
        unset = person.runs(*command)
        [line] = [line for line in unset.out.splitlines() if "resolve" in line]
        assert line.split()[:2] == ["!", "resolve"]
        assert line.endswith("not set: MY_KEY")
        [line] = [
            line
            for line in person.runs(*command, env={"MY_KEY": "x"}).out.splitlines()
            if "resolve" in line
        ]
        assert line.split()[:2] == ["✓", "resolve"]
        assert line.endswith("all values are set")
    _, servers, _ = examine(person)
    odd = [step["step"] for step in servers["notes"]["steps"] if step["odd"]]
    assert (servers["notes"]["status"], odd) == ("ok", ["resolve"])


def test_a_value_that_is_the_name_of_a_variable_is_reported(person: Person) -> None:
    env = {"KEY": "MY_KEY", "TEXT": "!echo MY_KEY", "OTHER": "MY_KEYS"}
    person.has("ours/mcp.json", {"notes": {**person.server(), "env": env}})
    done = person.runs("mcp", "test", "notes", env={"MY_KEY": "very-secret"})
    [line] = [line for line in done.out.splitlines() if "resolve" in line]
    assert line.endswith("all values are set; env.KEY is the value of the variable MY_KEY")
    assert "very-secret" not in done.out + done.err
    call = ("call", "notes", "variable", "name=KEY")
    assert person.runs(*call, env={"MY_KEY": "very-secret"}).out == "very-secret\n"
    call = ("call", "notes", "variable", "name=TEXT")
    assert person.runs(*call, env={"MY_KEY": "very-secret"}).out == "MY_KEY\n"


def test_an_unusual_server_name_causes_a_note_but_no_error(person: Person) -> None:
    tool = person.server()
    person.has("home/.cursor/mcp.json", {"my notes": tool})
    code, servers, told = examine(person)
    assert (code, servers["my notes"]["status"], told["ok"]) == (0, "ok", True)
    assert "  ! " in person.runs("doctor").out


def test_the_report_for_an_unknown_problem_has_a_general_remedy(person: Person) -> None:
    refuses = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    error = {"code": -32603, "message": "not today"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""
    file = person.has(
        "ours/mcp.json",
        {"dies": python("raise SystemExit('no licence')"), "refuses": python(refuses)},
    )
    _, servers, _ = examine(person)
    assert servers["dies"]["stderr"] == ["no licence"]
    assert f"its entry is {file}" in servers["dies"]["hint"]
    assert "not today" in servers["refuses"]["error"]
    assert "its own log" in servers["refuses"]["hint"]


def test_an_unapproved_server_is_a_problem_only_if_named(person: Person) -> None:
    person.has("project/.mcp.json", {"p": {"command": "x"}})
    done = person.runs("doctor")
    assert done.code == 0
    assert "`fairlead mcp approve p`" in done.out
    assert "0 of 1 servers work, 1 not approved" in done.out
    code, servers, _ = examine(person, "p")
    assert (code, servers["p"]["status"]) == (1, "not approved")


def test_doctor_checks_only_the_named_servers(person: Person) -> None:
    person.has("ours/mcp.json", {"good": person.server(), "bad": python("exit(1)")})
    code, servers, _ = examine(person, "good")
    assert (code, list(servers)) == (0, ["good"])
    assert "did you mean 'good'?" in person.does("doctor", "goood").err


def test_doctor_shows_the_stderr_of_an_unresponsive_server_and_stops_it(person: Person) -> None:
    with signpost(person.folder / "pipe") as post:
        said = "print('waiting for a lock', file=sys.stderr)"
        code = f"import os, signal, sys; {said}; {post.report}; signal.pause()"
        person.has("ours/mcp.json", {"silent": {**python(code), "timeout": 1500}})
        done = person.runs("doctor")
        assert done.code == 1
        assert "  | waiting for a lock\n" in done.out
        with pytest.raises(ProcessLookupError):
            os.kill(post.read(), 0)


def test_interrupting_doctor_stops_the_servers_it_started(person: Person) -> None:
    with signpost(person.folder / "pipe") as post:
        code = f"import os, sys; {post.report}; sys.stdin.read()"
        person.has("ours/mcp.json", {"silent": python(code)})
        assert interrupt(post, "doctor")[0] == 130


@pytest.mark.covers("CMD-03")
def test_the_exit_code_of_mcp_test_depends_on_the_failure(person: Person) -> None:
    person.has(
        "ours/mcp.json",
        {
            "good": person.server(),
            "dies": python("exit('no licence found')"),
            "silent": {**python("import sys; sys.stdin.read()"), "timeout": 500},
            "gone": {"command": "no-such-program-here"},
        },
    )
    good = person.runs("mcp", "test", "good")
    assert (good.code, good.err) == (0, "")
    assert "✓ connect" in good.out
    assert "test 1.0.0, protocol 2026-07-28" in good.out
    assert "2 tools\nthe server works\n" in good.out
    dies = person.runs("mcp", "test", "dies")
    assert dies.code == 3
    assert "✗ connect" in dies.out
    assert "  | no licence found\n" in dies.err
    assert person.runs("mcp", "test", "silent").code == 4
    assert person.runs("mcp", "test", "gone").code == 3
    facts = json.loads(person.runs("mcp", "test", "good", "--json").out)
    assert (facts["status"], facts["tools"]) == ("ok", 2)


def test_doctor_limits_the_time_for_servers_that_hang(person: Person) -> None:
    hangs = "import signal, time; signal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"
    entries = {f"h{n}": {**python(hangs), "env": {"N": str(n)}} for n in range(6)}
    person.has("ours/mcp.json", {**entries, "good": person.server()})
    began = time.monotonic()
    _, servers, _ = examine(person)
    assert time.monotonic() - began < 11
    assert servers["good"]["status"] == "ok"
    assert all("No connection within" in servers[name]["error"] for name in entries)
    assert "`--timeout SECONDS`" in servers["h0"]["hint"]
    assert "`fairlead mcp test h0`" in servers["h0"]["hint"]


def test_doctor_checks_twenty_servers_of_which_one_hangs_within_ten_seconds(
    person: Person,
) -> None:
    hangs = "import signal, time; signal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"
    entries = {f"s{n}": {**person.server(), "env": {"N": str(n)}} for n in range(19)}
    person.has("ours/mcp.json", {**entries, "hangs": python(hangs)})
    began = time.monotonic()
    _, servers, _ = examine(person)
    assert time.monotonic() - began < 10
    assert servers["hangs"]["status"] == "failed"
    # On a busy machine, some of the other servers may not start in time.
    assert servers["s0"]["status"] == "ok"


def test_the_timeout_of_an_entry_limits_the_duration_of_its_whole_check(person: Person) -> None:
    slow = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}}
    if asked["method"] == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
    elif asked["method"] == "server/discover":
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""
    person.has("ours/mcp.json", {"slow": {**python(slow), "timeout": 1000}})
    _, servers, _ = examine(person)
    steps = {step["step"]: step for step in servers["slow"]["steps"]}
    assert (steps["connect"]["ok"], steps["tools"]["ok"]) == (True, False)
    assert steps["connect"]["ms"] + steps["tools"]["ms"] < 1500
    assert '"timeout" (milliseconds) in the entry' in servers["slow"]["hint"]


def test_doctor_shows_the_report_of_each_server_as_soon_as_its_check_ends(person: Person) -> None:
    silent = {**python("import sys; sys.stdin.read()"), "timeout": 2500}
    person.has("ours/mcp.json", {"a": silent, "b": person.server()})
    shown = person.runs("doctor").out
    assert shown.index("\nb  ") < shown.index("\na  ")
    assert [one["name"] for one in examine(person)[2]["servers"]] == ["a", "b"]


def test_control_characters_in_a_servers_stderr_are_escaped(person: Person) -> None:
    code = r"import sys; sys.exit('\x1b]0;title\x07')"
    person.has("ours/mcp.json", {"evil": python(code)})
    done = person.runs("doctor")
    assert "␛]0;title␇" in done.out
    assert "\x1b" not in done.out
