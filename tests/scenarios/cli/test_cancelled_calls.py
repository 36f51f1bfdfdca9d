"""The HTTP response to a call that its client cancels."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.cli_process import LIMIT, server_file, signpost
from tests.support.cli_user import Person, person
from tests.support.running_gateway import running

__all__ = ["person"]

Words = Callable[[Path, Path], tuple[str, ...]]
COMMANDS: dict[str, tuple[Words, str]] = {
    "serve": (lambda file, _: ("serve", "--http", "0", str(file)), ""),
    "proxy": (lambda file, _: ("proxy", "--listen", "0", "--", sys.executable, str(file)), ""),
    "gateway": (lambda _, gateway: ("gateway", "--port", "0", str(gateway)), "one_"),
}
# A client that accepts only JSON is answered without a stream.
ACCEPTS = {"json": "application/json", "events": "application/json, text/event-stream"}
TOOLS = """
@server.tool()
async def hang(ctx: Context) -> str:
    await ctx.progress(1, 2)
    {report}
    await asyncio.Event().wait()
    return "never"
"""
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def url_of(said: str) -> str:
    return next(word for word in said.split() if word.startswith("http://127.0.0.1"))


@pytest.mark.parametrize("accepts", ACCEPTS)
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_cancelled_call_is_answered_with_json_or_a_stream(
    command: str, accepts: str, tmp_path: Path, person: Person
) -> None:
    with signpost(tmp_path / "pipe") as post:
        file = server_file(tmp_path, TOOLS.format(report=post.report))
        gateway = tmp_path / "gateway.toml"
        gateway.write_text(f'[servers.one]\ncommand = "{sys.executable}"\nargs = ["{file}"]\n')
        make, prefix = COMMANDS[command]
        params: dict[str, Any] = {"name": f"{prefix}hang", "arguments": {}}
        if accepts == "events":
            params["_meta"] = {"progressToken": 1}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        cancel = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 2, "reason": "test"},
        }
        with running(person, *make(file, gateway)) as it:
            url = url_of(it.wait_for("http://127.0.0.1"))
            if command == "gateway":
                it.wait_for("one: connected")
            headers = {"Accept": ACCEPTS[accepts], "Content-Type": "application/json"}
            async with asyncio.timeout(LIMIT), aiohttp.ClientSession(headers=headers) as http:
                async with http.post(url, json=OPENING) as opened:
                    assert opened.status == 200, await opened.text()
                    session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
                calling = asyncio.create_task(read(http, url, call, session))
                await asyncio.to_thread(post.read)
                async with http.post(url, json=cancel, headers=session) as cancelled:
                    assert cancelled.status == 202
                status, kind, body = await calling
    assert status == 200
    assert kind == ("application/json" if accepts == "json" else "text/event-stream")
    assert '"id":2' in body
    assert "Request cancelled" in body


async def read(
    http: aiohttp.ClientSession, url: str, message: dict[str, Any], headers: dict[str, str]
) -> tuple[int, str, str]:
    async with http.post(url, json=message, headers=headers) as answer:
        return answer.status, answer.content_type, await answer.text()
