"""What a handler learns from its context, and what it may ask."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.client import MCPClient, MCPClientConfig
from fairlead.server.features.resources import file_resource
from tests.support.raw_server_client import META, wire_to

KEY = "io.modelcontextprotocol/"


async def call(server: MCPServer, name: str, **meta: Any) -> Any:
    params = {"name": name, "arguments": {}, "_meta": {**META, **meta}}
    async with wire_to(server) as wire:
        result = (await wire.ask("tools/call", params))["result"]
    text = result["content"][0]["text"]
    return text if result.get("isError") else json.loads(text)


async def test_a_handler_sees_who_calls_and_with_what() -> None:
    server = MCPServer("s")

    @server.tool()
    async def about(ctx: Context) -> dict[str, Any]:
        return {
            "version": ctx.protocol_version,
            "client": ctx.client,
            "principal": ctx.principal,
            "vendor": ctx.meta.get("vendor/x"),
            "sampling": ctx.can("sampling"),
            "tools": ctx.can("sampling.tools"),
        }

    capabilities = {f"{KEY}clientCapabilities": {"sampling": {}}}
    client = {f"{KEY}clientInfo": {"name": "me", "version": "1"}}
    assert await call(server, "about", **capabilities, **client, **{"vendor/x": 7}) == {
        "version": "2026-07-28",
        "client": "me",
        "principal": None,
        "vendor": 7,
        "sampling": True,
        "tools": False,
    }


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"roots": 5}, "The answer to roots/list has no roots"),
        ([1], "The answer to roots is malformed"),
    ],
)
async def test_roots_that_are_no_list_are_an_error(answer: Any, words: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def roots(ctx: Context) -> list[Any]:
        return await ctx.roots()

    params = {"name": "roots", "arguments": {}}
    async with wire_to(server) as wire:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}
        await wire.ask("initialize", {**hello, "clientInfo": {"name": "c"}})
        wire.send("notifications/initialized")
        wire.send("tools/call", params, id=9)
        asked = await wire.next()
        assert asked["method"] == "roots/list"
        wire.answer(asked["id"], answer)
        told = await wire.next()
    assert words in json.dumps(told)


async def test_a_file_is_text_or_bytes(tmp_path: Path) -> None:
    server = MCPServer("s")
    places = {}
    for name, content in (
        ("a.txt", b"text"),
        ("b.bin", b"a\0b"),
        ("c.txt", b"\xff\xfe"),
        ("d.unknown", b"x"),
    ):
        (tmp_path / name).write_bytes(content)
        places[name] = file_resource(str(tmp_path / name))[1].definition
    assert [one.mime_type for one in places.values()] == [
        "text/plain",
        "application/octet-stream",
        "text/plain",
        "application/octet-stream",
    ]
    assert [one.size for one in places.values()] == [4, 3, 2, 1]
    with pytest.raises(FileNotFoundError):
        file_resource(str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match="is not a file"):
        file_resource(str(tmp_path))
    for name in places:
        server.register_file_resource(str(tmp_path / name))
    async with MCPClient.connect_inprocess(server, MCPClientConfig()) as client:
        read = {
            name: (await client.read_resource(places[name].uri))["contents"][0] for name in places
        }
    assert (read["a.txt"]["text"], read["b.bin"]["blob"]) == ("text", "YQBi")
    assert (read["c.txt"]["blob"], read["d.unknown"]["text"]) == ("//4=", "x")
