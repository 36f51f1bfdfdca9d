"""Lists of one server behind a gateway: what is kept if one of them fails; and how it is shown."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.api.list_budget import ListTooLarge
from fairlead.errors import RequestTimeout, RpcError
from fairlead.gateway.admin.http_pages import render
from fairlead.gateway.backends.backend import Member
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.client_views import ClientViews
from fairlead.gateway.handshake_results import CAPABILITIES, HandshakeResults
from fairlead.limits import INSTRUCTIONS_TEXT, LIST_SECONDS, MERGED_INSTRUCTIONS_TEXT
from fairlead.manager.server_spec import read_spec
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.server.results.result_envelope import ResultEnvelope
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

OFFERS = {"tools": {}, "prompts": {}, "resources": {}}
LISTS = {
    "tools/list": {"tools": [{"name": "log"}, {"name": "hidden"}]},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "resources/list": {"resources": [{"uri": "a:1"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "b:{x}"}]},
}
METHODS = list(LISTS)


class Server:
    """A server that lists as it is told."""

    name, rank = "red", 0
    stateless = True

    def __init__(self, capabilities: Any = None, **spec: Any) -> None:
        declared = json.dumps(OFFERS if capabilities is None else capabilities).encode()
        self.agreement = Agreement(revision=NEWEST, capabilities=declared)
        given = read_spec({"command": "x"}, None)
        self.configured: Any = SimpleNamespace(
            has_tool=lambda name: name not in spec.get("without", ()),
            only_tools=None,
            without_tools=spec.get("without", ()),
            entry=given.entry,
        )
        self.peer = self
        self.asked: list[str] = []
        self.failures: dict[str, Any] = {}

    async def base(self) -> Any:
        return self

    async def request(self, method: str, params: Any = None, *, timeout: float) -> Raw:
        assert timeout == 30.0
        self.asked.append(method)
        failure = self.failures.get(method)
        if failure == "hangs":
            await asyncio.Event().wait()
        if isinstance(failure, Exception):
            raise failure
        return Raw(json.dumps(LISTS[method]).encode())


def member(server: Server, **catalog: Any) -> tuple[Member, MergedCatalog, list[ListKind]]:
    changed: list[ListKind] = []
    lists = MergedCatalog(**catalog)
    replicas: Any = [server]
    return Member("red", replicas, lists, changed.append), lists, changed


async def test_all_that_a_server_offers_is_listed_and_told_once() -> None:
    server = Server()
    one, catalog, changed = member(server)
    await one._list_once()
    await one._list_once()
    assert server.asked == METHODS * 2
    assert changed == list(ListKind)
    assert catalog.own_names(ListKind.TOOLS, "red") == ["log", "hidden"]
    assert (one.error, one._known) == (None, True)


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        ({"tools": {}}, METHODS[:1]),
        ({"resources": {}}, METHODS[2:]),
        ({}, []),
    ],
)
async def test_only_what_a_server_offers_is_asked_for(capabilities: Any, asked: list[str]) -> None:
    server = Server(capabilities)
    one, _, _ = member(server)
    await one._list_once()
    assert server.asked == asked


@pytest.mark.parametrize("method", METHODS)
async def test_a_list_that_fails_costs_no_other(method: str) -> None:
    server = Server()
    error = RpcError(-32603, "no")
    server.failures = {method: error}
    one, _, changed = member(server)
    if method == "resources/templates/list":  # which many do not have
        await one._list_once()
    else:
        with pytest.raises(RpcError) as raised:
            await one._list_once()
        assert raised.value is error
        assert not one._known
    assert [kind.method for kind in changed] == [one for one in METHODS if one != method]


async def test_the_first_of_several_failures_is_told() -> None:
    server = Server()
    first, second = RpcError(1, "first"), RpcError(2, "second")
    server.failures = {"tools/list": first, "prompts/list": second}
    with pytest.raises(RpcError, match="first"):
        await member(server)[0]._list_once()


async def test_a_list_that_hangs_is_given_up(virtual_time: VirtualTime) -> None:
    server, hits = Server(), LIST_SECONDS.hits
    server.failures = {"tools/list": "hangs"}
    one, _, changed = member(server)
    began = virtual_time.now
    with pytest.raises(RequestTimeout):
        await one._list_once()
    assert virtual_time.now == began + LIST_SECONDS.value
    assert LIST_SECONDS.hits == hits + 1
    assert len(changed) == 3
    own = RequestTimeout(5.0, "tools/list")
    server.failures = {"tools/list": own}
    with pytest.raises(RequestTimeout) as raised:
        await one._list_once()
    assert raised.value is own
    assert LIST_SECONDS.hits == hits + 1


async def test_tools_that_the_entry_leaves_out_are_not_listed() -> None:
    one, catalog, changed = member(Server(without=("hidden",)))
    one.remember([{"name": "log"}, {"name": "hidden"}])
    assert one.listed.is_set()
    assert (catalog.own_names(ListKind.TOOLS, "red"), changed) == (["log"], [ListKind.TOOLS])
    one.remember([{"name": "log"}])
    assert changed == [ListKind.TOOLS]  # the same
    await one._list_once()
    assert catalog.own_names(ListKind.TOOLS, "red") == ["log"]


async def test_what_is_too_large_is_not_kept() -> None:
    one, catalog, changed = member(Server(), server_bytes=5)
    one.remember([{"name": "log"}])
    assert one.listed.is_set()
    assert (catalog.own_names(ListKind.TOOLS, "red"), changed) == ([], [])
    with pytest.raises(ListTooLarge, match="have more than 5 bytes"):
        await one._list_once()


# How a gateway introduces itself


def results(own: str | None = None, **texts: str | None) -> HandshakeResults:
    connections = {
        name: SimpleNamespace(client=SimpleNamespace(instructions=text))
        for name, text in texts.items()
    }
    owners = {name: SimpleNamespace(name=name) for name in texts if name != "stranger"}
    introduced: list[Any] = []

    async def ready() -> None:
        introduced.append("ready")

    parts: Any = {
        "manager": SimpleNamespace(connections=connections),
        "registry": SimpleNamespace(owner=owners.get),
        "lists": SimpleNamespace(ready=ready),
        "changes": SimpleNamespace(introduced=lambda *of: introduced.append("introduced")),
    }
    info = {"name": "x", "version": "1"}
    views = ClientViews({"ada": View(servers=("blue",))}, View.everything())
    made = HandshakeResults(info, own, ResultEnvelope(info), views=views, **parts)
    made.seen = introduced  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("own", "principal", "texts", "shown"),
    [
        (None, "bob", {"red": "r", "blue": "b"}, "blue: b\n\nred: r"),
        (None, "ada", {"red": "r", "blue": "b"}, "blue: b"),
        (None, "bob", {"red": "", "blue": None, "stranger": "s"}, None),
        ("mine", "bob", {"red": "r"}, "mine"),
    ],
)
async def test_instructions_are_those_of_the_servers_that_a_client_sees(
    own: str | None, principal: str, texts: dict[str, str | None], shown: str | None
) -> None:
    made = results(own, **texts)
    asked = exchange("server/discover", {}, principal=principal)
    found = json.loads(bytes(await made.discover(asked) or b""))
    assert found.get("instructions") == shown
    assert found["supportedVersions"] == [revision.value for revision in reversed(Revision)]
    assert found["capabilities"] == CAPABILITIES


async def test_instructions_have_a_limited_length() -> None:
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


async def test_a_client_with_a_handshake_is_introduced_once_all_is_listed() -> None:
    made = results(red="r")
    client: Any = SimpleNamespace(introduction=None)
    asked = exchange("initialize", {"a": 1}, stateless=False)
    found = json.loads(bytes(await made.initialize(asked, client) or b""))
    assert found["protocolVersion"] == NEWEST_HANDSHAKE.value
    assert (found["serverInfo"], found["instructions"]) == ({"name": "x", "version": "1"}, "red: r")
    assert bytes(client.introduction) == b'{"a": 1}'
    assert made.seen == ["introduced", "ready"]  # type: ignore[attr-defined]
    await made.initialize(exchange("initialize", {}, stateless=False), None)


# The page


def page(clients: int = 1, *servers: dict[str, Any], **counts: int) -> str:
    now = {"name": "<x>", "version": "1", "clients": clients, "counts": counts}
    return render({**now, "servers": list(servers)}, "http://x/mcp")


@pytest.mark.parametrize(
    ("clients", "counts", "shown"),
    [
        (0, {}, "0 clients · nothing offered yet<"),
        (1, {"tools": 1, "prompts": 0}, "1 client · 1 tool<"),
        (2, {"tools": 2, "prompts": 1}, "2 clients · 2 tools, 1 prompt<"),
    ],
)
def test_the_page_counts_what_there_is(clients: int, counts: dict[str, int], shown: str) -> None:
    assert shown in page(clients, **counts)
    assert "<h1>&lt;x&gt;</h1>" in page(clients, **counts)


def test_a_token_is_named_where_one_is_needed() -> None:
    now = {"name": "x", "version": "1", "clients": 0, "counts": {}, "servers": []}
    assert "Bearer TOKEN" in render(now, "u", needs_token=True)
    assert "Bearer" not in render(now, "u")


@pytest.mark.parametrize(
    ("state", "error", "look"),
    [("connected", None, "good"), ("failed", "why", "bad"), ("idle", None, "dim")],
)
def test_a_server_is_a_row(state: str, error: str | None, look: str) -> None:
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
    }
    shown = page(1, row)
    assert f'<span class="{look}">{state}</span>' in shown
    assert ("<br>" in shown) is (error is not None)
    assert '<td class="n">3</td><td class="n"></td><td class="n">0</td><td class="n"></td>' in shown
    full = {**row, "era": "stateless", "revision": "r", "latency_ms": 1.5, "source": "Program"}
    shown = page(1, full)
    assert "<td>stateless r</td>" in shown
    assert '<td class="n">1.5 ms</td><td class="dim">Program</td>' in shown
