"""Comparison of a server's lists for clients with different capabilities."""

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.server_entry import MCPStdioServerConfig, read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    LocalResourceError,
    RpcError,
    ServerBusy,
)
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.list_comparison import ListComparison
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.limits import LIST_VARIANTS, RELISTING
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.transport.background_tasks import BackgroundTasks
from fairlead.upstream.list_variants import DEFAULT_VARIANT, ListVariants, variant_key
from fairlead.upstream.server_lists import ServerLists
from tests.support.catalog_items import ALL, page
from tests.support.gateway_servers import LIMIT, joining, names, until
from tests.support.listing_connection import ListingConnection
from tests.support.observed_servers import ServerLog
from tests.support.virtual_time import VirtualTime

TOOLS = ListKind.TOOLS
HELLO = Raw(b'{"protocolVersion":"2025-11-25"}')


def caller(capability: str | None = "sampling", *, stateless: bool = False) -> Caller:
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    declared: dict[str, Any] = {} if capability is None else {capability: {}}
    return Caller(revision, stateless, ANONYMOUS, json.dumps(declared).encode())


SAMPLING, ROOTS = caller(), caller("roots")
KEY = variant_key(SAMPLING)
assert KEY is not None


def connection_with(*tools: str, **about: Any) -> ListingConnection:
    """Return a connection that lists only these tools."""
    items = {"tools/list": [{"name": name, "inputSchema": {}} for name in tools]}
    return ListingConnection(items, capabilities='{"tools":{}}', **about)


class FakeUpstream:
    """A server that is connected and lists the tool `a` by default."""

    def __init__(self, name: str = "red", **about: Any) -> None:
        self.name = name
        self.state = about.get("state", "connected")
        self.latency: float | None = about.get("latency")
        self.settings = UpstreamSettings(share=about.get("share", "alike"))
        entry = MCPStdioServerConfig(command="x", lazy=about.get("lazy", False))
        self.spec = ServerSpec(entry=entry)
        self.variants = ListVariants()
        default = {"name": "a", "inputSchema": {}}
        self.lists = ServerLists(ListKind, for_client=False)
        self.lists.put(TOOLS, [Raw(json.dumps(default).encode())])
        self.pool = self
        self.opened: list[tuple[Caller, Raw | None]] = []
        self.retired: list[Any] = []
        self.warnings: list[str] = []
        # the connection to return, or the error to raise
        self.next: Any = connection_with("a", "b")
        self.opening: asyncio.Event | None = None

    def warn_once(self, reason: str) -> None:
        self.warnings.append(reason)

    async def for_comparison(self, client: Caller, introduction: Raw | None, limit: float) -> Any:
        self.opened.append((client, introduction))
        async with asyncio.timeout(limit):
            if self.opening is not None:
                await self.opening.wait()
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def retire_unused(self, connection: Any) -> None:
        self.retired.append(connection)


class Place:
    """A comparison, its catalog, and the list changes that it reports."""

    def __init__(self, **limits: int) -> None:
        self.catalog = MergedCatalog(GatewaySettings(**limits))
        self.tasks = BackgroundTasks()
        self.changed: list[tuple[Any, set[ListKind]]] = []
        self.comparison = ListComparison(
            self.catalog, self.tasks, lambda _, whose, kinds: self.changed.append((whose, kinds))
        )

    def request(
        self, upstream: Any, client: Caller = SAMPLING, introduction: Raw | None = HELLO
    ) -> "asyncio.Task[None] | None":
        return self.comparison.request(upstream, client, introduction)

    def variant(self, upstream: Any, client: Caller = SAMPLING, session: Any = None) -> int:
        return self.comparison.variant(upstream, client, session)

    def open(self, upstream: Any, connection: Any) -> None:
        self.comparison.connection_opened(upstream, connection)

    async def idle(self) -> None:
        while tasks := list(self.tasks):
            await asyncio.wait(tasks)

    def shown(self, *selection: tuple[str, int]) -> list[str]:
        """Return the tools of a client that sees these variants."""
        members = self.catalog.page(TOOLS, ALL, NEWEST, None, selection)
        return [tool["name"] for tool in json.loads(b"{%b}" % members)["tools"]]


# Clients that only request lists


