"""Views and tokens of a gateway file that change while the gateway runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import ConfigError, HttpError, RpcError
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from tests.support.gateway_servers import BOTH, Ears, config, names, program, serving, until

LISTS = "notifications/tools/list_changed"
OPEN = """
[clients.alice]
token = "a"
[clients.bob]
token = "b"
view = "bobs"
[views.bobs]
deny = ["*_secret"]
"""


class Place:
    """A gateway served over HTTP, and its configuration file."""

    def __init__(self, path: Path, gateway: Gateway, admission: ClientAccess) -> None:
        self.path = path
        self.gateway = gateway
        self.admission = admission
        self.url = ""

    async def now(self, text: str) -> bool:
        """Replace the content of the file and apply it."""
        self.path.write_text(text)
        return await self.admission.follow(read_gateway_file(self.path), self.gateway)

    def client(self, token: str, version: str, path: str = "", **callbacks: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return MCPClient.connect_http(
            self.url + path, config(version), headers=headers, **callbacks
        )


@asynccontextmanager
async def scene(tmp_path: Path, text: str = OPEN) -> AsyncIterator[Place]:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    file = read_gateway_file(path)
    admission = ClientAccess(file)
    async with (
        Gateway(settings=file.settings, views=file.views) as gateway,
        serving(gateway, verify_token=admission.verify) as url,
    ):
        place = Place(path, gateway, admission)
        place.url = url
        await gateway.connect({"one": program("one")})
        await until(lambda: gateway.is_ready)
        yield place


@pytest.mark.parametrize("version", BOTH)
async def test_a_changed_view_applies_immediately_and_clients_are_notified(
    tmp_path: Path, version: str
) -> None:
    bobs, alices = Ears(), Ears()
    async with (
        asyncio.timeout(20),
        scene(tmp_path) as place,
        place.client("b", version, on_notification=bobs) as bob,
        place.client("a", version, on_notification=alices) as alice,
        bob.changes("tools") as news,
        alice.changes("tools"),
    ):
        assert "one_secret" not in await names(bob)
        assert await place.now(OPEN.replace('"*_secret"', '"*_speak"'))
        assert (await anext(aiter(news))).kind == "tools"
        assert "one_secret" in await names(bob)
        assert "one_speak" not in await names(bob)
        with pytest.raises(RpcError, match="Unknown tool: one_speak"):
            await bob.call_tool("one_speak", {"text": "x"})
        assert "one_speak" in await names(alice)
        assert [note for note in alices.drain() if note[0] == LISTS] == []  # Alice is not notified
        assert not await place.now(OPEN.replace('"*_secret"', '"*_speak"') + "\n# the same")


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("path", ["", "/one"])
async def test_a_removed_token_is_refused_from_the_next_request_on(
    tmp_path: Path, version: str, path: str
) -> None:
    without = OPEN.replace('[clients.alice]\ntoken = "a"\n', "")
    async with (
        asyncio.timeout(20),
        scene(tmp_path) as place,
        place.client("b", version, path) as bob,
        place.client("a", version, path) as alice,
    ):
        assert await names(alice)
        assert await place.now(without)
        with pytest.raises(HttpError) as refused:
            await names(alice)
        assert refused.value.status == 401
        assert await names(bob)
        assert await place.now(OPEN)  # the token is added again
        async with place.client("a", version, path) as again:
            assert await names(again)


async def test_listen_streams_of_a_removed_token_end(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(20),
        scene(tmp_path) as place,
        place.client("a", "auto") as alice,
        alice.changes("tools", uris=["one://fixed"]),
        place.client("a", "auto", "/one") as at_the_door,
        at_the_door.changes("tools"),
    ):
        gateway = place.gateway
        await until(lambda: gateway.subscriptions.listeners and gateway.endpoints["one"].listeners)
        await place.now(OPEN.replace('token = "a"', 'token = "another"'))
        await until(lambda: not gateway.subscriptions.listeners)
        await until(lambda: not gateway.endpoints["one"].listeners)


@pytest.mark.parametrize("path", ["", "/one"])
async def test_updates_stop_for_resources_outside_a_changed_view(tmp_path: Path, path: str) -> None:
    ears = Ears()
    touch = "touch" if path else "one_touch"
    async with (
        asyncio.timeout(20),
        scene(tmp_path) as place,
        place.client("b", BOTH[0], path, on_notification=ears) as bob,
    ):
        for uri in ("one://fixed", "shared://note"):
            await bob.subscribe(uri)
        await bob.call_tool(touch, {"uri": "one://fixed"})
        await ears.hear("notifications/resources/updated", uri="one://fixed")
        await place.now(OPEN.replace('"*_secret"', '"one://*"'))
        await ears.hear(LISTS)
        for uri in ("one://fixed", "shared://note"):
            await bob.call_tool(touch, {"uri": uri})
        heard = [await ears.hear("notifications/resources/updated")]
        assert heard == [{"uri": "shared://note"}]
        with pytest.raises(RpcError, match="not found"):
            await bob.read_resource("one://fixed")


async def test_invalid_gateway_files_and_impossible_changes_have_no_effect(tmp_path: Path) -> None:
    async with scene(tmp_path) as place, place.client("a", "auto") as alice:
        for wrong in (OPEN.replace("bobs]", "bosb]"), OPEN + "[clients.alice]\n", "what?"):
            with pytest.raises(ConfigError):
                await place.now(wrong)
        assert await names(alice)
    everybody = tmp_path / "open"
    everybody.mkdir()
    async with scene(everybody, "") as place:
        with pytest.raises(ConfigError, match="restart it to require them"):
            await place.now(OPEN)


async def test_the_default_view_can_be_changed(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        await gateway.connect({"one": program("one")})
        await until(lambda: gateway.is_ready)
        path = tmp_path / "gateway.toml"
        path.write_text('[views.default]\nallow = ["*_who"]\n')
        file = read_gateway_file(path)
        ears = Ears()
        async with MCPClient.connect_inprocess(
            gateway, config(BOTH[0]), on_notification=ears
        ) as client:
            assert "one_secret" in await names(client)
            gateway.show(file.views, file.settings.view)
            await ears.hear(LISTS)
            assert await names(client) == ["one_who"]
