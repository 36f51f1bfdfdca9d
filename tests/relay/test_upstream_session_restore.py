"""Sessions whose connection to the server was lost."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.gateway import Relay
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.relay.upstream_session_restore import UpstreamSessionRestorer
from tests.support.gateway_servers import serving, until
from tests.support.raw_relay import HANDSHAKE, LIMIT, scene
from tests.support.scripted_stdio_server import heard, program
from tests.support.single_exchange import exchange


async def test_a_server_that_came_back_hears_again_what_was_wanted() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("logging/setLevel", {"level": "error"}))
        await client.answer_to(client.ask("resources/subscribe", {"uri": "x:1"}))
        await server.close()
        calls = [client.ask("tools/list") for _ in range(5)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        methods = [m["method"] for m in server.seen]
        assert methods.count("initialize") == 1
        assert methods.count("logging/setLevel") == 1
        assert methods.count("resources/subscribe") == 1
        assert len(place.servers) == 2  # and not one for each of the calls
        told = [m["method"] for m in client.skipped]
        assert told.count("notifications/tools/list_changed") == 1
        assert told.count("notifications/resources/updated") == 1


async def test_many_calls_at_once_after_a_loss_open_one_connection_for_a_session() -> None:
    async with scene(upstream="per-session") as place:
        client = await place.session()
        server = await place.server()
        await server.close()
        calls = [client.ask("tools/list") for _ in range(8)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 2
        assert len(place.relay.upstream.links) == 1


@pytest.mark.parametrize("upstream", ["shared", "per-session"])
async def test_a_session_of_a_client_that_vanished_gives_its_connection_up(
    upstream: Any, tmp_path: Path
) -> None:
    """It has no stream and makes no call; should the client come back, the session goes on."""
    command = program(tmp_path, SERVER, stateless=False)
    entry = {"command": command[0], "args": command[1:]}
    relay = Relay(entry, "one", upstream=upstream, linger=0.2)
    async with asyncio.timeout(LIMIT * 4), serving(relay) as url, aiohttp.ClientSession() as web:
        opened = await post(web, url, {}, "initialize", INITIALIZE)
        name = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        await until(lambda: not relay.upstream.links)
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        assert len(heard(tmp_path, "initialize")) == 2
        headers = {**HEADERS, **name, "Accept": "text/event-stream"}
        async with web.get(url, headers=headers) as stream:  # now it may be told something
            assert stream.status == 200
            await post(web, url, name, "tools/call", {"name": "t"})
            [link] = relay.upstream.links
            assert not link.abandoned
        await until(lambda: not relay.upstream.links)


SERVER = """
for message in requests():
    if message.get("method") == "tools/call":
        answer(message, {"content": text("done")})
    elif "id" in message:
        refuse(message)
"""
INITIALIZE = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": HANDSHAKE}


async def post(
    web: aiohttp.ClientSession, url: str, more: dict[str, str], method: str, params: Any
) -> aiohttp.ClientResponse:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await web.post(url, json=body, headers={**HEADERS, **more})


class FakeLink:
    """A connection, and what its server is asked for."""

    def __init__(self, *, stateless: bool = False) -> None:
        self.name, self.alive, self.borrowed, self.stateless = "raw", True, False, stateless
        self.peer = self
        self.uris: dict[str, set[object]] = {}
        self.asked: list[Any] = []
        self.activated = 0
        self.refuses = False
        self.agreement = Agreement(
            revision=NEWEST_HANDSHAKE, capabilities=b'{"tools":{"listChanged":true}}'
        )

    def activate(self) -> None:
        self.activated += 1

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, *params.values()))
        if self.refuses:
            raise RpcError(5, "no")


class FakeFront:
    def __init__(self, link: Any = None) -> None:
        self.link = link
        self.introduction: Raw | None = Raw(b"{}")
        self.joining = 0
        self.opening = asyncio.Lock()
        self.level: str | None = "debug"
        self.uris = ["a:1", "a:2"]
        self.told: list[str] = []

    def tell(self, note: Any, link: Any) -> None:
        self.told.append(note.method)


class Place:
    """A session whose connection may be lost."""

    def __init__(self, link: Any = None, *, stateless: bool = False) -> None:
        self.front = FakeFront(link)
        self.new = FakeLink(stateless=stateless)
        self.opened = 0
        self.bridged: list[str] = []
        self.joining: list[int] = []
        upstream: Any = self
        self.restorer = UpstreamSessionRestorer(upstream, lambda link: self)  # type: ignore[arg-type,return-value]

    async def for_session(self, front: Any, introduction: Raw, caller: Any) -> Any:
        self.opened += 1
        self.joining.append(front.joining)
        await asyncio.sleep(0)
        front.link = self.new
        return self.new

    async def joined(self) -> None:
        self.bridged.append("joined")

    async def follow(self) -> None:
        self.bridged.append("follow")

    async def connection(self) -> Any:
        front: Any = self.front
        return await self.restorer.connection_of(front, exchange(stateless=False).caller)


async def test_a_connection_that_is_there_is_used() -> None:
    place = Place(link := FakeLink())
    assert await place.connection() is link
    assert (place.opened, link.activated, place.front.told) == (0, 1, [])


async def test_requests_at_once_get_one_new_connection_with_all_that_was_asked_for() -> None:
    lost = FakeLink()
    lost.alive = False
    place = Place(lost)
    found = await asyncio.gather(*(place.connection() for _ in range(3)))
    assert found == [place.new] * 3
    assert (place.opened, place.front.joining) == (1, 0)
    assert place.joining[0] > 0
    assert place.new.asked == [
        ("logging/setLevel", "debug"),
        ("resources/subscribe", "a:1"),
        ("resources/subscribe", "a:2"),
    ]
    assert place.new.uris == {"a:1": {place.front}, "a:2": {place.front}}
    changed = ["notifications/tools/list_changed", *["notifications/resources/updated"] * 2]
    assert place.front.told == changed


async def test_who_comes_while_others_join_waits_behind_them() -> None:
    place = Place(link := FakeLink())
    place.front.joining = 1
    async with place.front.opening:
        waiting = asyncio.create_task(place.connection())
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting is link
    assert place.front.joining == 1


async def test_a_server_that_refuses_is_used_all_the_same() -> None:
    place = Place()
    place.front.level = None
    place.new.refuses = True
    assert await place.connection() is place.new
    assert place.new.asked == [("resources/subscribe", "a:1")]
    assert len(place.front.told) == 3


async def test_a_stateless_server_is_followed_by_its_bridge() -> None:
    place = Place(stateless=True)
    await place.connection()
    assert (place.bridged, place.new.asked) == (["joined", "follow"], [])


async def test_a_session_begins_with_initialize() -> None:
    place = Place()
    place.front.introduction = None
    with pytest.raises(RpcError, match="Send initialize first") as refused:
        await place.connection()
    assert refused.value.code == -32602
    assert (place.opened, place.front.joining) == (0, 0)
