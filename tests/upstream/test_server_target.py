"""Targets of connections: which are processes, and which channel is opened."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.client.server_entry import MCPStdioServerConfig, read_entry
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
def test_only_a_command_is_a_process(entry: dict[str, Any], shared: bool, ids: str) -> None:
    way = target_for(entry, "red")
    assert (way.name, way.is_process, way.id_format) == ("red", shared, ids)
    assert target_for(entry).name == "server"


async def test_a_server_object_is_attached_to_each_connection() -> None:
    way = target_for(MCPServer("x"), "red")
    assert (way.name, way.is_process, way.id_format) == ("red", False, "integer")
    channel = await way.open()
    await channel.close()


def test_an_invalid_entry_is_rejected() -> None:
    with pytest.raises(ConfigError):
        target_for({"neither": 1})


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"command": "x"}, "StdioTransport"),
        ({"url": "http://x/mcp"}, "HttpTransport"),
        ({"type": "sse", "url": "http://x/sse"}, "HttpTransport"),
        ({"type": "websocket", "url": "ws://x/mcp"}, "transport_of"),
    ],
)
async def test_a_connection_is_opened_for_each_kind_of_entry(
    monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], kind: str
) -> None:
    opened: list[Any] = []

    class Opens:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, *of: Any, **about: Any) -> "Opens":
            opened.append((self.name, about))
            return self

        async def open_channel(self) -> str:
            return f"channel of {self.name}"

    for name in ("StdioTransport", "HttpTransport", "transport_of"):
        monkeypatch.setattr(server_target, name, Opens(name))

    def hear(line: str) -> None:
        raise AssertionError

    assert await target_for(entry, on_stderr=hear).open() == f"channel of {kind}"
    http = {"pool_size": 256, "authorizer": None}
    about = {"StdioTransport": {"on_stderr": hear}, "HttpTransport": {"http": http}}
    assert opened == [(kind, about.get(kind, {}))]


async def test_variables_of_an_entry_are_resolved_for_each_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled: list[Any] = []

    async def dial(name: str, entry: Any, on_stderr: Any) -> Any:
        dialled.append(entry.command)

    async def resolve() -> Any:
        await asyncio.sleep(0)
        return MCPStdioServerConfig(command=f"filled {len(dialled)}")

    monkeypatch.setattr(server_target, "_dial", dial)
    way = target_for(read_entry({"command": "${X}"}), resolve=resolve)
    await way.open()
    await way.open()
    assert dialled == ["filled 0", "filled 1"]
    await target_for({"command": "as it is"}).open()
    assert dialled[-1] == "as it is"
