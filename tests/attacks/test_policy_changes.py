"""Changes to clients, views and tokens while requests are in progress."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.errors import ConfigError, RpcError
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.actions import Cache
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import LIMIT, STATELESS, config, make, serving, until

ALICE = '[clients.alice]\ntoken = "a"\n'
BOB = '[clients.bob]\ntoken = "b"\nview = "bobs"\n'
VIEWS = '[views.bobs]\ndeny = ["*secret"]\n'
PATHS = pytest.mark.parametrize("path", ["", "/one"])


class Hold:
    """An interceptor that holds tool calls until the test releases them."""

    def __init__(self) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            self.arrived.set()
            await self.go_on.wait()
        return await proceed(exchange)


class Place:
    """A gateway served over HTTP that applies changes of its configuration file."""

    def __init__(self, path: Path, gateway: Gateway, admission: ClientAccess, url: str) -> None:
        self.path, self.gateway, self.admission, self.url = path, gateway, admission, url

    async def write(self, text: str) -> None:
        """Change the gateway file and apply it."""
        self.path.write_text(text)
        await self.admission.follow(read_gateway_file(self.path), self.gateway)

    def client(self, token: str, path: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return MCPClient.connect_http(self.url + path, config(STATELESS), headers=headers)


@asynccontextmanager
async def scene(
    tmp_path: Path, server: MCPServer, text: str, *interceptors: Interceptor
) -> AsyncIterator[Place]:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    file = read_gateway_file(path)
    admission = ClientAccess(file)
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as behind,
        Gateway(settings=file.settings, views=file.views, interceptors=interceptors) as gateway,
        serving(gateway, verify_token=admission.verify) as url,
    ):
        await gateway.connect({"one": {"url": behind}})
        await until(lambda: gateway.is_ready)
        yield Place(path, gateway, admission, url)


@pytest.mark.attack(
    "a waiting call whose client is removed from the gateway's file",
    "a removed client has an empty view",
    "the call ends with an error and does not reach the server",
)
@PATHS
async def test_a_waiting_call_of_a_removed_client_is_rejected(tmp_path: Path, path: str) -> None:
    hold = Hold()
    async with (
        scene(tmp_path, make("one"), ALICE + BOB + VIEWS, hold) as place,
        place.client("b", path) as bob,
    ):
        call = asyncio.create_task(bob.call_tool("secret" if path else "one_secret", {}))
        await hold.arrived.wait()
        await place.write(ALICE + VIEWS)
        hold.go_on.set()
        with pytest.raises(RpcError, match="Unknown tool|no longer valid"):
            await call


async def test_a_removed_client_without_its_own_view_is_denied_everything(tmp_path: Path) -> None:
    hold = Hold()
    async with (
        scene(tmp_path, make("one"), ALICE + BOB + VIEWS, hold) as place,
        place.client("a") as alice,
    ):
        call = asyncio.create_task(alice.call_tool("one_who", {}))
        await hold.arrived.wait()
        await place.write(BOB + VIEWS)
        hold.go_on.set()
        with pytest.raises(RpcError, match="Unknown tool"):
            await call
        await place.write(ALICE + BOB + VIEWS)
        assert (await alice.call("one_secret")).text == "the secret of one"


@PATHS
async def test_a_stateless_call_in_progress_ends_when_its_client_is_removed(
    tmp_path: Path, path: str
) -> None:
    called, server = asyncio.Event(), MCPServer("one")

    @server.tool()
    async def hang() -> str:
        called.set()
        await asyncio.Event().wait()
        return "never"

    async with (
        scene(tmp_path, server, ALICE + BOB + VIEWS) as place,
        place.client("b", path) as bob,
    ):
        call = asyncio.create_task(bob.call_tool("hang" if path else "one_hang", {}))
        await called.wait()
        await place.write(ALICE + VIEWS)
        with pytest.raises(RpcError, match="the token is no longer valid"):
            await call


@pytest.mark.attack(
    "a client in the gateway's file with the name of the unnamed token",
    "the name `token` is reserved, and each token belongs to one principal",
    "the file is rejected",
)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[clients.token]\ntoken = "t"\n', "invalid client name 'token'"),
        ('token = "all"\n[clients.token]\ntoken = "t"\n', "invalid client name 'token'"),
        ('token = "all"\n[clients.bob]\ntoken = "all"\n', 'Client "bob": the token must differ'),
    ],
)
def test_no_client_shares_a_principal_with_the_unnamed_token(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_gateway_file(path)


@pytest.mark.attack(
    "reading a cached resource after a change of the view has denied it",
    "caches are cleared when views change",
    "the resource is not found",
)
@PATHS
@pytest.mark.parametrize("scope", ["public", "private"])
async def test_a_cached_resource_is_not_served_after_a_view_denies_it(
    tmp_path: Path, path: str, scope: str
) -> None:
    server = MCPServer("one", cache_ttl=3600.0, cache_scope=scope)

    @server.resource("one://plan")
    async def plan() -> str:
        return "the plan"

    cache = Cache()
    async with scene(tmp_path, server, BOB + VIEWS, cache) as place:
        async with place.client("b", path) as bob:
            await bob.read_resource("one://plan")
        assert len(cache)
        await place.write(BOB + VIEWS.replace("*secret", "one://*"))
        async with place.client("b", path) as bob:
            with pytest.raises(RpcError, match="not found"):
                await bob.read_resource("one://plan")


@PATHS
async def test_a_resource_cached_by_a_rule_is_not_served_after_a_view_denies_it(
    tmp_path: Path, path: str
) -> None:
    server = MCPServer("one", cache_ttl=3600.0, cache_scope="public")
    reads = 0

    @server.resource("one://plan")
    async def plan() -> str:
        nonlocal reads
        reads += 1
        return "the plan"

    rules = RuleSet.of_data({"rules": [{"name": "keep", "do": "cache"}]})
    async with scene(tmp_path, server, BOB + VIEWS, rules) as place:
        for _ in range(2):
            async with place.client("b", path) as bob:
                await bob.read_resource("one://plan")
        assert reads == 1
        await place.write(BOB + VIEWS.replace("*secret", "one://*"))
        async with place.client("b", path) as bob:
            with pytest.raises(RpcError, match="not found"):
                await bob.read_resource("one://plan")


async def test_a_result_requested_before_a_change_of_views_is_not_cached(
    tmp_path: Path,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    server = MCPServer("one", cache_ttl=3600.0)

    @server.resource("one://plan")
    async def plan() -> str:
        asked.set()
        await go_on.wait()
        return "the plan"

    async with scene(tmp_path, server, BOB + VIEWS, Cache()) as place:
        async with place.client("b") as bob:
            read = asyncio.create_task(bob.read_resource("one://plan"))
            await asked.wait()
            await place.write(BOB + VIEWS.replace("*secret", "one://*"))
            go_on.set()
            await read
        async with place.client("b") as bob:
            with pytest.raises(RpcError, match="not found"):
                await bob.read_resource("one://plan")
