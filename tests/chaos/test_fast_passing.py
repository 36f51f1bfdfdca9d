"""Order and responses of requests that a relay forwards without a task."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.socket import connect_unix
from fairlead.upstream.server_target import ServerTarget
from tests.support.line_sockets import listen_unix
from tests.support.raw_relay import Client, Scene, scene

LIMIT = 10.0
CANCELLED = "notifications/cancelled"


@pytest.fixture(params=[True, False], ids=["task", "taskless"])
def waits(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Stubborn:
    """An interceptor that blocks cancellations."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == CANCELLED:
            raise RpcError(-1, "cancellation is blocked")
        return await proceed(exchange)


@pytest.mark.parametrize("first_ends_first", [True, False])
async def test_a_reused_id_gets_the_response_to_its_own_request(
    waits: bool, first_ends_first: bool
) -> None:
    async with scene(interceptors=[Stubborn(waits)]) as place:
        client = await place.session()
        server = await place.server()
        await client.sync()
        sent = []
        for what in ("first", "second"):
            client.ask("tools/call", {"name": what}, request_id=7)
            request = await server.method("tools/call")
            assert request["params"]["name"] == what
            sent.append(request)
            if what == "first":
                client.tell(CANCELLED, {"requestId": 7})
                await client.sync()  # wait until the cancellation was blocked
        for request in sent if first_ends_first else reversed(sent):
            server.reply(request, {"content": [], "of": request["params"]["name"]})
        assert (await client.answer_to(7))["result"]["of"] == "second"
        await client.sync()
        assert [m for m in client.skipped if m.get("id") == 7] == []


class Clumsy:
    """An interceptor that raises an error when it is cancelled."""

    waits = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        except asyncio.CancelledError:
            raise ValueError("could not clean up") from None


async def test_an_interceptor_that_fails_on_disconnect_does_not_block_other_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(interceptors=[Clumsy()]) as place:
        client, other = await place.session(), await place.session()
        server = await place.server()
        ids = set()
        for n in range(3):
            client.ask("tools/call", {"name": str(n)})
            ids.add((await server.method("tools/call"))["id"])
        await client.close()
        for _ in range(3):  # the server receives one cancellation per call
            note = await server.method(CANCELLED)
            ids.remove(note["params"]["requestId"])
        assert ids == set()
        other.ask("tools/call", {"name": "still"}, request_id="x")
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await other.answer_to("x")
        async with asyncio.timeout(LIMIT):
            while len(place.relay._sessions_by_peer) > 1:
                await asyncio.sleep(0.002)
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == []


class Slow:
    """A server that reads only when a test releases it."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.order: list[int] = []
        self.done = asyncio.Event()
        self.last = -1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if message.get("method") == "initialize":
                    said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                    result = {**said, "serverInfo": {"name": "slow", "version": "1"}}
                elif message.get("method") == "tools/call":
                    await self.reads.wait()
                    self.order.append(message["params"]["arguments"]["n"])
                    if self.order[-1] == self.last:
                        self.done.set()
                    result = {"content": []}
                else:
                    continue
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()


@contextlib.asynccontextmanager
async def slow_scene(slow: Slow, **options: Any) -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory() as folder:
        behind, before = str(Path(folder) / "behind"), str(Path(folder) / "before")
        relay = Relay(
            ServerTarget(name="slow", open=lambda: connect_unix(behind), is_process=True), **options
        )
        place = Scene(relay, before)
        async with (
            await asyncio.start_unix_server(slow.serve, behind, limit=64 << 10),
            listen_unix(before, lambda channel: relay.attach(channel, ANONYMOUS) and None),
        ):
            try:
                yield place
            finally:
                await relay.close()
                await place.close()


class Looks:
    waits = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


@pytest.mark.parametrize("interceptors", [(), (Looks(),)], ids=["bare", "looked at"])
@pytest.mark.parametrize("size", [20_000, 60_000])
async def test_requests_to_a_slow_server_stay_in_order(
    interceptors: Any, size: int, loop_kind: str
) -> None:
    slow = Slow()
    async with slow_scene(slow, interceptors=interceptors) as place:
        client = await place.session()
        reading = asyncio.ensure_future(swallow(client))

        def send(n: int, filling: int) -> None:
            arguments = {"n": n, "filling": "x" * filling}
            client.ask("tools/call", {"name": "x", "arguments": arguments})

        connection = next(iter(place.relay.pool.connections))
        n = 0
        async with asyncio.timeout(LIMIT):
            for _ in range(6):
                while not connection.peer.channel.congested:
                    send(n, size)
                    n += 1
                    await asyncio.sleep(0)
                for _ in range(5):
                    send(n, size)
                    n += 1
                slow.reads.set()
                while connection.peer.channel.congested:
                    send(n, 10)
                    n += 1
                    for _ in range(3):
                        await asyncio.sleep(0)
                    if n % 50 == 0:
                        await asyncio.sleep(0.001)
                for _ in range(5):
                    send(n, 10)
                    n += 1
                    await asyncio.sleep(0)
                slow.reads.clear()
            slow.last = n
            send(n, 10)
            slow.reads.set()
            await slow.done.wait()
        assert slow.order == list(range(n + 1))
        reading.cancel()
        await asyncio.wait((reading,))


async def swallow(client: Client) -> None:
    while await client._reader.readline():
        pass


async def test_requests_queued_after_cancelled_requests_are_served() -> None:
    """Send and cancel requests in one chunk; later queued requests must still run."""
    server = MCPServer("turns", rate_limit_rate=0)

    @server.tool()
    async def slow(n: int) -> str:
        await asyncio.sleep(0)
        return str(n)

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "it")
        async with listen_unix(path, lambda channel: server.attach(channel, ANONYMOUS) and None):
            client = Client(*await asyncio.open_unix_connection(path, limit=1 << 20))
            await client.initialize()
            asked = 400
            lines = []
            for n in range(asked):
                params = {"name": "slow", "arguments": {"n": n}}
                lines.append({"id": n, "method": "tools/call", "params": params})
            lines += [{"method": CANCELLED, "params": {"requestId": n}} for n in range(300)]
            everything = [json.dumps({"jsonrpc": "2.0", **line}).encode() for line in lines]
            client.send(b"\n".join(everything))
            heard = {}
            while len(heard) < 100:
                message = await client.read()
                if message["id"] >= 300:
                    heard[message["id"]] = message["result"]["content"][0]["text"]
            assert heard == {n: str(n) for n in range(300, asked)}
            await client.close()
