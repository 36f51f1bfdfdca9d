"""Tests of the attributes of a context, and of the messages it sends."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.client import MCPClient, MCPClientConfig
from fairlead.server.features.resource_registry import file_resource
from fairlead.transport.line_channel import LineChannel
from tests.support.raw_server_client import META, wire_to

KEY = "io.modelcontextprotocol/"


async def call(server: MCPServer, name: str, **meta: Any) -> Any:
    params = {"name": name, "arguments": {}, "_meta": {**META, **meta}}
    async with wire_to(server) as wire:
        result = (await wire.ask("tools/call", params))["result"]
    text = result["content"][0]["text"]
    return text if result.get("isError") else json.loads(text)


async def test_the_context_describes_the_caller_and_the_request() -> None:
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
        ({"roots": 5}, "The response to roots/list has no list 'roots'"),
        ([1], "The response to roots is malformed"),
    ],
)
async def test_a_malformed_response_to_roots_list_is_rejected(answer: Any, words: str) -> None:
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


async def test_a_file_resource_is_read_as_text_or_as_bytes(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", None])
async def test_each_log_method_of_a_context_sends_messages_at_its_level(level: str | None) -> None:
    server = MCPServer("s")

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.debug("d")
        await ctx.info("i")
        await ctx.warning("w")
        await ctx.error("e")
        await ctx.log("error", {"x": 1}, logger="l")
        with pytest.raises(
            ValueError, match="unknown log level 'loud': expected one of debug, info, notice"
        ):
            await ctx.log("loud", "")
        return "1"

    wanted = {} if level is None else {f"{KEY}logLevel": level}
    told = [
        {"level": "debug", "data": "d"},
        {"level": "info", "data": "i"},
        {"level": "warning", "data": "w"},
        {"level": "error", "data": "e"},
        {"level": "error", "data": {"x": 1}, "logger": "l"},
    ]
    levels = [one["level"] for one in told]
    expected = told[levels.index(level) :] if level else []
    async with wire_to(server) as wire:
        wire.send("tools/call", {"name": "talk", "_meta": {**META, **wanted}}, id=1)
        frames = [await wire.next() for _ in range(len(expected) + 1)]
    assert [frame["params"] for frame in frames[:-1]] == expected
    assert "result" in frames[-1]


async def test_progress_that_does_not_increase_is_dropped() -> None:
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.progress(1, message="again")
        await ctx.progress(0.5)
        await ctx.progress(2, total=3, message="m")
        return "1"

    async with wire_to(server) as wire:
        wire.send("tools/call", {"name": "work", "_meta": {**META, "progressToken": "t"}}, id=1)
        frames = [await wire.next() for _ in range(3)]
        assert [frame["params"] for frame in frames[:-1]] == [
            {"progressToken": "t", "progress": 1},
            {"progressToken": "t", "progress": 2, "total": 3, "message": "m"},
        ]
        await wire.ask("tools/call", {"name": "work", "_meta": META}, id=2)


async def test_a_handler_can_close_the_stream_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detached: list[Any] = []
    monkeypatch.setattr(
        LineChannel, "detach", lambda _, request_id: detached.append(request_id), raising=False
    )
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> int:
        ctx.close_stream()
        return 1

    assert await call(server, "work") == 1
    assert detached == [1]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.filterwarnings("error")
async def test_waiting_on_the_event_loop_is_an_error_with_the_remedy(inline: bool) -> None:
    server = MCPServer("s")

    def plain(ctx: Context) -> None:
        ctx.wait(ctx.info("a"))

    async def coroutine(ctx: Context) -> None:
        ctx.wait(ctx.info("a"))

    server.tool("tell", inline=inline)(plain if inline else coroutine)
    assert "use `await` in a coroutine function" in await call(server, "tell")


async def test_a_synchronous_handler_can_wait_for_a_coroutine() -> None:
    server = MCPServer("s")
    waits: list[int] = []

    async def double(number: int) -> int:
        return 2 * number

    @server.tool()
    def work(ctx: Context) -> int:
        value: int = ctx.wait(double(3))
        waits.append(len(ctx._waits))
        return value

    assert await call(server, "work") == 6
    assert waits == [0]
