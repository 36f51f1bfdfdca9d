"""Tests of health checks and of replacing lost connections."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.connection.reconnect import Reconnector
from fairlead.errors import ChannelClosed, ConnectFailed, FairleadError, RetriesExhausted
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


MORTAL = """
for request in requests():
    name = request.get("params", {}).get("name")
    if name == "die":
        os._exit(9)
    elif name == "who":
        answer(request, {"content": text(str(os.getpid()))})
    elif "id" in request:
        answer(request, {"contents": []})
"""
STUBBORN = MCPClientConfig(
    timeout_seconds=5, retry_delay=0.01, auto_reconnect=True, protocol_version="latest"
)


async def who(client: MCPClient) -> str:
    return (await client.call("who")).text


@pytest.mark.covers("CLT-24", "DEC-25", "DEC-11")
async def test_a_lost_connection_is_replaced_and_restored(tmp_path: Path) -> None:
    command = program(tmp_path, MORTAL, stateless=False)
    ends: list[ChannelClosed] = []
    async with MCPClient.connect_stdio(command, STUBBORN) as client:
        client.transport.on_close = ends.append
        assert (await client.discover())["serverInfo"]["name"] == "hand-made"
        await client.set_log_level("warning")
        await client.subscribe("memo://a")
        await client.subscribe("memo://b")
        await client.unsubscribe("memo://b")
        first, transport = await who(client), client.transport
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")  # the call may have had an effect, so it is not repeated
        others = await asyncio.gather(*(who(client) for _ in range(5)))
        assert len({first, *others}) == 2  # one new connection for all calls
        assert client.generation == 1
        assert client.transport is not transport
        assert not transport.connected
    assert len(ends) == 2
    methods = [message["method"] for message in heard(tmp_path)]
    again = methods.index("initialize", methods.index("initialize") + 1)
    assert methods[again : again + 4] == [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
    ]
    uris = [m["params"]["uri"] for m in heard(tmp_path, "resources/subscribe")]
    assert uris == ["memo://a", "memo://b", "memo://a"]


@pytest.mark.covers("CLT-24")
async def test_a_read_is_repeated_after_the_loss_of_its_connection(tmp_path: Path) -> None:
    source = """
    for request in requests():
        if request["method"] == "resources/read":
            if not os.path.exists(LOG + ".died"):
                open(LOG + ".died", "w").close()
                os._exit(9)
            answer(request, {"contents": []})
    """
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(command, STUBBORN) as client:
        assert await client.read("memo://x") == []
        assert client.generation == 1


async def test_a_read_from_a_server_that_stays_unreachable_fails(tmp_path: Path) -> None:
    command = program(tmp_path, MORTAL, stateless=False)
    async with MCPClient.connect_stdio(command, STUBBORN) as client:
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")
        (tmp_path / "server.py").write_text("raise SystemExit(5)")
        with pytest.raises(RetriesExhausted, match="failed after 3 retries"):
            await client.read("memo://x")
        assert client.generation == 0
        await client.close()
        with pytest.raises(ChannelClosed):
            await client.read("memo://x")


async def test_without_auto_reconnect_a_closed_connection_stays_closed(tmp_path: Path) -> None:
    command = program(tmp_path, MORTAL, stateless=False)
    config = MCPClientConfig(protocol_version="latest", health_check_interval=0.05)
    async with MCPClient.connect_stdio(command, config) as client:
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")
        with pytest.raises(ChannelClosed, match="Transport not connected"):
            await who(client)
        async with asyncio.timeout(5):
            while client.health is None or client.health["ok"]:
                await asyncio.sleep(0.01)
        assert client.generation == 0


@pytest.mark.covers("CLT-24")
async def test_a_health_check_replaces_a_failing_connection(tmp_path: Path) -> None:
    command = program(tmp_path, MORTAL, stateless=False)
    config = MCPClientConfig(
        protocol_version="latest", health_check_interval=0.05, auto_reconnect=True
    )
    async with MCPClient.connect_stdio(command, config) as client:
        with pytest.raises(FairleadError):
            await client.call_tool("die")
        async with asyncio.timeout(5):
            while client.generation == 0 or not (client.health or {}).get("ok"):
                await asyncio.sleep(0.01)
        assert client.connected
        assert client.health is not None


async def test_closing_the_client_ends_a_reconnect_in_progress(tmp_path: Path) -> None:
    command = program(tmp_path, MORTAL, stateless=False)
    async with MCPClient.connect_stdio(command, STUBBORN) as client:
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")
        started = tmp_path / "started"
        (tmp_path / "server.py").write_text(
            f"import time; open({str(started)!r}, 'w').close(); time.sleep(60)"
        )
        call = asyncio.ensure_future(client.read("memo://x"))
        async with asyncio.timeout(5):
            while not started.exists():
                await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(FairleadError):
                await call
        assert not client.connected


SHY = """
for line in sys.stdin:
    with open(LOG, "a") as log:
        log.write(line)
    request = json.loads(line)
    name = request.get("params", {}).get("name")
    if request["method"] == "server/discover" or name == "die":
        os._exit(7)
    elif request["method"] == "initialize":
        answer(request, {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES})
    elif name == "who":
        answer(request, {"content": text(str(os.getpid()))})
