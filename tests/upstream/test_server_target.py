"""Connection targets: which of them are processes, and which channel they open."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.client.server_entry import MCPServerEntry, MCPStdioServerConfig, read_entry
from fairlead.errors import ConfigError
from fairlead.upstream import server_target
from fairlead.upstream.server_target import target_for


@pytest.mark.parametrize(
    ("entry", "shared", "ids"),
    [
        ({"command": "x"}, True, "integer"),
        ({"command": "x", "requestIdFormat": "string"}, True, "string"),
        ({"url": "http://x/mcp"}, False, "integer"),
        ({"type": "sse", "url": "http://x/sse"}, False, "integer"),
    ],
)
def test_only_a_server_with_a_command_is_a_process(
    entry: dict[str, Any], shared: bool, ids: str
) -> None:
    way = target_for(entry, "red")
    assert (way.name, way.is_process, way.id_format) == ("red", shared, ids)
    assert target_for(entry).name == "server"


async def test_a_server_object_is_attached_to_each_new_connection() -> None:
    way = target_for(MCPServer("x"), "red")
    assert (way.name, way.is_process, way.id_format) == ("red", False, "integer")
    channel = await way.open()
    await channel.close()


def test_an_invalid_server_entry_is_rejected() -> None:
    with pytest.raises(ConfigError):
        target_for({"neither": 1})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[MCPServerEntry, dict[str, Any]]]:
    """Return the entries that were opened, with their transport options."""
    found: list[tuple[MCPServerEntry, dict[str, Any]]] = []

    class Opens:
        async def open_channel(self) -> str:
            return f"channel {len(found)}"

    def open_entry(entry: MCPServerEntry, **options: Any) -> Opens:
        found.append((entry, options))
        return Opens()

    monkeypatch.setattr(server_target, "transport_of", open_entry)
    return found


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x"},
        {"url": "http://x/mcp"},
        {"type": "sse", "url": "http://x/sse"},
        {"type": "websocket", "url": "ws://x/mcp"},
    ],
)
async def test_a_connection_is_opened_for_each_kind_of_entry(
    opened: list[tuple[MCPServerEntry, dict[str, Any]]], entry: dict[str, Any]
) -> None:
    def hear(line: str) -> None:
        raise AssertionError

    assert await target_for(entry, on_stderr=hear).open() == "channel 1"  # type: ignore[comparison-overlap]
    http = {"pool_size": 256, "authorizer": None}
    assert opened == [(read_entry(entry), {"http": http, "on_stderr": hear})]


async def test_variables_of_an_entry_are_resolved_for_each_connection(
    opened: list[tuple[MCPServerEntry, dict[str, Any]]],
) -> None:
    async def resolve() -> MCPServerEntry:
        await asyncio.sleep(0)
        return MCPStdioServerConfig(command=f"filled {len(opened)}")

    way = target_for(read_entry({"command": "${X}"}), resolve=resolve)
    await way.open()
    await way.open()
    await target_for({"command": "as it is"}).open()
    commands = [entry.command for entry, _ in opened if isinstance(entry, MCPStdioServerConfig)]
    assert commands == ["filled 0", "filled 1", "as it is"]
