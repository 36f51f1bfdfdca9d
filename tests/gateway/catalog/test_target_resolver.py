"""What a message means to policies: known before they judge it, and anew when lists change."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.target_resolver import TargetResolver
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.client_views import ClientViews
from fairlead.interceptor import Answer, Exchange
from fairlead.protocol.own_errors import own_error
from tests.support.catalog_items import resources, tools
from tests.support.single_exchange import DOWN, Behind, exchange


class Place:
    """The parts of a gateway that a resolver needs."""

    def __init__(self) -> None:
        self.catalog = MergedCatalog()
        self.catalog.put("git", ListKind.TOOLS, tools("log"))
        self.catalog.put("git", ListKind.RESOURCES, resources("a:1"))
        self.is_ready = True
        self.members: dict[str, Any] = {}
        self.endpoints: dict[str, Any] = {}
        self.waited: list[str] = []
        self.error: Exception | None = None
        self.clients: dict[str, Any] = {}
        parts: Any = self
        self.resolver = TargetResolver(
            self.catalog, parts, parts, parts, ClientViews({}, View.everything()), parts
        )

    async def ready(self) -> None:
        self.waited.append("lists")

    async def _look(self, exchange: Exchange) -> None:
        self.waited.append(exchange.method)
        if self.error is not None:
            raise self.error

    tool = prompt = completing = resource = _look

    def describe(self) -> dict[str, Any]:
        return self.clients

    async def ask(self, asked: Exchange) -> Answer:
        behind = Behind()
        answer = await self.resolver(asked, behind)
        assert behind.seen == [asked]
        return answer


def call(name: str, **about: Any) -> Exchange:
    return exchange("tools/call", {"name": name}, **about)


def test_a_tool_is_resolved_to_its_server() -> None:
    place = Place()
    (target,) = place.resolver.resolve(call("git_log"))
    assert (target.server, target.own, target.merged) == ("git", "log", "git_log")
    (unknown,) = place.resolver.resolve(call("nothing"))
    assert (unknown.server, unknown.own) == (None, "nothing")
    own = call("git_log", server="git")
    own.alias = "log"
    (at_its_endpoint,) = place.resolver.resolve(own)
    assert (at_its_endpoint.server, at_its_endpoint.own) == ("git", "log")


def test_what_was_resolved_is_kept_until_a_list_changes() -> None:
    place = Place()
    first = place.resolver.resolve(call("git_log"))
    assert place.resolver.resolve(call("git_log")) is first
    assert place.resolver.resolve(call("git_log", principal="ada")) is not first
    place.catalog.put("git", ListKind.TOOLS, tools("push"))
    (gone,) = place.resolver.resolve(call("git_log"))
    assert gone.server is None
    assert len(place.resolver._known) == 1


@pytest.mark.parametrize(("length", "kept"), [(256, True), (257, False)])
def test_long_names_are_not_kept(length: int, kept: bool) -> None:
    place = Place()
    place.resolver.resolve(call("x" * length))
    assert bool(place.resolver._known) is kept
    place.resolver._known.clear()
    place.resolver.resolve(call("git_log", way=DOWN))
    assert not place.resolver._known
    place.resolver.resolve(exchange("tools/list", {}))
    assert not place.resolver._known


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (call("git_log"), []),
        (call("nothing"), ["lists", "tools/call"]),
        (call("nothing", way=DOWN), []),
        (call("nothing", server="git"), []),
        (call("nothing", request=False), []),
        (exchange("resources/read", {"uri": "a:1"}), []),
        (exchange("resources/read", {"uri": "b:1"}), ["lists", "resources/read"]),
        (exchange("ping"), []),
    ],
    ids=["known", "unknown", "of a server", "endpoint", "note", "resource", "other", "ping"],
)
async def test_a_request_waits_for_a_server_that_may_have_what_it_names(
    asked: Exchange, waited: list[str]
) -> None:
    place = Place()
    assert await place.ask(asked) == b"{}"
    assert place.waited == waited
    assert asked.resolver == place.resolver.resolve


async def test_a_resource_waits_for_all_servers_to_be_ready() -> None:
    place = Place()
    place.is_ready = False
    await place.ask(exchange("resources/read", {"uri": "a:1"}))
    assert place.waited == ["lists", "resources/read"]
    place.waited.clear()
    await place.ask(call("git_log"))
    assert place.waited == []


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (own_error(-32602, "Unknown tool"), False),
        (RpcError(-32602, "odd", 5), False),
        (own_error(-32603, "still starting", starting=True), True),
    ],
    ids=["unknown", "odd", "starting"],
)
async def test_only_a_server_that_still_starts_is_a_reason_to_refuse(
    error: RpcError, raised: bool
) -> None:
    place = Place()
    place.error = error
    if raised:
        with pytest.raises(RpcError, match="still starting"):
            await place.ask(call("nothing"))
    else:
        assert await place.ask(call("nothing")) == b"{}"


def test_the_server_of_a_message() -> None:
    place = Place()
    server_of = place.resolver.server_of
    assert server_of(call("git_log")) == "git"
    assert server_of(call("nothing")) is None
    assert server_of(exchange("tools/list", {})) is None
    assert server_of(exchange("tools/list", {}, server="time")) == "time"
    note = exchange("notifications/x", request=False)
    assert server_of(note) is None
    place.endpoints = {"time": SimpleNamespace(clients={note.edge: 1})}
    assert server_of(note) == "time"
    assert server_of(exchange("notifications/x", request=False)) is None


def test_the_server_that_sent_a_message() -> None:
    place = Place()
    sent, other = exchange("ping", way=DOWN), exchange("ping", way=DOWN)
    link = SimpleNamespace(peer=sent.edge)
    upstream = SimpleNamespace(links=[link])
    replica = SimpleNamespace(name="git", relay=SimpleNamespace(upstream=upstream))
    place.members = {"git": SimpleNamespace(name="git", replicas=[replica])}
    assert place.resolver.server_of(sent) == "git"
    assert place.resolver.server_of(other) is None
    transport = SimpleNamespace(peer=other.edge)
    place.clients = {"git": SimpleNamespace(client=SimpleNamespace(transport=transport))}
    assert place.resolver.server_of(other) == "git"
    place.clients = {"git": SimpleNamespace(client=None)}
    assert place.resolver.server_of(other) is None