async def test_clients_with_equal_capabilities_cause_one_list_comparison() -> None:
    place, upstream = Place(), FakeUpstream()
    assert place.variant(upstream) == DEFAULT_VARIANT
    task = place.request(upstream)
    assert task is not None
    assert place.request(upstream) is task
    await task
    assert upstream.opened == [(SAMPLING, HELLO)]
    assert upstream.next.active.is_set()
    number = place.variant(upstream)
    assert number != DEFAULT_VARIANT
    assert place.changed == [(KEY, {TOOLS})]
    assert place.shown(("red", number)) == ["red_a", "red_b"]
    assert (upstream.retired, place.request(upstream)) == ([], None)
    # read twice to detect changes without a notification
    assert upstream.next.count("tools/list") == 2
    assert place.variant(upstream, ROOTS) == DEFAULT_VARIANT


async def test_a_connection_for_a_comparison_is_closed_if_its_lists_equal_the_default_lists() -> (
    None
):
    place, upstream = Place(), FakeUpstream()
    upstream.next = connection_with("a")
    task = place.request(upstream)
    assert task is not None
    assert not place.comparison.sees_default(upstream, SAMPLING)  # type: ignore[arg-type]
    await task
    assert (place.variant(upstream), place.changed) == (DEFAULT_VARIANT, [])
    assert upstream.retired == [upstream.next]
    assert upstream.next.count("tools/list") == 1
    assert not place.catalog.has_variants
    assert place.comparison.sees_default(upstream, SAMPLING)  # type: ignore[arg-type]


async def test_clients_without_capabilities_get_the_default_lists() -> None:
    place, plain = Place(), caller(None)
    upstream: Any = FakeUpstream()
    assert place.request(upstream, plain) is None
    assert place.variant(upstream, plain) == DEFAULT_VARIANT
    assert place.comparison.sees_default(upstream, plain)


@pytest.mark.parametrize(
    ("about", "client", "introduction", "compared"),
    [
        ({}, SAMPLING, HELLO, True),
        ({}, SAMPLING, None, False),
        ({}, caller(stateless=True), None, True),
        ({"state": "connecting"}, SAMPLING, HELLO, False),
        ({"share": "all"}, SAMPLING, HELLO, False),
        ({"share": "session"}, SAMPLING, HELLO, True),
        ({"lazy": True}, SAMPLING, HELLO, False),
    ],
    ids=["session", "unintroduced", "stateless", "starting", "all", "one each", "lazy"],
)
async def test_lists_are_compared_only_if_they_may_differ_between_clients(
    about: Any, client: Caller, introduction: Raw | None, compared: bool
) -> None:
    place = Place()
    assert (place.request(FakeUpstream(**about), client, introduction) is not None) is compared
    await place.idle()


@pytest.mark.parametrize("error", [ConnectFailed("no"), TimeoutError()])
async def test_clients_get_the_default_lists_if_the_comparison_fails(error: Exception) -> None:
    place, upstream = Place(), FakeUpstream()
    upstream.next = error
    place.request(upstream)
    await place.idle()
    assert (place.variant(upstream), place.request(upstream)) == (DEFAULT_VARIANT, None)
    assert place.changed == []


@pytest.mark.parametrize(("latency", "limit"), [(None, 5.0), (0.5, 5.0), (4.0, 12.0)])
async def test_a_server_that_hangs_delays_the_comparisons_of_others_for_a_limited_time(
    virtual_time: VirtualTime, latency: float | None, limit: float
) -> None:
    place, hanging, other = Place(), FakeUpstream(latency=latency), FakeUpstream("blue")
    hanging.opening, began = asyncio.Event(), virtual_time.now
    place.request(hanging)
    place.request(other)
    await place.idle()
    assert virtual_time.now == began + limit
    assert place.shown(("blue", place.variant(other))) == ["blue_a", "blue_b"]
    assert place.request(hanging) is None


@pytest.mark.parametrize(
    "error",
    [LocalResourceError("no", resource="memory"), ServerBusy("no", retry_after=1.0)],
    ids=["shortage", "busy"],
)
async def test_a_comparison_is_repeated_after_a_temporary_failure(
    error: Exception,
) -> None:
    place, upstream = Place(), FakeUpstream()
    found, upstream.next = upstream.next, error
    place.request(upstream)
    await place.idle()
    upstream.next = found
    assert place.request(upstream) is not None
    await place.idle()
    assert place.shown(("red", place.variant(upstream))) == ["red_a", "red_b"]


