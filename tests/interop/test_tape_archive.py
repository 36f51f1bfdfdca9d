"""A tape exported as an HTTP archive, checked by a third-party validator."""

import asyncio
import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from tests.interop.test_tape_clients import OURS, serving
from tests.support.interop.node_packages import packages
from tests.support.interop.server_processes import LIMIT, command

VALIDATOR = {"har-validator": "5.1.5"}
VALIDATE = """
const { har } = require('har-validator');
har(JSON.parse(require('fs').readFileSync(process.argv[1]))).then(
    () => {}, (error) => { console.log(JSON.stringify(error.errors)); process.exit(1); });
"""


@pytest.mark.covers("GTW-10")
async def test_the_har_archive_of_a_gateway_tape_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    modules = await asyncio.to_thread(packages, "har-validator", VALIDATOR)
    monkeypatch.setenv("NODE_PATH", str(modules))
    program, *args = command("ours")
    file, tape, archive = tmp_path / "gateway.json", tmp_path / "one", tmp_path / "one.har"
    servers = {"it": {"command": program, "args": args}}
    file.write_text(json.dumps({"listen": "127.0.0.1:0", "servers": servers}))

    async def run(*words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    async with serving("gateway", str(file), "--record", str(tape)) as url:
        await run(*OURS, "call", url, "it_echo", "text=Grüße, 世界 🌍")
    await run(*OURS, "tape", "export", str(tape), "--har", "-o", str(archive))
    await run("node", "-e", VALIDATE, str(archive))

    entries = json.loads(archive.read_bytes())["log"]["entries"]
    [call] = [entry for entry in entries if entry["comment"].endswith(" tools/call")]
    sent, got = call["request"], call["response"]["content"]
    assert sent["bodySize"] == len(sent["postData"]["text"].encode())
    assert got["size"] == len(got["text"].encode())
    assert "Grüße, 世界 🌍" in got["text"]
    assert {header["name"] for header in sent["headers"]} >= {"content-type", "accept"}
    assert call["time"] == sum(call["timings"].values()) > 0
    assert datetime.fromisoformat(call["startedDateTime"]).tzinfo is not None
