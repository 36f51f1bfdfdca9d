"""What a gateway shows of itself: a page, its health, and an admin API behind a token."""

import asyncio
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient
from fairlead.gateway import Gateway, View
from tests.support.gateway_servers import (
    LIMIT,
    Ears,
    config,
    hanging,
    joining,
    make,
    names,
    program,
    serving,
    until,
)

EVIL = "<script>alert(1)</script>"
ADMIN = {"X-Admin-Token": "open sesame"}


async def get(web: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, Any]:
    method = options.pop("method", "GET")
    async with web.request(method, url, **options) as answer:
        if answer.content_type == "application/json":
            return answer.status, await answer.json()
        return answer.status, await answer.text()


async def test_the_page_shows_how_each_server_is() -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect(
            {"red": {"url": red}, "blue": program("blue"), "dead": {"command": "/no/where"}}
        )
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url, joining(gateway) as client:
            await client.call("red_who")
            base = url.removesuffix("/mcp")
            status, page = await get(web, base + "/")
            assert status == 200
            for text in ("red", "blue", "dead", "connected", "failed", "stateless", f"{url}/NAME"):
                assert text in page
            status, now = await get(web, base + "/status")
            rows = {row["name"]: row for row in now["servers"]}
            assert rows["red"]["tools"] == 8
            assert rows["red"]["calls"] == 1
            assert rows["red"]["latency_ms"] > 0
            assert rows["red"]["breaker"] == "closed"
            assert rows["dead"]["status"] == "failed"
            assert rows["dead"]["error"] == "could not be started: its program does not exist"
            assert rows["red"]["error"] is None
            assert now["clients"] == 1
            assert now["counts"]["tools"] == 16
            assert await get(web, base + "/health") == (
                200,
                {"status": "ok", "servers": 3, "connected": 2},
            )
            assert await get(web, base + "/ready") == (200, {"ready": True})
            assert (await get(web, base + "/nothing"))[0] == 404
            assert (await get(web, base + "/health", method="PUT"))[0] == 405
            async with web.head(base + "/health") as answer:
                assert answer.status == 200
            assert (await get(web, base + "/admin/servers"))[0] == 404  # there is no token


async def test_a_gateway_is_ready_when_it_knows_of_every_server() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"mute": hanging()})
        async with serving(gateway) as url:
            base = url.removesuffix("/mcp")
            assert await get(web, base + "/ready") == (503, {"ready": False})
            assert (await get(web, base + "/health"))[0] == 200
            await gateway.disconnect("mute")
            assert await get(web, base + "/ready") == (200, {"ready": True})


async def test_nothing_on_the_page_is_taken_for_markup() -> None:
    async with (
        asyncio.timeout(LIMIT),
        aiohttp.ClientSession() as web,
        Gateway(name=EVIL) as gateway,
    ):
        await gateway.connect({EVIL: {"command": f"/{EVIL}"}, "url": {"url": f"http://x/{EVIL}"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url, web.get(url.removesuffix("mcp")) as answer:
            page = await answer.text()
            assert "alert(1)" in page
            assert "<script" not in page
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_admin_api_wants_its_token() -> None:
    ears = Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(admin_token="open sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}, "b/l ue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with (
            serving(gateway) as url,
            joining(gateway, on_notification=ears) as client,
            MCPClient.connect_http(f"{url}/red", config()) as alone,
        ):
            await alone.call("who")
            admin = url.removesuffix("/mcp") + "/admin"
            for wrong in ({}, {"X-Admin-Token": "open"}, {"X-Admin-Token": ""}):
                for path in ("", "/servers", "/sessions", "/servers/red/reconnect"):
                    assert (await get(web, admin + path, headers=wrong))[0] == 401
            status, servers = await get(web, admin + "/servers", headers=ADMIN)
            assert (status, [row["name"] for row in servers]) == (200, ["b/l ue", "red"])
            status, sessions = await get(web, admin + "/sessions", headers=ADMIN)
            assert sorted(one["transport"] for one in sessions) == ["http", "memory"]

            generation = gateway.manager.describe()["red"].generation
            path = admin + "/servers/red/reconnect"
            assert (await get(web, path, headers=ADMIN))[0] == 404  # GET changes nothing
            answer = await get(web, path, headers=ADMIN, method="POST")
            assert answer == (200, {"reconnected": "red"})
            assert gateway.manager.describe()["red"].generation == generation + 1
            path = admin + "/servers/b%2Fl%20ue/refresh"
            assert (await get(web, path, headers=ADMIN, method="POST"))[0] == 200
            for act, method in (("/reconnect", "POST"), ("/refresh", "POST"), ("", "DELETE")):
                path = admin + "/servers/nobody" + act
                status, said = await get(web, path, headers=ADMIN, method=method)
                assert status == 404
                assert "There is no server 'nobody'; there are: " in said

            ears.drain()
            path = admin + "/servers/red"
            assert (await get(web, path, headers=ADMIN, method="DELETE"))[0] == 200
            await ears.hear("notifications/tools/list_changed")
            assert not [name for name in await names(client) if name.startswith("red")]
            assert (await get(web, f"{url}/red", method="POST"))[0] == 404


async def test_only_the_admin_sees_how_a_server_was_started() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="open sesame") as gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
    ):
        entry = {"command": "/nowhere/at-all", "args": ["hush"]}
        await gateway.connect({"gone": entry})
        await until(lambda: gateway.is_ready)
        base = url.removesuffix("/mcp")
        _, now = await get(web, base + "/status")
        assert now["servers"][0]["error"] == "could not be started: its program does not exist"
        page = (await get(web, base + "/"))[1]
        assert "hush" not in page
        assert "nowhere" not in page
        _, servers = await get(web, base + "/admin/servers", headers=ADMIN)
        assert "`/nowhere/at-all hush`" in servers[0]["error"]


async def test_an_empty_admin_token_is_none() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="") as gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
    ):
        admin = url.removesuffix("/mcp") + "/admin/servers"
        assert (await get(web, admin, headers={"X-Admin-Token": ""}))[0] == 404


@pytest.mark.parametrize("path", ["/", "/status", "/health", "/ready", "/admin/servers"])
async def test_a_gateway_with_tokens_shows_nothing_without_one(path: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(views={"bob": View(servers=("red",))}, admin_token="open sesame") as gateway,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
        aiohttp.ClientSession() as web,
    ):
        assert (await get(web, url.removesuffix("/mcp") + path, headers=ADMIN))[0] == 401


async def test_the_page_shows_a_client_with_a_view_no_other_servers() -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway(views={"bob": View(servers=("red",))}) as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway, verify_token={"a": "alice", "b": "bob"}.get) as url:
            base = url.removesuffix("/mcp")
            for token, seen in (("a", ["blue", "red"]), ("b", ["red"])):
                head = {"Authorization": f"Bearer {token}"}
                _, now = await get(web, base + "/status", headers=head)
                assert [row["name"] for row in now["servers"]] == seen
                assert now["counts"]["tools"] == 8 * len(seen)
            page = (await get(web, base + "/", headers=head))[1]
            assert "blue" not in page
            assert "Bearer TOKEN" in page  # what is there to be copied works