async def test_a_failed_comparison_is_repeated_once_on_a_connection_of_a_client() -> None:
    place, upstream = Place(), FakeUpstream()
    upstream.next = ConnectFailed("no")
    place.request(upstream)
    await place.idle()
    connection = connection_with("a", "b", opened_for=SAMPLING)
    connection.activate()
    place.open(upstream, connection)
    await place.idle()
    assert place.shown(("red", place.variant(upstream))) == ["red_a", "red_b"]


async def test_a_comparison_that_fails_on_connections_of_clients_is_not_repeated() -> None:
    """The list requests may be the reason for the exit of the client's process."""
    place, upstream = Place(), FakeUpstream()
    connections = [connection_with("a", "b", opened_for=SAMPLING) for _ in range(4)]

    async def exit() -> None:
        raise ChannelClosed("exited")

    for connection in connections:
        connection.answering = exit
        connection.activate()
        place.open(upstream, connection)
        await place.idle()
    assert [bool(one.requests) for one in connections] == [True, True, False, False]
    assert place.request(upstream) is None


async def test_lists_that_change_without_notification_are_not_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fairlead.gateway")
    place, upstream = Place(), FakeUpstream()
    connection = upstream.next

    async def another_tool() -> None:
        name = f"t{connection.count('tools/list')}"
        connection.items["tools/list"] = [{"name": name, "inputSchema": {}}]

    connection.answering = another_tool
    place.request(upstream)
    await place.idle()
    assert (place.variant(upstream), place.changed) == (DEFAULT_VARIANT, [])
    assert upstream.retired == [connection]
    assert "red: the lists change without notification and are not compared" in caplog.messages


