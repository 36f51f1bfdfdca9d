"""Tests of a server on its own stdin and stdout: pipes, files, sockets and terminals."""

import fcntl
import json
import os
import pty
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # runs with `make test-all`

SERVER = """
import asyncio, os, subprocess, sys
from fairlead import MCPServer

server = MCPServer("noisy")

@server.tool()
def print_things() -> str:
    print("stray print")
    sys.stdout.flush()
    os.write(1, b"stray write\\n")
    subprocess.run(["echo", "stray child"])
    return "ok"

@server.tool()
def read_input() -> str:
    return repr(sys.stdin.read()) + repr(subprocess.run(["cat"], capture_output=True).stdout)

@server.tool()
async def slow() -> str:
    await asyncio.sleep(0.3)
    return "finished"

@server.tool()
async def endless() -> str:
    await asyncio.sleep(600)
    return "never"

LOOP
"""

UVLOOP = "server.run()"
ASYNCIO = "asyncio.run(server.run_stdio())"

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(number: int, tool: str) -> bytes:
    params = {"name": tool, "arguments": {}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


@pytest.fixture(params=[UVLOOP, ASYNCIO], ids=["uvloop", "asyncio"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / "server.py"
    file.write_text(SERVER.replace("LOOP", request.param))
    return str(file)


def texts(output: bytes) -> dict[int, str]:
    """Return the text of each response; fail if stdout contains another line."""
    answers = [json.loads(line) for line in output.splitlines()]
    return {a["id"]: a["result"]["content"][0]["text"] for a in answers}


@pytest.mark.covers("STD-12", "OBS-04")
def test_stray_output_of_a_server_does_not_reach_the_protocol(script: str) -> None:
    done = subprocess.run(
        [sys.executable, script], input=call(1, "print_things"), capture_output=True, timeout=20
    )
    assert texts(done.stdout) == {1: "ok"}
    assert b"stray print" in done.stderr
    assert b"stray write" in done.stderr
    assert b"stray child" in done.stderr


@pytest.mark.covers("STD-12")
def test_children_of_handlers_cannot_read_protocol_messages(script: str) -> None:
    lines = call(1, "read_input") + call(2, "print_things")
    done = subprocess.run([sys.executable, script], input=lines, capture_output=True, timeout=20)
    assert texts(done.stdout) == {1: "''b''", 2: "ok"}


@pytest.mark.covers("STD-12")
def test_an_invalid_line_is_answered_and_later_lines_are_served(script: str) -> None:
    done = subprocess.run(
        [sys.executable, script],
        input=b"what?\n" + call(1, "slow"),
        capture_output=True,
        timeout=20,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["id"], first["error"]["code"]) == (None, -32700)
    assert second["result"]["content"][0]["text"] == "finished"


@pytest.mark.covers("STD-11", "STD-13")
def test_a_server_reads_requests_from_a_file_and_writes_to_a_file(
    script: str, tmp_path: Path
) -> None:
    requests, answers = tmp_path / "in", tmp_path / "out"
    requests.write_bytes(call(1, "slow") + call(2, "print_things"))
    with requests.open("rb") as stdin, answers.open("wb") as stdout:
        subprocess.run([sys.executable, script], stdin=stdin, stdout=stdout, timeout=20, check=True)
    assert texts(answers.read_bytes()) == {1: "finished", 2: "ok"}


@pytest.mark.covers("STD-13")
def test_a_server_with_dev_null_as_stdin_and_stdout_exits_at_once(script: str) -> None:
    subprocess.run(
        [sys.executable, script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=20,
        check=True,
    )


@pytest.mark.covers("STD-13")
def test_stdin_and_stdout_may_be_the_same_socket_as_with_node_js_parents(script: str) -> None:
    ours, theirs = socket.socketpair()
    flags = fcntl.fcntl(theirs, fcntl.F_GETFL)
    process = subprocess.Popen([sys.executable, script], stdin=theirs, stdout=theirs)
    ours.settimeout(20)
    ours.sendall(call(1, "slow"))
    assert texts(ours.makefile("rb").readline()) == {1: "finished"}
    ours.shutdown(socket.SHUT_WR)
    assert process.wait(20) == 0
    assert fcntl.fcntl(theirs, fcntl.F_GETFL) == flags  # the flags of the socket are restored
    ours.close()
    theirs.close()


@pytest.mark.covers("STD-13")
def test_the_flags_of_a_shared_pipe_are_not_changed(script: str) -> None:
    reader, writer = os.pipe()
    back_reader, back_writer = os.pipe()
    before = fcntl.fcntl(reader, fcntl.F_GETFL), fcntl.fcntl(back_writer, fcntl.F_GETFL)
    process = subprocess.Popen([sys.executable, script], stdin=reader, stdout=back_writer)
    os.write(writer, call(1, "slow"))
    assert select.select([back_reader], [], [], 20)[0]
    during = fcntl.fcntl(reader, fcntl.F_GETFL), fcntl.fcntl(back_writer, fcntl.F_GETFL)
    assert during == before
    os.close(writer)
    assert process.wait(20) == 0
    for fd in (reader, back_reader, back_writer):
        os.close(fd)


@pytest.mark.covers("STD-13")
def test_a_server_on_a_terminal_prints_how_to_stop_it(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER.replace("LOOP", UVLOOP))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(file)], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    assert line == "serving: noisy on stdin and stdout. Stop with Ctrl-C or Ctrl-D.\n"
    os.write(ours, call(1, "slow"))
    seen = b""
    while b"finished" not in seen:
        assert select.select([ours], [], [], 20)[0], seen
        seen += os.read(ours, 65536)
    os.write(ours, b"\x04")  # Ctrl-D
    assert process.wait(20) == 0
    process.stderr.close()
    os.close(ours)
    os.close(theirs)


@pytest.mark.covers("STD-11")
def test_a_server_exits_promptly_when_its_stdin_ends(script: str) -> None:
    process = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(call(1, "endless") + call(2, "slow"))
    process.stdin.close()
    # Only the call that could finish was answered.
    assert texts(process.stdout.read()) == {2: "finished"}
    started = time.monotonic()
    assert process.wait(20) == 0
    assert time.monotonic() - started < 5
    process.stdout.close()


@pytest.mark.covers("SRV-10")
@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("tool", [None, "endless", "stuck", "stuck_in_executor"])
def test_a_signal_ends_a_server_in_time_even_if_a_tool_is_running(
    signal_name: str, tool: str | None, tmp_path: Path
) -> None:
    import signal

    file = tmp_path / "server.py"
    file.write_text(
        SERVER.replace(
            "LOOP",
            """
import time

@server.tool()
def stuck() -> str:
    time.sleep(600)
    return ""

@server.tool()
async def stuck_in_executor() -> str:
    await asyncio.to_thread(time.sleep, 600)
    return ""

server.run()
""",
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write((call(1, tool) if tool else b"") + call(2, "print_things"))
    process.stdin.flush()
    # This response shows that the server runs and that the first call was received.
    assert texts(process.stdout.readline()) == {2: "ok"}
    started = time.monotonic()
    process.send_signal(getattr(signal, signal_name))
    process.wait(20)
    assert time.monotonic() - started < 5.5
    assert b"Traceback" not in process.stderr.read()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
