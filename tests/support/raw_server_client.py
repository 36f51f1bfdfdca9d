"""A raw client for tests that sends and receives frames in order."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from fairlead import MCPServer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.memory import memory_pair
from fairlead.wire import encode

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Wire:
    """One connection to a server, without a client library."""

    def __init__(self, server: MCPServer, *, reading: bool = True) -> None:
        self.left, right = memory_pair()
        self.peer = server.attach(right, ANONYMOUS)
        self._frames: asyncio.Queue[Any] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        if reading:
            self.read()

    def read(self) -> None:
        self._reading = asyncio.create_task(self.left.run(self._frames.put_nowait))

    def send(self, method: str, params: Any = None, *, id: Any = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if id is not None:
            message["id"] = id
        if params is not None:
            message["params"] = params
        self.left.write(json.dumps(message).encode() + b"\n")

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            frame = await self._frames.get()
        return msgspec.json.decode(encode(frame))  # type: ignore[no-any-return]

    async def ask(self, method: str, params: Any = None, *, id: Any = 1) -> dict[str, Any]:
        """Send a request and return its response, which must be the next frame."""
        self.send(method, params, id=id)
        answer = await self.next()
        assert answer["id"] == id, answer
        return answer

    def answer(self, id: Any, result: Any) -> None:
        message = {"jsonrpc": "2.0", "id": id, "result": result}
        self.left.write(json.dumps(message).encode() + b"\n")

    async def greet(self, version: str = "2025-11-25", *, asks: bool = False) -> dict[str, Any]:
        can = {"elicitation": {"form": {}}} if asks else {}
        hello = {"protocolVersion": version, "capabilities": can, "clientInfo": {"name": "c"}}
        answer = await self.ask("initialize", hello, id="hello")
        self.send("notifications/initialized")
        await self.ask("ping", id="ping")
        return answer["result"]  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self.peer.close()
        await self.left.close()
        if self._reading is not None:
            await self._reading


@contextlib.asynccontextmanager
async def wire_to(server: MCPServer, *, reading: bool = True) -> AsyncIterator[Wire]:
    wire = Wire(server, reading=reading)
    try:
        yield wire
    finally:
        await wire.close()