async def test_the_lists_of_servers_are_compared_one_server_at_a_time() -> None:
    place, first, second = Place(), FakeUpstream(), FakeUpstream("blue")
    first.opening = asyncio.Event()
    place.request(first)
    place.request(second)
    place.request(second, ROOTS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (len(first.opened), second.opened) == (1, [])
    second.state = "reconnecting"  # the server disconnects before its comparison begins
    first.opening.set()
    await place.idle()
    assert place.shown(("red", place.variant(first))) == ["red_a", "red_b"]
    assert second.opened == []
    second.state = "connected"
    assert place.request(second) is not None  # the lists of this server are still unknown
    await place.idle()
    assert second.opened == [(SAMPLING, HELLO)]


async def test_equal_lists_of_different_clients_are_stored_once() -> None:
    place, upstream = Place(), FakeUpstream()
    for client in (SAMPLING, ROOTS):
        place.request(upstream, client)
    await place.idle()
    number = place.variant(upstream, SAMPLING)
    assert number == place.variant(upstream, ROOTS) != DEFAULT_VARIANT
    assert place.shown(("red", number)) == ["red_a", "red_b"]


# Connections of clients


async def test_the_first_active_connection_with_new_capabilities_is_compared() -> None:
    place, upstream = Place(), FakeUpstream()
    first, second = (connection_with("a", "b", opened_for=SAMPLING) for _ in range(2))
    place.open(upstream, first)
    await asyncio.sleep(0)
    assert first.requests == []  # the client has not completed the handshake yet
    first.activate()
    await place.idle()
    assert place.shown(("red", place.variant(upstream))) == ["red_a", "red_b"]
    assert place.changed == [(KEY, {TOOLS})]
    place.open(upstream, second)
    second.activate()
    await place.idle()
    assert (second.requests, upstream.retired) == ([], [])


@pytest.mark.parametrize(
    "about",
    [
        {"opened_for": None},
        {"opened_for": caller(None)},
        {"opened_for": SAMPLING, "stateless": True},
    ],
    ids=["ours", "plain", "stateless"],
)
async def test_connections_that_are_stateless_or_without_capabilities_are_not_compared(
    about: Any,
) -> None:
    place, upstream = Place(), FakeUpstream()
    connection = connection_with("a", "b", **about)
    connection.activate()
    place.open(upstream, connection)
    await place.idle()
    assert connection.requests == []


async def test_a_connection_opened_for_a_comparison_is_compared_once() -> None:
    place, upstream = Place(), FakeUpstream()
    upstream.next = connection_with("a", "b", opened_for=SAMPLING)
    upstream.opening = asyncio.Event()
    place.request(upstream)
    await asyncio.sleep(0)
    place.open(upstream, upstream.next)
    await asyncio.sleep(0)
    upstream.opening.set()
    await place.idle()
    assert (upstream.next.count("tools/list"), place.changed) == (2, [(KEY, {TOOLS})])


async def test_a_connection_that_never_becomes_active_is_not_compared(
    virtual_time: VirtualTime,
) -> None:
    place, upstream, began = Place(), FakeUpstream(), virtual_time.now
    for _ in range(3):
        place.open(upstream, connection_with("a", "b", opened_for=SAMPLING))
    await place.idle()
    assert virtual_time.now == began + upstream.settings.connect_timeout
    other = connection_with("a", "b", opened_for=SAMPLING)
    other.activate()
    place.open(upstream, other)  # this connection is compared instead
    await place.idle()
    assert place.shown(("red", place.variant(upstream))) == ["red_a", "red_b"]


# Changes


async def test_the_lists_of_a_session_that_is_used_are_not_dropped() -> None:
    place, upstream = Place(), FakeUpstream()
    quiet, busy = connection_with("a"), connection_with("a")
    for one in (quiet, busy):
        place.open(upstream, one)
    quiet.items["tools/list"].append({"name": "own", "inputSchema": {}})
    quiet.announce()
    await place.idle()
    session: Any = SimpleNamespace(connection=quiet)
    for number in range(LIST_VARIANTS.value + 1):
        busy.items["tools/list"].append({"name": f"t{number}", "inputSchema": {}})
        busy.announce()
        await place.idle()
        assert place.shown(("red", place.variant(upstream, session=session))) == [
            "red_a",
            "red_own",
        ]
    assert upstream.warnings  # variants that no session uses were dropped


async def test_a_change_on_a_connection_is_visible_only_to_its_own_sessions() -> None:
    place, upstream = Place(), FakeUpstream()
    connection, other = connection_with("a"), connection_with("a")
    for one in (connection, other):
        place.open(upstream, one)
    connection.items["tools/list"].append({"name": "new", "inputSchema": {}})
    connection.announce()
    await place.idle()
    session, others = SimpleNamespace(connection=connection), SimpleNamespace(connection=other)
    assert connection.variant is not None
    assert place.variant(upstream, session=session) == connection.variant
    assert place.shown(("red", connection.variant)) == ["red_a", "red_new"]
    assert place.variant(upstream, session=others) == DEFAULT_VARIANT
    assert place.variant(upstream, session=SimpleNamespace(connection=None)) == DEFAULT_VARIANT
    assert (place.changed, other.requests) == ([(connection, {TOOLS})], [])
    connection.items["tools/list"].pop()
    connection.announce()
    await place.idle()
    assert connection.variant == DEFAULT_VARIANT
    assert place.changed == [(connection, {TOOLS})] * 2


@pytest.mark.parametrize(
    ("method", "requested"),
    [
        ("notifications/tools/list_changed", True),
        ("notifications/prompts/list_changed", True),
        ("notifications/resources/updated", False),
        ("notifications/message", False),
    ],
)
async def test_lists_are_requested_again_only_after_a_list_change_notification(
    method: str, requested: bool
) -> None:
    place, connection = Place(), connection_with("a")
    place.open(FakeUpstream(), connection)
    connection.announce(method)
    await place.idle()
    assert bool(connection.requests) is requested
    assert place.changed == []


async def test_lists_that_change_continuously_are_requested_at_growing_intervals(
    virtual_time: VirtualTime,
) -> None:
    place, connection = Place(), connection_with("a")
    times: list[float] = []
    began, hits = virtual_time.now, RELISTING.hits

    async def announce() -> None:
        times.append(round(virtual_time.now - began, 2))
        if len(times) < 10:
            connection.announce()

    connection.answering = announce
    place.open(upstream := FakeUpstream(), connection)
    connection.announce()
    await place.idle()
    assert set(upstream.warnings) == {
        "announces changes of its lists continuously, and is asked at most every 5 s"
    }
    assert times == [0.0, 0.05, 0.15, 0.35, 0.75, 1.55, 3.15, 6.35, 11.35, 16.35]
    assert RELISTING.hits - hits == 9
    assert place.comparison._relisting == {}
    assert place.comparison._stale == {}


async def test_lists_are_not_requested_from_a_lost_connection() -> None:
    place, connection = Place(), connection_with("a")
    place.open(FakeUpstream(), connection)

    async def lose() -> None:
        connection.announce()
        connection.alive = False

    connection.answering = lose
    connection.announce()
    await place.idle()
    assert connection.count("tools/list") == 1
    assert place.comparison._stale == {}


async def test_a_failed_listing_keeps_the_previous_lists() -> None:
    place, upstream, connection = Place(), FakeUpstream(), connection_with("a", "b")
    place.open(upstream, connection)
    connection.announce()
    await place.idle()
    before = connection.variant
    assert before not in (None, DEFAULT_VARIANT)
    connection.items["tools/list"] = RpcError(-32603, "no")
    connection.announce()
    await place.idle()
    assert (connection.variant, len(place.changed)) == (before, 1)


async def test_a_dropped_list_variant_is_removed_from_the_catalog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LIST_VARIANTS, "value", 1)
    place, upstream = Place(), FakeUpstream()
    numbers = []
    for tool in ("b", "c"):
        connection = connection_with("a", tool)
        place.open(upstream, connection)
        connection.announce()
        await place.idle()
        assert connection.variant is not None
        numbers.append(connection.variant)
    assert [place.shown(("red", number)) for number in numbers] == [[], ["red_a", "red_c"]]
    assert upstream.warnings == [
        "lists different items to more than 1 kinds of clients; those of the longest unused kind "
        "were dropped"
    ]
    everything = [tool["name"] for tool in page(place.catalog)["tools"]]
    assert everything == ["red_a", "red_c"]


