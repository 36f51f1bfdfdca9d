"""The lists of a real server on its default connection: pages, limits and changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.client.api.list_budget import ListTooLarge
from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream import upstream as upstream_module
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream
from tests.support.gateway_servers import LIMIT, until

Connect = Callable[..., AbstractAsyncContextManager[Upstream]]


@pytest.fixture
def server() -> MCPServer:
    """Return a server with several pages of tools, and one item of each other kind."""
    server = MCPServer("red", rate_limit_rate=0, page_size=2)
    for number in range(5):
        server.tool(name=f"tool{number}")(lambda: "x")
    server.prompt(name="hello")(lambda: "hello")
    server.resource("red://fixed")(lambda: "fixed")
    server.resource("red://item/{key}")(lambda key: f"{key}")
    return server


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, server: MCPServer) -> Connect:
    """Return a function that opens an upstream of the server."""

    async def open_client(
        name: str, entry: Any, timeout: float, config: MCPClientConfig, callbacks: Any, *_: Any
    ) -> MCPClient:
        return await MCPClient.connect_inprocess(server, config, **callbacks)

    monkeypatch.setattr(upstream_module, "open_client", open_client)

    @asynccontextmanager
    async def connect(
        kinds: Iterable[ListKind] = ListKind, era: Any = "auto", **limits: int
    ) -> AsyncIterator[Upstream]:
        upstream = Upstream(
            "red",
            ServerSpec(entry=MCPStdioServerConfig(command="x")),
            UpstreamSettings(era=era, health_interval=0, list_retry=0),
            starts=StartLimiter(),
            kinds=kinds,
            for_client=False,
            config=MCPClientConfig(**limits),
        )
        async with asyncio.timeout(LIMIT):
            upstream.start()
            await upstream.ready()
            yield upstream
            await upstream.stop()

    return connect


def counts(upstream: Upstream) -> dict[ListKind, int]:
    return {kind: len(items) for kind, items in upstream.lists.items.items()}


ALL = {ListKind.TOOLS: 5, ListKind.PROMPTS: 1, ListKind.RESOURCES: 1, ListKind.TEMPLATES: 1}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_all_pages_of_all_lists_are_requested(connect: Connect, era: str) -> None:
    async with connect(era=era) as upstream:
        assert (counts(upstream), upstream.lists.errors) == (ALL, {})
        assert [tool["name"] for tool in upstream.tools or ()] == [f"tool{n}" for n in range(5)]


@pytest.mark.parametrize("limits", [{"max_list_items": 4}, {"max_list_bytes": 400}])
async def test_a_list_over_the_limits_is_dropped_and_other_lists_are_kept(
    connect: Connect, limits: dict[str, int]
) -> None:
    async with connect(**limits) as upstream:
        assert counts(upstream) == {kind: 1 for kind in ListKind if kind is not ListKind.TOOLS}
        assert list(upstream.lists.errors) == [ListKind.TOOLS]
        assert isinstance(upstream.lists.error, ListTooLarge)
        assert (upstream.state, upstream.tools) == ("connected", None)


async def test_kinds_of_lists_added_later_are_requested_at_once(connect: Connect) -> None:
    async with connect(kinds=[ListKind.TOOLS]) as upstream:
        assert counts(upstream) == {ListKind.TOOLS: 5}
        before = upstream.lists.items[ListKind.TOOLS]
        upstream.keep_lists(ListKind)
        await until(lambda: counts(upstream) == ALL)
        assert upstream.lists.items[ListKind.TOOLS] is before  # the tools are not requested again


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_list_change_causes_one_list_request(
    connect: Connect, server: MCPServer, era: str
) -> None:
    async with connect(era=era) as upstream:
        listed: list[ListKind] = []
        upstream.lists.on_changed = listed.append
        server.tool(name="more")(lambda: "x")
        await until(lambda: len(upstream.tools or ()) == 6)
        server.prompt(name="again")(lambda: "hello")
        await until(lambda: counts(upstream)[ListKind.PROMPTS] == 2)
        assert listed == [ListKind.TOOLS, ListKind.PROMPTS]


async def test_lists_are_requested_again_on_demand(connect: Connect) -> None:
    async with connect() as upstream:
        before = dict(upstream.lists.items)
        upstream.refresh_lists()
        await until(
            lambda: all(upstream.lists.items[kind] is not before[kind] for kind in ListKind)
        )
        assert counts(upstream) == ALL
