"""Client requests wait for the `initialize` response, even if interceptors delay it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Raw
from websockets.asyncio.client import connect

from fairlead import MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Relay
from fairlead.interceptor import Answer, Exchange
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification, Request

LIMIT = 10.0


class SlowStart:
    """An interceptor that delays or rejects `initialize` and records the order of exchanges."""

    def __init__(self, refuses: bool = False) -> None:
        self.ended: list[str] = []
        self.begun: list[str] = []
        self.go_on = asyncio.Event()
        self._refuses = refuses

    async def __call__(self, exchange: Exchange, proceed: Any) -> Answer:
        self.begun.append(exchange.method)
        if exchange.method == "initialize":
            if self._refuses:
                raise RpcError(-32000, "not you")
            await self.go_on.wait()
        answer: Answer = await proceed(exchange)
        self.ended.append(exchange.method)
        return answer


def make_server() -> MCPServer:
    server = MCPServer("s", rate_limit_rate=0)

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@asynccontextmanager
async def serving(target: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(target.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result().replace("http", "ws", 1).replace("/mcp", "/ws")
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_requests_after_initialize_wait_for_its_response_but_a_ping_does_not() -> None:
    opened, order = asyncio.Event(), list[str]()

    async def handler(exchange: Exchange) -> Answer:
        if exchange.method == "initialize":
            await opened.wait()
        order.append(exchange.method)
        return b"{}"

    near, far = memory_pair()
    peer = Peer(far, Conversation(ConversationRole.SERVER, principal=ANONYMOUS), handler=handler)
    peer.start()
    answers: asyncio.Queue[Any] = asyncio.Queue()
    reading = asyncio.create_task(near.run(answers.put_nowait))
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    near.send(Request(1, "initialize", Raw(json.dumps(params).encode())))
    near.send(Notification("notifications/initialized"))
    near.send(Request(2, "tools/list"))
    near.send(Request(3, "ping"))
    async with asyncio.timeout(LIMIT):
        assert (await answers.get()).id == 3
        assert order == ["ping"]
        opened.set()
        assert [(await answers.get()).id for _ in range(2)] == [1, 2]
    await peer.close()
    reading.cancel()
    await asyncio.wait({reading})


async def test_tool_call_frames_wait_for_their_implicit_handshake() -> None:
    slow = SlowStart()
    relay = Relay(make_server(), interceptors=[slow])
    async with asyncio.timeout(LIMIT), serving(relay) as url, connect(url) as socket:
        for number in range(3):
            call = {"id": number, "name": "add", "arguments": {"a": number, "b": 1}}
            await socket.send(json.dumps(call))
        while "initialize" not in slow.begun:
            await asyncio.sleep(0)
        slow.go_on.set()
        answers = sorted([json.loads(await socket.recv()) for _ in range(3)], key=lambda a: a["id"])
        texts = [answer["result"]["content"][0]["text"] for answer in answers]
        assert texts == ["1", "2", "3"]
        assert slow.ended.index("initialize") < slow.ended.index("tools/call")
    await relay.close()


@pytest.mark.parametrize("first", [True, False])
async def test_every_tool_call_frame_is_rejected_if_the_handshake_is_rejected(first: bool) -> None:
    strict = SlowStart(refuses=True)
    relay = Relay(make_server(), interceptors=[strict])
    async with asyncio.timeout(LIMIT), serving(relay) as url, connect(url) as socket:
        call = {"id": 1, "name": "add", "arguments": {"a": 1, "b": 1}}
        await socket.send(json.dumps(call))
        assert "error" in json.loads(await socket.recv())
        if not first:
            await socket.send(json.dumps({**call, "id": 2}))
            answer = json.loads(await socket.recv())
            assert (answer["id"], answer["error"]["message"]) == (2, "not you")
        assert "tools/call" not in strict.ended
    await relay.close()
