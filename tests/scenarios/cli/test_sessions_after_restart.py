"""`--sessions FILE`: client sessions survive if the program is killed and restarted."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.cli_process import LIMIT, fairlead, server_file
from tests.support.cli_user import Person, person
from tests.support.running_gateway import running

__all__ = ["person"]

TOOLS = """
    @server.tool()
    def shout(text: str) -> str:
        return text.upper()
"""
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def rpc(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


OPENING = rpc(
    1,
    "initialize",
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
)


def url_of(said: str) -> str:
    return next(word for word in said.split() if word.startswith("http://127.0.0.1"))


Words = Callable[[Path, Path], tuple[str, ...]]
COMMANDS: dict[str, tuple[Words, str]] = {
    "serve": (lambda file, _: ("serve", "--http", "0", str(file)), "shout"),
    "proxy": (
        lambda file, _: ("proxy", "--listen", "0", "--", sys.executable, str(file)),
        "shout",
    ),
    "gateway": (lambda _, gateway: ("gateway", "--port", "0", str(gateway)), "one_shout"),
}


@pytest.mark.covers("GTW-13")
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_client_session_continues_after_the_program_was_killed_and_restarted(
    command: str, tmp_path: Path, person: Person
) -> None:
    file = server_file(tmp_path, TOOLS)
    gateway = tmp_path / "gateway.toml"
    gateway.write_text(f'[servers.one]\ncommand = "{sys.executable}"\nargs = ["{file}"]\n')
    make, tool = COMMANDS[command]
    first, *rest = make(file, gateway)
    words = (first, "--sessions", str(tmp_path / "sessions.db"), *rest)
    headers = dict(HEADERS)
    for turn in range(2):
        with running(person, *words) as it:
            url = url_of(it.wait_for("http://127.0.0.1"))
            async with asyncio.timeout(LIMIT), aiohttp.ClientSession(headers=headers) as http:
                if turn == 0:
                    async with http.post(url, json=OPENING) as answer:
                        headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
                call = rpc(2 + turn, "tools/call", {"name": tool, "arguments": {"text": "hi"}})
                async with http.post(url, json=call, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    assert '"HI"' in await answer.text()
            it.process.kill()


def test_an_invalid_sessions_file_is_reported_at_start(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").write_text("this is not a database, but long enough to be read" * 50)
    file = server_file(tmp_path, TOOLS)
    words = ("serve", "--http", "0", "--sessions", str(tmp_path / "sessions.db"), str(file))
    done = fairlead(*words)
    assert done.returncode == 2
    assert "file is not a database" in done.stderr
    done = fairlead(*words, "--workers", "2")
    assert (done.returncode, "omit --sessions" in done.stderr) == (2, True)
