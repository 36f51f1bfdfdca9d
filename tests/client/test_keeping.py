"""Connections that are looked after, and replaced when they are lost."""

import asyncio
from pathlib import Path

import pytest
from handmade import heard, program

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.eras import known_eras
from fairlead.errors import ChannelClosed, FairleadError, RetriesExhausted


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
async def test_a_lost_connection_is_replaced_and_set_up_as_before(tmp_path: Path) -> None:
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
            await client.call_tool("die")  # it may have done what it does: not repeated
        others = await asyncio.gather(*(who(client) for _ in range(5)))
        assert len({first, *others}) == 2  # one replacement for all of them
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
async def test_a_read_survives_the_loss_of_its_connection(tmp_path: Path) -> None:
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


async def test_a_server_that_does_not_come_back_is_given_up(tmp_path: Path) -> None:
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


async def test_without_auto_reconnect_closed_is_closed(tmp_path: Path) -> None:
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
async def test_a_check_in_the_background_replaces_a_failing_connection(tmp_path: Path) -> None:
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


async def test_closing_ends_a_reconnect_that_is_under_way(tmp_path: Path) -> None:
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


async def test_a_server_that_dies_of_the_probe_is_not_probed_again(tmp_path: Path) -> None:
    config = MCPClientConfig(timeout_seconds=5, retry_delay=0.01, auto_reconnect=True)
    async with MCPClient.connect_stdio(program(tmp_path, SHY, stateless=False), config) as client:
        first = await who(client)
        with pytest.raises(ChannelClosed):
            await client.call_tool("die")
        assert await who(client) != first
    opened = [message["method"] for message in heard(tmp_path) if "id" in message]
    assert opened.count("server/discover") == 1
