"""Targets of messages, resolved before policies run and again after list changes."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.gateway.catalog import target_resolver
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.target_resolver import TargetResolver
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.interceptor import Answer, Exchange
from fairlead.protocol.own_errors import own_error
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from tests.support.catalog_items import raw, resources, templates, tools
from tests.support.single_exchange import DOWN, Behind, exchange


class Place:
    """The collaborators of a resolver."""

    def __init__(self) -> None:
        self.catalog = MergedCatalog()
        self.catalog.put("git", ListKind.TOOLS, tools("log"))
        self.catalog.put("git", ListKind.RESOURCES, resources("a:1"))
        self.is_ready = True
        self.owners: dict[str, Any] = {}
        self.endpoints: dict[str, Any] = {}
        self.waited: list[str] = []
        self.error: Exception | None = None
        parts: Any = self
        self.resolver = TargetResolver(
            self.catalog, parts, parts, parts, ClientViews({}, View.everything())
        )

    async def ready(self) -> None:
        self.waited.append("lists")

    async def _look(self, exchange: Exchange) -> None:
        self.waited.append(exchange.method)
        if self.error is not None:
            raise self.error

    tool = prompt = completing = resource = _look

    def owner(self, server: str) -> Any:
        return self.owners.get(server)

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


def test_resolved_targets_are_cached_until_a_list_changes() -> None:
    place = Place()
    first = place.resolver.resolve(call("git_log"))
    assert place.resolver.resolve(call("git_log")) is first
    assert place.resolver.resolve(call("git_log", principal="ada")) is not first
    place.catalog.put("git", ListKind.TOOLS, tools("push"))
    (gone,) = place.resolver.resolve(call("git_log"))
    assert gone.server is None
    assert len(place.resolver._known) == 1


def test_the_number_of_cached_targets_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_resolver, "_MOST_KNOWN", 2)
    place = Place()
    sizes = []
    for name in ("git_log", "a", "b", "c", "d"):
        place.resolver.resolve(call(name))
        sizes.append(len(place.resolver._known))
    assert sizes == [1, 2, 1, 2, 1]


def test_up_to_four_thousand_targets_are_cached() -> None:
    place = Place()
    for number in range(4096):
        place.resolver.resolve(call(f"x{number}"))
    assert len(place.resolver._known) == 4096
    place.resolver.resolve(call("one more"))
    assert len(place.resolver._known) == 1


def test_the_total_length_of_cached_names_and_uris_is_limited() -> None:
    for length, kept in ((56, 1), (57, 0)):
        place = Place()
        params = {"name": "x" * 200, "uri": "a:" + "y" * (length - 2)}
        place.resolver.resolve(exchange("resources/read", params))
        assert len(place.resolver._known) == kept


def test_targets_of_notifications_are_not_cached() -> None:
    place = Place()
    place.resolver.resolve(call("git_log", request=False))
    assert not place.resolver._known


@pytest.mark.parametrize(
    ("method", "params", "server", "found"),
    [
        ("tools/call", {"name": "git_log"}, None, [("tool", "log", "git")]),
        ("prompts/get", {"name": "git_hi"}, None, [("prompt", "hi", "git")]),
        ("prompts/get", {"name": "git_log"}, None, [("prompt", "git_log", None)]),
        ("tools/call", {"name": "hi"}, "time", [("tool", "hi", "time")]),
        ("resources/read", {"uri": "a:1"}, None, [("resource", "a:1", "git")]),
        ("resources/read", {"uri": "t:5"}, None, [("resource", "t:5", "git")]),
        ("resources/read", {"uri": "b:1"}, None, [("resource", "b:1", None)]),
        ("resources/read", {"uri": "b:1"}, "time", [("resource", "b:1", "time")]),
        ("vendor/x", {"name": "git_log"}, None, [("other", "git_log", None)]),
        ("vendor/x", {"name": "git_log"}, "time", [("other", "git_log", "time")]),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "t:{x}"}},
            None,
            [("resource", "t:{x}", "git")],
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "git_hi"}},
            None,
            [("prompt", "hi", "git")],
        ),
        (
            "subscriptions/listen",
            {"notifications": {"resourceSubscriptions": ["a:1", "b:1"]}},
            None,
            [("resource", "a:1", "git"), ("resource", "b:1", None)],
        ),
        ("tools/list", {}, None, []),
    ],
)
def test_the_target_of_each_method_is_resolved(
    method: str, params: Any, server: str | None, found: Any
) -> None:
    place = Place()
    place.catalog.put("git", ListKind.PROMPTS, [raw(name="hi")])
    place.catalog.put("git", ListKind.TEMPLATES, templates("t:{x}"))
    targets = place.resolver.resolve(exchange(method, params, server=server))
    assert [(one.kind, one.own, one.server) for one in targets] == found
    servers = {one[2] for one in found}
    expected = server or (servers.pop() if len(servers) == 1 else None)
    assert place.resolver.server_of(exchange(method, params, server=server)) == expected


async def test_requests_with_malformed_targets_do_not_wait_for_servers() -> None:
    place = Place()
    await place.ask(exchange("completion/complete", {"ref": 7}))
    assert place.waited == []
    (target,) = place.resolver.resolve(exchange("completion/complete", {"ref": 7}))
    assert (target.unclear, target.server) == (True, None)


@pytest.mark.parametrize(
    ("method", "server", "waited"),
    [
        ("tools/call", None, ["lists", "tools/call"]),
        ("prompts/get", None, ["lists", "prompts/get"]),
        ("resources/subscribe", None, ["lists", "resources/subscribe"]),
        ("completion/complete", None, ["lists", "completion/complete"]),
        ("tools/call", "git", ["lists"]),
        ("tools/list", None, ["lists"]),
    ],
)
async def test_requests_for_unknown_items_wait_for_servers(
    method: str, server: str | None, waited: list[str]
) -> None:
    place = Place()
    await place.resolver.wait_until_known(exchange(method, {}, server=server))
    assert place.waited == waited


@pytest.mark.parametrize(("length", "kept"), [(256, True), (257, False)])
def test_targets_of_server_requests_and_those_with_long_names_are_not_cached(
    length: int, kept: bool
) -> None:
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
async def test_a_request_waits_for_a_server_that_may_have_its_target(
    asked: Exchange, waited: list[str]
) -> None:
    place = Place()
    assert await place.ask(asked) == b"{}"
    assert place.waited == waited
    assert asked.resolver == place.resolver.resolve


async def test_a_resource_request_waits_until_all_servers_are_ready() -> None:
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
async def test_errors_while_waiting_are_ignored_unless_the_server_is_still_starting(
    error: RpcError, raised: bool
) -> None:
    place = Place()
    place.error = error
    if raised:
        with pytest.raises(RpcError, match="still starting"):
            await place.ask(call("nothing"))
    else:
        assert await place.ask(call("nothing")) == b"{}"


def test_the_server_of_a_message_is_found_by_endpoint_or_target() -> None:
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


def sent_by(carrier: Any) -> Exchange:
    """Return a request from a server on the connection `carrier`."""
    sent = exchange("ping", way=DOWN)
    sent.edge = SimpleNamespace(carrier=carrier)  # type: ignore[assignment]
    return sent


async def test_the_server_that_sent_a_message_is_found_by_its_connection() -> None:
    place, (channel, _) = Place(), memory_pair()
    place.owners = {"git": SimpleNamespace(name="git"), "git#2": SimpleNamespace(name="git")}
    connections = [UpstreamConnection(name, channel) for name in ("git", "git#2", "gone")]
    assert [one.peer.carrier for one in connections] == connections
    found = [place.resolver.server_of(sent_by(one)) for one in connections]
    assert found == ["git", "git", None]
    for connection in connections:
        await connection.close()


def test_a_message_outside_of_any_upstream_connection_has_no_sender() -> None:
    place = Place()
    place.owners = {"git": SimpleNamespace(name="git")}
    assert place.resolver.server_of(exchange("ping", way=DOWN)) is None
    assert place.resolver.server_of(sent_by(SimpleNamespace(name="git"))) is None
