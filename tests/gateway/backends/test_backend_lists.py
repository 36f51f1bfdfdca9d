"""Lists of a server with replicas, merged instructions, and the status page."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.api.list_budget import ListTooLarge
from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import RequestTimeout, RpcError
from fairlead.gateway.admin.http_pages import render
from fairlead.gateway.backends.backend import Member
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.gateway.handshake_results import CAPABILITIES, HandshakeResults
from fairlead.limits import INSTRUCTIONS_TEXT, MERGED_INSTRUCTIONS_TEXT
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.relay.relay import Relay
from fairlead.relay.replicas import Replicas
from fairlead.server.results.result_envelope import ResultEnvelope
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream
from fairlead.wire import to_json
from tests.support.single_exchange import exchange

LISTS = {
    ListKind.TOOLS: [{"name": "log"}, {"name": "hidden"}],
    ListKind.PROMPTS: [{"name": "p"}],
    ListKind.RESOURCES: [{"uri": "a:1"}],
    ListKind.TEMPLATES: [{"uriTemplate": "b:{x}"}],
}


class Server:
    """An upstream that is never started, with the given lists."""

    def __init__(self, name: str = "red", **spec: Any) -> None:
        given = ServerSpec(entry=read_entry({"command": "x"}), **spec)
        settings = UpstreamSettings()
        self.upstream = Upstream(name, given, settings, starts=StartLimiter(), kinds=ListKind)
        self.upstream.state = "connected"
        self.relay = Relay(self.upstream)

    def put(self, *kinds: ListKind) -> None:
        for kind in kinds or ListKind:
            self.upstream.lists.put(kind, [Raw(to_json(item)) for item in LISTS[kind]])


class Place:
    """A member, and the list changes that it reports."""

    def __init__(self, *servers: Server, **catalog: Any) -> None:
        self.servers = servers or (Server(),)
        self.catalog = MergedCatalog(GatewaySettings(**catalog))
        self.changed: list[ListKind] = []
        replicas = Replicas("red", [server.relay for server in self.servers])
        self.member = Member("red", replicas, self.catalog, self.changed.append)

    def update(self, number: int = 0) -> None:
        self.member.update(self.servers[number].upstream)

    @property
    def tools(self) -> list[str]:
        return list(self.catalog.own_names(ListKind.TOOLS, "red"))

    @property
    def ready(self) -> tuple[bool, bool]:
        return self.member.listed.is_set(), self.member.introduced.is_set()


async def test_each_changed_list_is_reported_once() -> None:
    place = Place()
    place.servers[0].put()
    place.update()
    place.update()
    place.servers[0].put()
    place.update()  # the same lists again
    assert (place.changed, place.tools) == (list(ListKind), ["log", "hidden"])
    assert (place.member.error, place.member.known, place.ready) == (None, True, (True, True))


async def test_a_server_without_list_capabilities_has_no_lists() -> None:
    place = Place()
    for kind in ListKind:
        place.servers[0].upstream.lists.put(kind, [])
    place.update()
    assert (place.changed, place.member.known, place.ready) == ([], True, (True, True))


@pytest.mark.parametrize("state", ["connecting", "reconnecting"])
async def test_a_member_is_ready_only_when_its_server_is_connected(state: Any) -> None:
    place = Place()
    place.servers[0].upstream.state = state
    place.servers[0].put(ListKind.TOOLS)
    place.update()
    assert (place.tools, place.ready) == (["log", "hidden"], (False, False))
    place.servers[0].upstream.state = "connected"
    place.update()
    assert place.ready == (True, True)


async def test_a_member_is_not_ready_before_its_first_list() -> None:
    place = Place()
    place.servers[0].upstream.state = "connecting"
    place.update()
    assert (place.changed, place.member.known, place.ready) == ([], False, (False, False))


@pytest.mark.parametrize("failed", ListKind)
async def test_a_failed_list_does_not_affect_other_lists(failed: ListKind) -> None:
    place, error = Place(), RpcError(-32603, "no")
    others = [kind for kind in ListKind if kind is not failed]
    place.servers[0].put(*others)
    place.servers[0].upstream.lists.fail(failed, error)
    place.update()
    assert (place.changed, place.ready) == (others, (True, True))
    assert (place.member.error, place.member.known) == (error, False)
    place.servers[0].put(failed)
    place.update()
    assert (place.member.error, place.member.known) == (None, True)


async def test_a_list_is_kept_if_a_later_request_for_it_fails() -> None:
    place, error = Place(), RpcError(-32603, "no")
    place.servers[0].put()
    place.update()
    place.servers[0].upstream.lists.fail(ListKind.TOOLS, error)
    place.update()
    assert (place.tools, place.changed) == (["log", "hidden"], list(ListKind))
    assert (place.member.error, place.member.known) == (error, True)


async def test_the_error_of_a_server_is_its_first_list_failure() -> None:
    place = Place()
    first, second = RpcError(1, "first"), RpcError(2, "second")
    place.servers[0].put(ListKind.RESOURCES, ListKind.TEMPLATES)
    place.servers[0].upstream.lists.fail(ListKind.TOOLS, first)
    place.servers[0].upstream.lists.fail(ListKind.PROMPTS, second)
    place.update()
    assert place.member.error is first


async def test_requests_do_not_wait_for_a_server_whose_lists_all_failed() -> None:
    place, error = Place(), RequestTimeout(5.0, "tools/list")
    place.servers[0].upstream.lists.fail(ListKind.TOOLS, error)
    place.update()
    assert (place.member.error, place.member.known, place.ready) == (error, False, (True, True))


async def test_tools_excluded_by_the_server_entry_are_not_listed() -> None:
    place = Place(Server(without_tools=("hidden",)))
    place.member.remember([{"name": "log"}, {"name": "hidden"}])
    assert place.ready == (True, False)  # the server itself has not sent its list yet
    assert (place.tools, place.changed) == (["log"], [ListKind.TOOLS])
    place.member.remember([{"name": "log"}])
    assert place.changed == [ListKind.TOOLS]  # unchanged
    place.servers[0].put()
    place.update()
    assert (place.tools, place.changed) == (["log"], list(ListKind))
    prompts = place.catalog.own_names(ListKind.PROMPTS, "red")
    assert list(prompts) == ["p"]


async def test_a_list_over_the_size_limit_is_not_stored() -> None:
    place = Place(max_server_bytes=5)
    place.member.remember([{"name": "log"}])
    assert (place.tools, place.changed, place.ready) == ([], [], (True, False))
    place.servers[0].put(ListKind.TOOLS)
    place.update()
    assert (place.tools, place.changed) == ([], [])
    assert isinstance(place.member.error, ListTooLarge)
    assert "have more than 5 bytes" in str(place.member.error)
    assert (place.member.known, place.ready) == (False, (True, True))


async def test_a_list_over_the_size_limit_is_an_error_until_it_is_replaced() -> None:
    place = Place(max_server_bytes=5)
    place.servers[0].put(ListKind.TOOLS)
    place.update()
    place.servers[0].upstream.lists.put(ListKind.PROMPTS, [])
    place.update()
    assert isinstance(place.member.error, ListTooLarge)
    assert not place.member.known
    place.servers[0].upstream.lists.put(ListKind.TOOLS, [])
    place.update()
    assert (place.member.error, place.member.known) == (None, True)


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (("connected", "connected"), ["a"]),
        (("reconnecting", "connected"), ["b"]),
        (("failed", "connecting"), ["b"]),
        (("connecting", "failed"), ["a"]),
    ],
)
async def test_the_lists_of_a_connected_replica_are_preferred_to_those_of_a_connecting_replica(
    states: tuple[Any, Any], shown: list[str]
) -> None:
    place = Place(Server("red"), Server("red#2"))
    for server, state, name in zip(place.servers, states, "ab", strict=True):
        server.upstream.state = state
        server.upstream.lists.put(ListKind.TOOLS, [Raw(to_json({"name": name}))])
    place.update(0)
    place.update(1)
    assert place.tools == shown
    assert place.ready == ("connected" in states, "connected" in states)


# Instructions


def results(own: str | None = None, **texts: str | None) -> HandshakeResults:
    members = [
        SimpleNamespace(name=name, upstreams=[SimpleNamespace(instructions=text)])
        for name, text in texts.items()
    ]
    introduced: list[Any] = []

    def within(view: View) -> list[Any]:
        return [member for member in members if view.includes(member.name)]

    async def ready() -> None:
        introduced.append("ready")

    parts: Any = {
        "registry": SimpleNamespace(within=within),
        "lists": SimpleNamespace(ready=ready, seen=introduced),
        "changes": SimpleNamespace(introduced=lambda *of: introduced.append("introduced")),
    }
    info = {"name": "x", "version": "1"}
    views = ClientViews({"ada": View(servers=("blue",))}, View.everything())
    return HandshakeResults(info, own, ResultEnvelope(info), views=views, **parts)


@pytest.mark.parametrize(
    ("own", "principal", "texts", "shown"),
    [
        (None, "bob", {"red": "r", "blue": "b"}, "blue: b\n\nred: r"),
        (None, "ada", {"red": "r", "blue": "b"}, "blue: b"),
        (None, "bob", {"red": "", "blue": None}, None),
        ("mine", "bob", {"red": "r"}, "mine"),
    ],
)
async def test_only_servers_in_the_view_contribute_instructions(
    own: str | None, principal: str, texts: dict[str, str | None], shown: str | None
) -> None:
    made = results(own, **texts)
    asked = exchange("server/discover", {}, principal=principal)
    found = json.loads(bytes(await made.discover(asked) or b""))
    assert found.get("instructions") == shown
    assert found["supportedVersions"] == [revision.value for revision in reversed(Revision)]
    assert found["capabilities"] == CAPABILITIES


async def test_merged_instructions_are_limited_in_length() -> None:
    each, all_of_them = INSTRUCTIONS_TEXT.value, MERGED_INSTRUCTIONS_TEXT.value
    hits = INSTRUCTIONS_TEXT.hits, MERGED_INSTRUCTIONS_TEXT.hits
    count = all_of_them // each
    texts = {f"s{n:03}": "x" * each for n in range(count)}
    found = await results(**texts)._instructions(exchange())  # type: ignore[arg-type]
    assert found["instructions"].count("x") == count * each
    assert (INSTRUCTIONS_TEXT.hits, MERGED_INSTRUCTIONS_TEXT.hits) == hits
    longer = {**texts, "s000": "x" * (each + 1), "zz": "y", "zzz": "z"}
    found = await results(**longer)._instructions(exchange())  # type: ignore[arg-type]
    assert "…" in found["instructions"]
    assert "zz" not in found["instructions"]
    assert INSTRUCTIONS_TEXT.hits == hits[0] + 1
    assert MERGED_INSTRUCTIONS_TEXT.hits == hits[1] + 1


async def test_initialize_waits_until_servers_have_listed_their_items() -> None:
    made = results(red="r")
    client: Any = SimpleNamespace(introduction=None)
    asked = exchange("initialize", {"a": 1}, stateless=False)
    found = json.loads(bytes(await made.initialize(asked, client) or b""))
    assert found["protocolVersion"] == NEWEST_HANDSHAKE.value
    assert (found["serverInfo"], found["instructions"]) == ({"name": "x", "version": "1"}, "red: r")
    # Servers get the revision that the gateway uses with the client.
    version = NEWEST_HANDSHAKE.value
    assert json.loads(bytes(client.introduction)) == {"a": 1, "protocolVersion": version}
    assert made.lists.seen == ["introduced", "ready"]  # type: ignore[attr-defined]
    await made.initialize(exchange("initialize", {}, stateless=False), None)


# Status page


def page(clients: int = 1, *servers: dict[str, Any], **counts: int) -> str:
    now = {"name": "<x>", "version": "1", "clients": clients, "counts": counts}
    return render({**now, "servers": list(servers)}, "http://x/mcp")


@pytest.mark.parametrize(
    ("clients", "counts", "shown"),
    [
        (0, {}, "0 clients · no items yet<"),
        (1, {"tools": 1, "prompts": 0}, "1 client · 1 tool<"),
        (2, {"tools": 2, "prompts": 1}, "2 clients · 2 tools, 1 prompt<"),
    ],
)
def test_the_status_page_shows_the_number_of_clients_and_items(
    clients: int, counts: dict[str, int], shown: str
) -> None:
    assert shown in page(clients, **counts)
    assert "<h1>&lt;x&gt;</h1>" in page(clients, **counts)


def test_the_status_page_shows_a_token_only_if_one_is_required() -> None:
    now = {"name": "x", "version": "1", "clients": 0, "counts": {}, "servers": []}
    assert "Bearer TOKEN" in render(now, "u", needs_token=True)
    assert "Bearer" not in render(now, "u")


@pytest.mark.parametrize(
    ("state", "error", "look"),
    [("connected", None, "good"), ("failed", "why", "bad"), ("idle", None, "dim")],
)
def test_the_status_page_has_a_row_for_each_server(
    state: str, error: str | None, look: str
) -> None:
    row = {
        "name": "red",
        "status": state,
        "error": error,
        "era": None,
        "revision": None,
        "transport": None,
        "tools": 3,
        "calls": None,
        "errors": 0,
        "latency_ms": None,
        "source": None,
        "suspended": [],
        "remedy": None,
    }
    shown = page(1, row)
    assert f'<span class="{look}">{state}</span>' in shown
    assert ("<br>" in shown) is (error is not None)
    assert '<td class="n">3</td><td class="n"></td><td class="n">0</td><td class="n"></td>' in shown
    full = {**row, "era": "stateless", "revision": "r", "latency_ms": 1.5, "source": "Program"}
    shown = page(1, full)
    assert "<td>stateless r</td>" in shown
    assert '<td class="n">1.5 ms</td><td class="dim">Program</td>' in shown
