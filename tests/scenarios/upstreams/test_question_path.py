"""The number of modules that a question of a server to a client passes through."""

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

from fairlead.protocol.caller import CAPABILITIES_KEY, CLIENT_INFO_KEY, VERSION_KEY
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import STATELESS, gateway_for

MOST_MODULES = 30
META = {
    VERSION_KEY: STATELESS,
    CLIENT_INFO_KEY: {"name": "client", "version": "1"},
    CAPABILITIES_KEY: {"elicitation": {"form": {}}},
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": STATELESS,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "notes_ask",
}
ANSWER = {"action": "accept", "content": {"value": "yes"}}


async def post(web: aiohttp.ClientSession, url: str, **more: Any) -> Any:
    """Return the result of a call of a tool that asks the client."""
    params = {"name": "notes_ask", "arguments": {}, "_meta": META, **more}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with web.post(url, json=message, headers=HEADERS) as response:
        text = await response.text()
    if response.content_type == "application/json":
        return json.loads(text)["result"]
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    return json.loads(lines[-1])["result"]


async def question_and_answer(web: aiohttp.ClientSession, url: str) -> None:
    asked = await post(web, url)
    answers = dict.fromkeys(asked["inputRequests"], ANSWER)
    result = await post(web, url, requestState=asked["requestState"], inputResponses=answers)
    assert "yes" in result["content"][0]["text"]


async def test_a_question_to_a_stateless_client_passes_through_at_most_30_modules(
    tmp_path: Path,
) -> None:
    """A request at the merged endpoint, a question of a handshake server, and the answer."""
    log = ServerLog(tmp_path)
    walks: list[set[str]] = []

    def called(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("fairlead."):
            walks[-1].add(module)

    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        aiohttp.ClientSession() as web,
    ):
        for _ in range(3):
            await question_and_answer(web, served.url)
        before = sys.getprofile()
        for _ in range(3):
            walks.append(set())
            sys.setprofile(called)
            try:
                await question_and_answer(web, served.url)
            finally:
                sys.setprofile(before)
    # Other tasks of the gateway may run during a walk.
    executed = min(walks, key=len)
    assert {"fairlead.relay.relay", "fairlead.upstream.connection.connection_pool"} <= executed
    assert len(executed) <= MOST_MODULES, sorted(executed)
