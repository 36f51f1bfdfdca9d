"""Opening of clients for configured servers: time limits, and cleanup after failures."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClientConfig
from fairlead.client.server_entry import MCPStdioServerConfig, read_entry
from fairlead.errors import ConnectFailed
from fairlead.upstream.open_client import connect_timeout_error, open_client
from tests.support.managed_servers import entry


async def test_the_request_timeout_does_not_limit_the_start(tmp_path: Path) -> None:
    config = MCPClientConfig(timeout_seconds=0.3, auto_reconnect=True, protocol_version="latest")
    slow = read_entry(entry(tmp_path, "slow", "slow", "0.5"))
    client = await open_client("slow", slow, 20.0, config, {})
    async with client:
        assert client.config == replace(config, auto_reconnect=False)
        assert client.transport.timeout == 0.3
        assert (config.timeout_seconds, config.auto_reconnect) == (0.3, True)
        assert client.instructions == "use slow well"


async def test_a_client_opened_without_a_configuration_uses_the_defaults(tmp_path: Path) -> None:
    client = await open_client("plain", read_entry(entry(tmp_path, "plain")), 0, None, {})
    async with client:
        assert client.config == MCPClientConfig()
        assert client.transport.timeout == 30.0


async def test_notifications_are_passed_to_the_callback(tmp_path: Path) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    def on_notification(method: str, params: dict[str, Any]) -> None:
        heard.put_nowait(method)

    config = MCPClientConfig(protocol_version="latest")
    plain = read_entry(entry(tmp_path, "plain"))
    client = await open_client("plain", plain, 0, config, {"on_notification": on_notification})
    async with client, asyncio.timeout(20):
        await client.call_tool("grow")
        assert await heard.get() == "notifications/tools/list_changed"


async def test_a_server_that_does_not_connect_in_time_is_terminated(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; exec sleep 3600"
    silent = MCPStdioServerConfig(command="/bin/sh", args=["-c", script])
    with pytest.raises(ConnectFailed) as failed:
        await open_client("silent", silent, 0.5, None, {})
    assert str(failed.value) == 'Connection to MCP server "silent" timed out after 500ms'
    assert failed.value.public == "did not answer within 0.5 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_the_error_of_a_server_that_cannot_be_started_has_the_reason() -> None:
    missing = MCPStdioServerConfig(command="there-is-no-such-program-here")
    with pytest.raises(ConnectFailed, match="there-is-no-such-program-here"):
        await open_client("missing", missing, 5.0, None, {})


@pytest.mark.parametrize(
    ("seconds", "text", "public"), [(0.25, "250ms", "0.25 s"), (30.0, "30000ms", "30 s")]
)
def test_the_error_of_a_timeout_names_the_server_and_the_limit(
    seconds: float, text: str, public: str
) -> None:
    error = connect_timeout_error("red", seconds)
    assert str(error) == f'Connection to MCP server "red" timed out after {text}'
    assert error.public == f"did not answer within {public}"
    assert not error.delivered
