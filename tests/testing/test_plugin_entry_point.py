"""Tests of the entry point that registers the pytest plugin."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TEST = """
import asyncio, sys
from pathlib import Path
from fairlead import MCPClient


def test_it(fairlead_tape, request):
    assert request.config.pluginmanager.has_plugin("fairlead")
    assert not list(Path(request.config.rootpath).glob("conftest.py"))
    server = fairlead_tape("short", {"command": sys.executable, "args": ["SERVER"]})

    async def visit():
        async with asyncio.timeout(20), MCPClient.connect_inprocess(server) as client:
            return (await client.call("double", {"n": 21})).text

    assert asyncio.run(visit()) == "42"
"""
SERVER = """
from fairlead import MCPServer

server = MCPServer("numbers")


@server.tool()
def double(n: int) -> int:
    return 2 * n


server.run()
"""


def is_installed() -> bool:
    found = entry_points(group="pytest11")
    return any(one.value == "fairlead.testing.plugin" for one in found)


@pytest.mark.slow
@pytest.mark.covers("GTW-11")
def test_the_tape_fixture_is_available_through_the_package_metadata(tmp_path: Path) -> None:
    assert is_installed(), "the installed package is older than pyproject.toml: run `make install`"
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    (tmp_path / "test_it.py").write_text(TEST.replace("SERVER", str(server)))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # ignore the settings of this repository
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONPATH", "COV"))}
    for _ in ("record", "play"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        server.unlink(missing_ok=True)
    assert (tmp_path / "tapes" / "short.tape.jsonl").is_file()
