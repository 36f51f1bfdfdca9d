"""The TypeScript client with the reference server, directly, through a tap, and with the tape."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.recording.tape import TapeReader, decode_entry
from tests.interop.test_public_servers import node_servers  # noqa: F401  (a fixture)
from tests.interop.test_typescript import SCRIPTS, node_path  # noqa: F401  (a fixture)
from tests.support.interop.server_processes import LIMIT

OURS = (sys.executable, "-m", "fairlead")
# A program that records the bytes in both directions.
EAR = """
import subprocess, sys, threading
into, out, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def pump(source, sink, file):
    with open(file, "wb") as kept:
        for line in source:
            kept.write(line)
            sink.write(line)
            sink.flush()
    sink.close()
back = threading.Thread(target=pump, args=(server.stdout, sys.stdout.buffer, out))
back.start()
pump(sys.stdin.buffer, server.stdin, into)
back.join()
sys.exit(server.wait())
"""


@pytest.fixture
def env(tmp_path: Path, node_path: str) -> dict[str, str]:  # noqa: F811
    return {**os.environ, "NODE_PATH": node_path, "FAIRLEAD_HOME": str(tmp_path / "home")}


async def visit(env: dict[str, str], *server: str) -> list[Any]:
    """Return everything that the client received from a server."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(SCRIPTS / "everything.cjs"), *server),
        stdout=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        async with asyncio.timeout(LIMIT):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    seen: list[Any] = json.loads(said)
    return seen


@pytest.mark.covers("GTW-10", "GTW-11")
async def test_typescript_client_receives_the_same_messages_through_a_tap_and_a_replay(
    node_servers: Path,  # noqa: F811
    env: dict[str, str],
    tmp_path: Path,
) -> None:
    server = str(node_servers / "mcp-server-everything")
    tape, into, out = tmp_path / "one", tmp_path / "into", tmp_path / "out"
    ear = (sys.executable, "-c", EAR, str(into), str(out))
    tap = (*ear, *OURS, "tap", "--tape", str(tape), "--", server)
    alone, tapped = await asyncio.gather(visit(env, server), visit(env, *tap))
    assert len(alone) > 25
    assert tapped == alone
    entries = list(TapeReader(tape))
    for file, way in ((into, "client_to_server"), (out, "server_to_client")):
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert [decode_entry(entry) for entry in entries if entry.dir.value == way] == lines
    assert await visit(env, *OURS, "replay", str(tape), "--timing", "4") == alone
