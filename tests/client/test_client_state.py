"""Tests of client state and capabilities before, during and after a connection."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client.client import _key
from fairlead.client.mcp_transport.mcp_transport import AbortSignal, abortable
from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from fairlead.errors import ChannelClosed, HttpError
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.client.mcp_transport.test_network import serving
from tests.support.in_memory_client import client_of


def server_with_levels() -> MCPServer:
    server = MCPServer("s", version="3", instructions="read me")

    @server.tool()
    async def talk(ctx: Context) -> str:
        for level in ("debug", "info", "error"):
            await ctx.log(level, level)
        return ""

    return server


async def test_the_properties_of_an_unconnected_client_are_empty() -> None:
    client = MCPClient.connect_http("http://127.0.0.1:1")._make()
    assert not client.connected
    assert client.server == {}
    assert client.protocol_version is None
    assert client.instructions is None
    assert client.health is None
    assert client.generation == 0
    checked = await client.health_check()
    assert (checked["ok"], checked["server"]) == (False, None)
    assert checked["error"]
    await client.close()


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
async def test_a_connected_client_has_the_name_version_and_instructions_of_its_server(
    version: str,
) -> None:
    async with client_of(server_with_levels(), version) as client:
        assert client.connected
        known = client.server
        assert known["protocolVersion"] == client.protocol_version
        assert (client.protocol_version == "2025-11-25") is (version != "auto")
        assert known["serverInfo"]["name"] == "s"
        assert known["instructions"] == client.instructions == "read me"
        checked = await client.health_check()
        assert (checked["ok"], checked["server"]) == (True, "s")
        assert checked.keys() == {"ok", "latency_ms", "server"}
        assert (await client.discover())["capabilities"] == known["capabilities"]
    assert not client.connected
    with pytest.raises(ChannelClosed):
        await client.ping()


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
async def test_log_messages_have_at_least_the_requested_level(version: str) -> None:
    async with client_of(server_with_levels(), version) as client:
        heard: list[Any] = []
        client.on_log = lambda level, *_: heard.append(level)
        await client.set_log_level("info")
        await client.call("talk")
        async with asyncio.timeout(5):
            while len(heard) < 2:
                await asyncio.sleep(0)
        assert heard == ["info", "error"]


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
async def test_a_client_with_a_log_callback_receives_messages_from_level_info(version: str) -> None:
    heard: list[Any] = []
    server = server_with_levels()
    config = MCPClientConfig(protocol_version=version)

    def on_log(level: str, data: Any, logger: str | None) -> None:
        heard.append(level)

    async with MCPClient.connect_inprocess(server, config, on_log=on_log) as client:
        await client.call("talk")
        assert heard == ["info", "error"]
        await client.set_log_level("error")
        await client.call("talk")
        assert heard == ["info", "error", "error"]


@pytest.mark.parametrize("capabilities", [{"logging": {}}, {}])
async def test_only_a_handshake_server_with_logging_is_asked_for_a_level(
    capabilities: dict[str, Any],
) -> None:
    asked: list[str] = []

    async def answer(exchange: Exchange, proceed: Proceed) -> Answer:
        asked.append(exchange.method)
        if exchange.method == "logging/setLevel":
            raise RpcError(-32601, "not supported")
        if exchange.method == "initialize":
            said = msgspec.json.decode(await proceed(exchange) or b"")
            return msgspec.json.encode({**said, "capabilities": capabilities})
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[answer])
    config = MCPClientConfig(protocol_version="2025-11-25")
    # The refusal does not affect the connection.
    async with MCPClient.connect_inprocess(server, config, on_log=print) as client:
        await client.ping()
    assert ("logging/setLevel" in asked) is bool(capabilities)
    asked.clear()
    async with MCPClient.connect_inprocess(server, config) as client:
        await client.ping()
    assert "logging/setLevel" not in asked


async def test_a_capability_is_declared_when_its_callback_is_set() -> None:
    def callback(*_: Any) -> Any:
        raise AssertionError

    async with client_of(MCPServer("s")) as client:
        assert client._identity.capabilities == b"{}"
        for name, declared in (
            ("on_elicit", b'{"elicitation":{"form":{}}}'),
            ("on_sample", b'{"sampling":{}}'),
            ("on_roots", b'{"roots":{"listChanged":true}}'),
        ):
            setattr(client, name, callback)
            assert getattr(client, name) is callback
            assert client._identity.capabilities == declared
            setattr(client, name, None)
            assert getattr(client, name) is None
            assert client._identity.capabilities == b"{}"


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        (MCPStdioServerConfig(command="x"), ("x", None, ())),
        (
            MCPStdioServerConfig(command="x", args=["a"], cwd="/d", env={"B": "2", "A": "1"}),
            ("x", "a", "/d", (("A", "1"), ("B", "2"))),
        ),
        (MCPHttpServerConfig(url="http://x", headers={"A": "1"}), "http://x"),
        (MCPWebSocketServerConfig(url="ws://x"), "ws://x"),
    ],
    ids=["command", "whole command", "http", "websocket"],
)
def test_a_server_is_identified_by_its_command_or_url(entry: Any, key: object) -> None:
    assert _key(entry) == key


async def test_a_failed_notification_over_http_raises_its_error() -> None:
    server, known = MCPServer("s"), {"good": "ada"}
    config = MCPClientConfig(protocol_version="2025-11-25")
    headers = {"Authorization": "Bearer good"}
    async with serving(server, verify_token=known.get) as url:
        async with MCPClient.connect_http(url, config, headers=headers) as client:
            await client.transport.notify("notifications/x")
            known.clear()
            with pytest.raises(HttpError, match="HTTP 401"):
                await client.transport.notify("notifications/x")


async def test_headers_are_sent_in_the_websocket_handshake() -> None:
    server, tokens = MCPServer("s"), list[str]()

    def verify(token: str) -> str | None:
        tokens.append(token)
        return "ada" if token == "good" else None

    async with serving(server, verify_token=verify) as url:
        target = url.replace("http://", "ws://").replace("/mcp", "/ws")
        headers = {"Authorization": "Bearer good"}
        async with MCPClient.connect_websocket(target, headers=headers) as client:
            await client.ping()
    assert "good" in tokens


async def test_aborting_a_signal_cancels_the_request() -> None:
    begun = asyncio.Event()

    async def work() -> Raw:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def done() -> Raw:
        return Raw(b"{}")

    for reason in (ValueError("enough"), None):
        signal = AbortSignal()
        waiting = asyncio.create_task(abortable(work(), signal))
        await begun.wait()
        assert len(signal._callbacks) == 1
        signal.abort(reason)
        signal.abort(KeyError())
        with pytest.raises(ValueError if reason else asyncio.CancelledError):
            await waiting
        assert (signal.reason, len(signal._callbacks)) == (reason, 0)
        with pytest.raises(ValueError if reason else asyncio.CancelledError):
            await abortable(work(), signal)
        begun.clear()
    signal = AbortSignal()
    assert await abortable(done(), signal) == Raw(b"{}")
    assert len(signal._callbacks) == 0


@pytest.mark.parametrize(
    ("version", "cache", "kept"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("2025-11-25", True, False),
        ("2025-11-25", False, False),
    ],
)
async def test_results_are_cached_in_the_stateless_era_if_configured(
    version: str, cache: bool, kept: bool
) -> None:
    config = MCPClientConfig(protocol_version=version, cache=cache)
    async with MCPClient.connect_inprocess(server_with_levels(), config) as client:
        assert (client._cache is not None) is kept
