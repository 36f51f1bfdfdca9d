"""Tests of `fairlead replay`."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead import MCPClient, MCPClientConfig
from tests.support.cli_host import visit
from tests.support.cli_process import LIMIT, fairlead, run_by, server_file

TOOLS = """
    @server.tool()
    def shout(text: str) -> str:
        return text.upper()
"""


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Record a tape of the server in `server.py`, and return its path."""
    file = server_file(tmp_path, TOOLS)
    place = tmp_path / "one.tape.jsonl"
    assert visit("record", str(place), *run_by(file), texts=["hello"]) == ["HELLO"]
    return place


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
def test_replay_serves_a_tape_on_stdio(tape: Path, version: str) -> None:
    (tape.parent / "server.py").unlink()
    said = visit("replay", str(tape), texts=["hello", "bye", "hello"], version=version)
    assert said[0] == said[2] == "HELLO"
    assert "tools/call 'shout' is not on the tape" in said[1]
    assert 'the closest recorded arguments are {"text":"hello"}' in said[1]
    assert 'differences: text: "hello" -> "bye"' in said[1]


def test_strict_replay_requires_the_recorded_order_of_requests(tape: Path) -> None:
    said = visit("replay", str(tape), "--match", "strict", texts=["bye", "hello", "hello"])
    assert "is not on the tape; expected tools/call" in said[0]
    assert said[1] == "HELLO"
    assert "expected the end of the tape" in said[2]


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
def test_key_presses_control_a_stepped_replay(tape: Path, version: str) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fairlead", "replay", str(tape)),
            *("--listen", "http://127.0.0.1:0", "--timing", "stepped"),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    said = ""
    try:
        while "connect: " not in said:
            assert select.select([process.stderr], [], [], LIMIT)[0], said
            some = os.read(process.stderr.fileno(), 65536).decode()
            assert some, said
            said += some
        url = said.split("connect: ")[1].split("'")[1]
        process.stdin.write(b"4\n")
        process.stdin.flush()

        async def visit() -> str:
            config = MCPClientConfig(protocol_version=version)
            async with (
                asyncio.timeout(LIMIT),
                MCPClient.connect_http(url, config) as client,
            ):
                return (await client.call("shout", {"text": "hello"})).text

        assert asyncio.run(visit()) == "HELLO"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def test_invalid_options_of_replay_are_rejected(tape: Path) -> None:
    for words, said in (
        (("--timing", "slow"), "Invalid timing 'slow'"),
        (("--timing", "-1"), "Invalid timing '-1'"),
        (("--timing", "stepped"), "add --listen"),
        (("--match", "exact"), "invalid choice"),
        (("--against",), "Missing server: pass a configured name, a URL, or a command after `--`"),
    ):
        done = fairlead("replay", str(tape), *words)
        assert done.returncode == 2, words
        assert said in done.stderr
    assert "Tape not found" in fairlead("replay", str(tape.parent / "none")).stderr


@pytest.mark.covers("GTW-11")
def test_the_exit_code_of_a_replay_shows_whether_responses_differ(tape: Path) -> None:
    file = tape.parent / "server.py"
    done = fairlead("replay", str(tape), "--against", *run_by(file))
    assert (done.returncode, done.stdout) == (0, "3 compared, 0 differ\n")
    server_file(tape.parent, TOOLS.replace("upper", "title"))
    done = fairlead("replay", str(tape), "--against", *run_by(file))
    assert done.returncode == 1
    assert "    result.content.0.text: HELLO -> Hello\n" in done.stdout
    done = fairlead("replay", str(tape), "--against", "--json", *run_by(file))
    report = json.loads(done.stdout)
    assert report["same"] is False
    assert report["compared"][-1]["differences"] == [
        {"path": path, "recorded": "HELLO", "given": "Hello"}
        for path in ("result.content.0.text", "result.structuredContent.result")
    ]
    ignore = ("--ignore", "result.content.*.text", "--ignore", "result.structuredContent")
    done = fairlead("replay", str(tape), "--against", *ignore, *run_by(file))
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("target", "why", "what_to_do"),
    [
        (
            ["http://127.0.0.1:9/mcp"],
            "Could not connect to 127.0.0.1:9",
            "check that the server is running",
        ),
        (
            ["ws://127.0.0.1:9/ws"],
            "Could not connect to ws://127.0.0.1:9/ws",
            "check that the server",
        ),
        (["--", sys.executable, "-c", "input(); exit(4)"], "exited with code 4", "by hand"),
        (
            ["--", sys.executable, "-c", "exit('no disk')"],
            "exited with code 1",
            "see its output above",
        ),
    ],
)
def test_replay_reports_an_unreachable_server_once(
    tape: Path, target: list[str], why: str, what_to_do: str
) -> None:
    done = fairlead("replay", str(tape), "--against", *target)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("error: ") == 1
    assert done.stderr.count(why) == 1
    assert what_to_do in done.stderr.split("hint: ")[1]
    if "words" in what_to_do:
        assert done.stderr.splitlines()[0] == "no disk"


def test_the_start_message_of_a_replay_names_its_tape(tape: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "replay", str(tape), "--listen", "http://127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], LIMIT)[0]
        assert process.stderr.readline().startswith("serving: tape one at http://127.0.0.1:")
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize(
    ("era", "version"), [("handshake", "2025-11-25"), ("stateless", "2026-07-28")]
)
def test_the_era_option_of_replay_selects_the_era_of_the_server(
    tape: Path, era: str, version: str
) -> None:
    tool = """
        @server.tool()
        def shout(text: str, ctx: Context) -> str:
            return ctx.protocol_version
    """
    file = server_file(tape.parent, tool)
    done = fairlead("replay", str(tape), "--against", "--era", era, "--json", *run_by(file))
    [*_, call] = json.loads(done.stdout)["compared"]
    assert call["differences"][0]["given"] == version