"""


async def test_a_server_that_exits_during_the_probe_is_not_probed_again(tmp_path: Path) -> None:
    config = MCPClientConfig(timeout_seconds=5, retry_delay=0.01, auto_reconnect=True)
    async with MCPClient.connect_stdio(program(tmp_path, SHY, stateless=False), config) as client:
        first = await who(client)
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")
        assert await who(client) != first
    opened = [message["method"] for message in heard(tmp_path) if "id" in message]
    assert opened.count("server/discover") == 1


class Line:
    """A transport that is connected until it is closed."""

    logins = None  # no request waits for user input

    def __init__(self) -> None:
        self.connected = True

    async def close(self) -> None:
        self.connected = False


class Kept:
    """A fake client for a `Reconnector`."""

    def __init__(self, *, timeout: float = 5.0, opens: bool = True) -> None:
        self.config = MCPClientConfig(timeout_seconds=timeout, retry_delay=0.001)
        self.transport = Line()
        self.made: list[Line] = []
        self.healthy = True
        self.failure: Exception | None = None
        self.restored = 0
        self._opens = opens

    def make(self) -> Line:
        self.made.append(Line())
        return self.made[-1]

    async def open_on(self, transport: Line) -> None:
        if not self._opens:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        self.transport = transport

    async def restore(self) -> None:
        self.restored += 1
        raise ConnectFailed("not everything")

    async def health_check(self) -> dict[str, Any]:
        return {"ok": self.healthy}


def keeper(client: Kept) -> Reconnector:
    return Reconnector(client, client.make)  # type: ignore[arg-type]


async def test_a_connection_is_renewed_once_for_all_callers() -> None:
    client = Kept()
    keep, first = keeper(client), client.transport
    await asyncio.gather(keep.renew(0), keep.renew(0), keep.renew(0))
    assert (keep.generation, len(client.made), client.restored) == (1, 1, 1)
    assert not first.connected
    assert client.transport is client.made[0]
    assert client.transport.connected


async def test_a_connection_that_does_not_open_in_time_is_closed() -> None:
    client = Kept(timeout=0.01, opens=False)
    keep = keeper(client)
    with pytest.raises(ConnectFailed, match="Could not reconnect in time"):
        await keep.renew(0)
    assert keep.generation == 0
    assert [line.connected for line in client.made] == [False]


async def test_a_request_counts_as_undelivered_if_the_new_connection_is_lost_while_it_opens() -> (
    None
):
    client = Kept()
    client.failure = ChannelClosed("again", delivered=True)
    with pytest.raises(ChannelClosed) as lost:
        await keeper(client).renew(0)
    assert lost.value.delivered is False
    assert [line.connected for line in client.made] == [False]


async def test_a_closed_reconnector_neither_reconnects_nor_runs_health_checks() -> None:
    client = Kept()
    keep = keeper(client)
    assert keep.can_renew
    await keep.close()
    assert not keep.can_renew
    with pytest.raises(ChannelClosed, match="the client is closed"):
        await keep.renew(0)
    keep.watch(0.001)
    keep.lost()
    assert (keep._watch, keep._reviving) == (None, None)
    assert client.made == []


async def test_closing_the_client_ends_a_connection_attempt_in_progress() -> None:
    client = Kept(timeout=0, opens=False)
    keep = keeper(client)
    renewing = asyncio.create_task(keep.renew(0))
    while not client.made:
        await asyncio.sleep(0)
    client._opens = True
    closing = asyncio.create_task(keep.close())
    await asyncio.sleep(0)
    assert not client.made[0].connected
    renewing.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait((renewing,))
        await closing


async def test_a_lost_connection_is_replaced_in_the_background() -> None:
    client = Kept()
    keep = keeper(client)
    client.failure = ConnectFailed("not yet")
    await client.transport.close()
    keep.lost()
    keep.lost()
    async with asyncio.timeout(5):
        while len(client.made) < 3:
            await asyncio.sleep(0.001)
        client.failure = None
        while keep._reviving is not None:
            await asyncio.sleep(0.001)
    assert keep.generation == 1
    assert client.transport.connected
    await keep.close()


async def test_a_server_that_fails_health_checks_is_reconnected() -> None:
    client = Kept()
    keep = keeper(client)
    keep.watch(0)
    assert keep._watch is None
    keep.watch(0.001)
    watch = keep._watch
    keep.watch(0.001)
    assert keep._watch is watch
    async with asyncio.timeout(5):
        while keep.health is None:
            await asyncio.sleep(0.001)
        assert client.made == []
        client.healthy = False
        client.failure = ConnectFailed("not yet")
        while len(client.made) < 2:
            await asyncio.sleep(0.001)
        client.failure = None
        while keep.generation < 1:
            await asyncio.sleep(0.001)
    await keep.close()
    assert watch is not None
    assert watch.cancelled()


async def test_closing_a_client_ends_its_delays_and_background_tasks() -> None:
    keep = keeper(Kept())
    await keep.pause(0.001)
    assert await keep.run_until_closed(asyncio.sleep(0, "done")) == "done"
    pausing = asyncio.create_task(keep.pause(60))
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    working = asyncio.create_task(keep.run_until_closed(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await keep.close()
    async with asyncio.timeout(5):
        for waiting in (pausing, working):
            with pytest.raises(ChannelClosed) as closed:
                await waiting
            assert closed.value.delivered is True
    assert stopped.is_set()
