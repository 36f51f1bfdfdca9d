"""The number of source files that a gateway executes for a warm call with an elicitation.

A stateless client calls a tool of a handshake-only server over stdio, receives the elicitation of
the server as `input_required`, repeats the call with the response, and receives the result.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fairlead
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import STATELESS, gateway_for

MOST_FILES = 30

PACKAGE = os.path.dirname(fairlead.__file__) + os.sep
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": STATELESS,
    f"{PREFIX}clientCapabilities": {"elicitation": {}},
    f"{PREFIX}clientInfo": {"name": "c", "version": "1"},
}


@pytest.mark.parametrize("endpoint", ["merged", "single"])
async def test_a_warm_call_with_an_elicitation_executes_few_source_files(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        aiohttp.ClientSession() as http,
    ):
        merged = endpoint == "merged"
        url, tool = (served.url, "notes_ask") if merged else (f"{served.url}/notes", "ask")
        await complete_call(http, url, tool)
        await log.quiet()
        with executed_files() as files:
            await complete_call(http, url, tool)
    assert len(files) <= MOST_FILES, "\n".join(sorted(files))


@contextmanager
def executed_files() -> Iterator[set[str]]:
    """Yield the package files whose functions the event loop thread enters."""
    files: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            files.add(name.removeprefix(PACKAGE))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


async def complete_call(http: aiohttp.ClientSession, url: str, tool: str) -> None:
    """Call a tool that elicits input, and call it again with the response."""
    params: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": META}
    asked = await send(http, url, params)
    assert asked["resultType"] == "input_required", asked
    responses = {
        key: {"action": "accept", "content": {"value": "yes"}} for key in asked["inputRequests"]
    }
    state = {"requestState": asked["requestState"], "inputResponses": responses}
    done = await send(http, url, {**params, **state})
    assert '"value": "yes"' in done["content"][0]["text"], done


async def send(http: aiohttp.ClientSession, url: str, params: dict[str, Any]) -> dict[str, Any]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    # This client does not use Fairlead, so only files of the gateway are counted.
    async with http.post(url, json=message, headers=headers) as response:
        assert response.status == 200, await response.text()
        answer = await response.json()
    return answer["result"]  # type: ignore[no-any-return]
