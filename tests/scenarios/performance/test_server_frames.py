"""Fast because little happens: how many Python frames one warm call enters in the server."""

import asyncio
import json
import sys
from types import FrameType
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.transport.memory import memory_pair

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_warm_call_enters_few_frames(era: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)
    answers: asyncio.Queue[Any] = asyncio.Queue()
    reading = asyncio.create_task(left.run(answers.put_nowait))

    def call(number: int) -> bytes:
        meta = META if era == "stateless" else {"progressToken": number}
        params = {"name": "echo", "arguments": {"text": "x" * 50}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        return json.dumps(message).encode() + b"\n"

    if era == "handshake":
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        left.write(json.dumps(first).encode() + b"\n")
        await answers.get()
    left.write(call(1))
    await answers.get()

    entered: list[str] = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "fairlead" in frame.f_code.co_filename:
            entered.append(frame.f_code.co_qualname)

    left.write(call(2))
    sys.setprofile(count)
    try:
        async with asyncio.timeout(5):
            answer = await answers.get()
    finally:
        sys.setprofile(None)
    assert b"xxxxx" in bytes(answer.result)
    # The aim is 150 for the whole server; a jump above this says that a layer was added.
    assert 10 < len(entered) <= 60, entered
    await peer.close()
    await left.close()
    await reading
