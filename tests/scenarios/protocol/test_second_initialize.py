"""A second `initialize` on a pipe begins a new conversation."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPServer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Notification, Request, Success

LIMIT = 20.0


class Pipe:
    """The client side of a pipe to a server, with the received messages."""

    def __init__(self, server: MCPServer) -> None:
        self._near, far = memory_pair()
        self._peer = server.attach(far, ANONYMOUS)
        self.received: asyncio.Queue[Any] = asyncio.Queue()
        self._reading = asyncio.ensure_future(self._near.run(self.received.put_nowait))

    async def ask(self, number: int, method: str, **params: Any) -> Success | Failure:
        self.send(number, method, **params)
        while True:
            message = await self.received.get()
            if isinstance(message, Success | Failure) and message.id == number:
                return message

    def send(self, number: int, method: str, **params: Any) -> None:
        self._near.send(Request(number, method, Raw(json.dumps(params).encode())))

    async def initialize(self, number: int, version: str = "2025-06-18") -> dict[str, Any]:
        answer = await self.ask(
            number,
            "initialize",
            protocolVersion=version,
            capabilities={},
            clientInfo={"name": "c", "version": "1"},
        )
        assert isinstance(answer, Success)
        self._near.send(Notification("notifications/initialized", Raw(b"{}")))
        found: dict[str, Any] = json.loads(bytes(answer.result))
        return found

    async def close(self) -> None:
        await self._near.close()
        await self._peer.close()
        await asyncio.wait((self._reading,))


@pytest.mark.covers("PRO-01")
async def test_a_second_initialize_starts_a_new_conversation() -> None:
    server = MCPServer("s")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool()
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    @server.tool()
    async def hello(ctx: Context) -> str:
        await ctx.debug("quiet")
        return "hello"

    @server.resource("memo://a", name="a")
    def memo() -> str:
        return "a"

    async with asyncio.timeout(LIMIT):
        pipe = Pipe(server)
        assert (await pipe.initialize(1))["protocolVersion"] == "2025-06-18"
        await pipe.ask(2, "resources/subscribe", uri="memo://a")
        await pipe.ask(3, "logging/setLevel", level="debug")
        pipe.send(4, "tools/call", name="wait", arguments={})
        await started.wait()

        # Ids may be reused; the pending request with the same id gets no response.
        assert (await pipe.initialize(4, "2025-03-26"))["protocolVersion"] == "2025-03-26"
        await cancelled.wait()
        server.resource_updated("memo://a")
        answer = await pipe.ask(4, "tools/call", name="hello", arguments={})
        assert isinstance(answer, Success)
        assert json.loads(bytes(answer.result))["content"][0]["text"] == "hello"
        assert pipe.received.empty()
        await pipe.close()


async def test_an_invalid_second_initialize_does_not_change_the_conversation() -> None:
    server = MCPServer("s")
    server.tool(name="hello")(lambda: "hello")
    async with asyncio.timeout(LIMIT):
        pipe = Pipe(server)
        await pipe.initialize(1)
        assert isinstance(await pipe.ask(2, "initialize", protocolVersion=7), Failure)
        assert isinstance(await pipe.ask(3, "tools/list"), Success)
        await pipe.close()