# Limits and replicas


async def test_lists_over_the_size_limit_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fairlead.gateway")
    place, connection = Place(max_server_bytes=5), connection_with("a", "b")
    place.open(FakeUpstream(), connection)
    connection.announce()
    [task] = place.tasks
    await asyncio.wait({task})
    assert task.exception() is None
    assert "the lists of red for some clients have more than 5 bytes" in caplog.text


async def test_list_variants_of_different_replicas_have_different_ids() -> None:
    place, first, second = Place(), FakeUpstream("red"), FakeUpstream("red#2")
    for upstream, tool in ((first, "b"), (second, "c")):
        upstream.next = connection_with("a", tool)
        place.request(upstream)
        await place.idle()
    assert place.shown(("red", place.variant(first))) == ["red_a", "red_b"]


async def test_lists_are_compared_again_after_the_default_list_has_changed() -> None:
    place, upstream = Place(), FakeUpstream()
    place.request(upstream)
    await place.idle()
    upstream.next.items["tools/list"].append({"name": "new", "inputSchema": {}})
    upstream.lists.put(TOOLS, [*upstream.lists.items[TOOLS], Raw(b'{"name":"new"}')])
    assert place.request(upstream) is not None
    await place.idle()
    assert place.shown(("red", place.variant(upstream))) == ["red_a", "red_b", "red_new"]
    assert place.changed == [(KEY, {TOOLS})] * 2
    # the new list equals the previous one
    upstream.lists.put(TOOLS, list(upstream.lists.items[TOOLS]))
    assert place.request(upstream) is None


async def test_the_tool_filter_of_a_server_entry_applies_to_all_list_variants(
    tmp_path: Path,
) -> None:
    entry = ServerLog(tmp_path).entry(
        "notes", tools=["one", "secret"], varying={"elicitation": "more"}
    )
    spec = ServerSpec(entry=read_entry(entry), without_tools=("secret",))
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"notes": spec})
        await until(lambda: gateway.is_ready)
        async with (
            joining(gateway) as plain,
            joining(gateway, on_elicit=lambda question: {"action": "decline"}) as eliciting,
        ):
            while "notes_more" not in (listed := await names(eliciting)):
                await asyncio.sleep(0.01)
            assert "notes_secret" not in listed
            assert "notes_secret" not in await names(plain)
            with pytest.raises(RpcError, match="Unknown tool"):
                await plain.call("notes_secret")
