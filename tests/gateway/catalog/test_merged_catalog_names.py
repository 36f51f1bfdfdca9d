"""Merged lists: names, size limits, order, variants, and requests that wait for lists."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.client.api.list_budget import ListTooLarge
from fairlead.gateway.catalog import view_list
from fairlead.gateway.catalog.list_requests import MergedLists
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.limits import CATALOG_BYTES, PAGE_BYTES, SERVER_CATALOG_BYTES
from fairlead.protocol.revisions import NEWEST
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, page, raw, resources, templates, tools
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

TOOLS, RESOURCES = ListKind.TOOLS, ListKind.RESOURCES


def catalog(**lists: Any) -> MergedCatalog:
    one = MergedCatalog()
    for server, items in lists.items():
        one.put(server, TOOLS, items)
    return one


@pytest.mark.parametrize(
    ("name", "displayed", "merged", "also"),
    [
        ("log", "git_log", "git_log", ("git_log",)),
        ("LOG", "git_LOG", "git_LOG", ("log", "git_log")),
        ("new", "git_new", "git_new", ()),
    ],
)
def test_a_resolved_target_contains_all_names_of_its_tool(
    name: str, displayed: str, merged: str, also: tuple[str, ...]
) -> None:
    found = catalog(git=tools("log", "push")).target(TOOLS, "git", name, ALL)
    assert (found.kind, found.own, found.server) == ("tool", name, "git")
    assert (found.displayed, found.merged) == (displayed, merged)
    assert set(also) <= {*found.also, *found.names}
    assert bool(found.also) is bool(also)


def test_a_name_in_another_case_is_looked_up_in_the_current_list() -> None:
    one = catalog(git=tools("log", "Log"))
    assert one.listed_as(TOOLS, "git", "LOG") == ["log", "Log"]
    assert one.listed_as(TOOLS, "git", "LOG") == ["log", "Log"]
    assert one.listed_as(TOOLS, "other", "LOG") == []
    one.put("git", TOOLS, tools("push"))
    assert one.listed_as(TOOLS, "git", "LOG") == []
    assert one.listed_as(TOOLS, "git", "PUSH") == ["push"]


def test_items_are_looked_up_by_their_own_names_within_a_view() -> None:
    one = catalog(git=tools("log", "push", "pull"), time=tools("now"))
    view = View(deny=("git_push",), hide=("git_pull",), rename={"git_log": "history"})
    assert [one.has(TOOLS, "git", name, view) for name in ("log", "push", "pull", "now")] == [
        *(True, False, True, False)
    ]
    assert (one.own_count(TOOLS, "git", view), one.own_count(TOOLS, "git", ALL)) == (1, 3)
    members = json.loads(b"{%b}" % one.own_page(TOOLS, "git", view, NEWEST))
    assert [tool["name"] for tool in members["tools"]] == ["log"]
    renamed = one.definition("history", view)
    assert renamed is not None
    assert json.loads(bytes(renamed))["name"] == "history"
    assert one.definition("git_log", view) is None
    assert [name for name, _ in one.definitions(view)] == ["history", "time_now"]
    assert one.own_names(TOOLS, "git") == ["log", "push", "pull"]


def test_a_server_that_has_not_listed_yet_keeps_its_configured_position() -> None:
    one = MergedCatalog()
    one.expect("first")
    one.put("second", RESOURCES, resources("a:1"))
    one.put("first", RESOURCES, resources("a:1"))
    assert one.owner("a:1", ALL) == "first"
    assert one.arrange(["first", "second"]) == set()
    assert one.arrange(["second"]) == {RESOURCES}
    assert one.owner("a:1", ALL) == "second"
    one.drop("second")
    assert one.owner("a:1", ALL) == "first"


def test_the_owner_of_a_resource_template_is_found_by_template_or_uri() -> None:
    one = MergedCatalog()
    one.put("red", ListKind.TEMPLATES, templates("a:{x}"))
    one.put("blue", RESOURCES, resources("b:1"))
    assert one.template_owner("a:{x}", ALL) == "red"
    assert one.template_owner("b:1", ALL) == "blue"
    assert one.template_owner("a:5", ALL) == "red"
    assert one.template_owner("c:5", ALL) is None
    assert one.owner("b:1", View(deny=("b:*",))) is None


@pytest.mark.parametrize(("room", "fits"), [(0, True), (-1, False)])
@pytest.mark.parametrize("each", [True, False], ids=["server", "all"])
def test_lists_that_exceed_the_size_limits_are_refused(room: int, fits: bool, each: bool) -> None:
    items, prompts = tools("log"), [raw(name="p")]
    size = sum(map(len, items)) + sum(map(len, prompts)) + room
    one = MergedCatalog(
        GatewaySettings(**({"max_server_bytes": size} if each else {"max_catalog_bytes": size}))
    )
    limit = SERVER_CATALOG_BYTES if each else CATALOG_BYTES
    other, hits = "git" if each else "time", limit.hits
    one.put("git", TOOLS, items)
    one.put("git", TOOLS, items)  # the new list replaces the previous one
    if fits:
        one.put(other, ListKind.PROMPTS, prompts)
    else:
        whose = "its lists" if each else "the lists of all servers"
        with pytest.raises(ListTooLarge, match=f"of prompts/list, {whose} have more than {size}"):
            one.put(other, ListKind.PROMPTS, prompts)
    assert limit.hits - hits == (not fits)
    one.drop("git")
    one.put(other, ListKind.PROMPTS, prompts)  # the list is within the limit now


def test_the_number_of_omitted_items_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    one = catalog(git=[*tools("log", "log"), raw(x=1)])
    one.put("git", RESOURCES, [raw(name="no uri")])
    one.put("git", TOOLS, tools("log"))
    assert caplog.messages == [
        "git: 2 invalid or duplicate tools left out",
        "git: 1 invalid or duplicate resources left out",
    ]


@pytest.mark.parametrize(("room", "first"), [(0, 2), (-1, 1)])
def test_a_page_has_as_many_items_as_fit_into_a_message(
    monkeypatch: pytest.MonkeyPatch, room: int, first: int
) -> None:
    one = catalog(git=tools("a", "b"))
    whole = page(one)["tools"]
    sizes = [len(json.dumps(tool, separators=(",", ":"))) + 1 for tool in whole]
    limit = msgspec.structs.replace(PAGE_BYTES, value=sum(sizes) + room, hits=0)
    monkeypatch.setattr(view_list, "PAGE_BYTES", limit)
    one = catalog(git=tools("a", "b"))
    begin = page(one)
    assert len(begin["tools"]) == first
    assert limit.hits == (first == 1)
    assert ("nextCursor" in begin) is (first == 1)
    if first == 1:
        rest = page(one, cursor=begin["nextCursor"])
        assert [tool["name"] for tool in rest["tools"]] == ["git_b"]
    limit.value, limit.hits = 1, 0
    # a page has at least one item
    assert len(page(catalog(git=tools("a", "b", "c")))["tools"]) == 1
    assert limit.hits == 1


# List requests that wait or fetch lists again


class FakeMember:
    def __init__(self, began: float) -> None:
        self.began = began
        self.listed = asyncio.Event()
        self.refreshed: list[float] = []

    def refresh_if_older(self, seconds: float) -> None:
        self.refreshed.append(seconds)


def lists(*members: FakeMember, **settings: Any) -> MergedLists:
    given: Any = {str(n): one for n, one in enumerate(members)}
    about = {"deadline": 1.0, "fresh": 60.0, "search": False, **settings}
    unused: Any = None  # clients without capabilities are not compared
    return MergedLists(catalog(git=tools("log")), given, ClientViews({}, ALL), unused, **about)


async def test_list_requests_wait_for_starting_servers_until_their_deadline(
    virtual_time: VirtualTime,
) -> None:
    now = virtual_time.now
    there, late, old = FakeMember(now), FakeMember(now - 0.4), FakeMember(now - 1.0)
    there.listed.set()
    await lists(there, late, old).ready()
    assert virtual_time.now == pytest.approx(now + 0.6)
    await lists(old).ready()
    assert virtual_time.now == pytest.approx(now + 0.6)
    now = virtual_time.now
    await lists(old, FakeMember(now - 0.4), FakeMember(now - 0.3)).ready()
    assert virtual_time.now == pytest.approx(now + 0.7)
    now = virtual_time.now
    await lists(FakeMember(now), deadline=0.0).ready()
    assert virtual_time.now == now


@pytest.mark.parametrize(
    ("fresh", "times", "asked"),
    [
        (60.0, [0, 0.99, 0.01], [60.0, 60.0]),
        (0.5, [0, 0.49, 0.01], [0.5, 0.5]),
        (0.0, [0, 100], []),
    ],
)
async def test_outdated_lists_are_requested_again_in_the_background(
    virtual_time: VirtualTime, fresh: float, times: list[float], asked: list[float]
) -> None:
    member = FakeMember(0.0)
    several = lists(member, fresh=fresh)
    for passed in times:
        virtual_time.now += passed
        assert b'"git_log"' in several.page(TOOLS, exchange("tools/list", {}))
    assert member.refreshed == asked


@pytest.mark.parametrize(
    ("search", "params", "whole"),
    [
        (False, {}, True),
        (True, {}, False),
        (True, {"_meta": {"fairlead/allTools": True}}, True),
    ],
)
async def test_search_tools_replace_the_list_unless_all_tools_are_requested(
    search: bool, params: Any, whole: bool
) -> None:
    found = lists(search=search).page(TOOLS, exchange("tools/list", params))
    assert (b'"git_log"' in found) is whole
    assert b"prompts" in lists(search=search).page(ListKind.PROMPTS, exchange("prompts/list", {}))


class FakeComparison:
    """A comparison with a task and a variant for each server name."""

    def relisted(self, connection: Any) -> None:
        """Return None: no connection has announced a change."""

    def __init__(self, **variants: int) -> None:
        self.variants = variants
        self.requested: list[tuple[str, Any]] = []
        self.done = asyncio.Event()
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    def request(self, upstream: str, caller: Any, introduction: Any) -> Any:
        self.requested.append((upstream, introduction))
        return self.tasks.get(upstream)

    def variant(self, upstream: str, caller: Any, session: Any) -> int:
        return 7 if session is OWN else self.variants.get(upstream, 0)


def compared(
    comparison: FakeComparison, catalog: MergedCatalog, view: View = ALL, **settings: Any
) -> MergedLists:
    """Return the lists of the servers `git` and `time`."""
    members: Any = {}
    for name in ("git", "time"):
        listed = asyncio.Event()
        listed.set()
        members[name] = SimpleNamespace(
            name=name, replicas=[f"relay of {name}"], upstreams=[name], listed=listed
        )
    given: Any = comparison
    about = {"deadline": 1.0, "fresh": 0.0, "search": False, **settings}
    return MergedLists(catalog, members, ClientViews({}, view), given, **about)


SAMPLING = exchange("tools/list", {}, capabilities=b'{"sampling":{}}')
OWN = SimpleNamespace(connection=None)  # a client's session with one of the servers
CLIENT: Any = SimpleNamespace(introduction="hello", sessions={"relay of time": OWN})


async def test_list_requests_wait_for_comparisons_until_the_deadline(
    virtual_time: VirtualTime,
) -> None:
    comparison, began = FakeComparison(), virtual_time.now
    several = compared(comparison, MergedCatalog())
    assert several.is_ready_for(SAMPLING, CLIENT)
    assert comparison.requested == [("git", "hello"), ("time", "hello")]
    comparison.tasks["time"] = asyncio.create_task(comparison.done.wait())
    assert not several.is_ready_for(SAMPLING, None)
    assert comparison.requested[2:] == [("git", None), ("time", None)]
    await several.ready_for(SAMPLING, CLIENT)
    assert virtual_time.now == began + 1.0  # the deadline
    assert not comparison.tasks["time"].done()  # the comparison continues
    asyncio.get_running_loop().call_later(0.5, comparison.done.set)
    await several.ready_for(SAMPLING, CLIENT)
    assert virtual_time.now == began + 1.5


async def test_only_servers_in_the_view_are_compared() -> None:
    comparison = FakeComparison()
    several = compared(comparison, MergedCatalog(), View(servers=("time",)))
    assert several.is_ready_for(exchange("tools/list", {}), CLIENT)
    assert comparison.requested == []
    several.is_ready_for(SAMPLING, CLIENT)
    assert comparison.requested == [("time", "hello")]


async def test_a_page_contains_the_list_variants_selected_for_the_client() -> None:
    one = catalog(git=tools("log"), time=tools("now"))
    several = compared(FakeComparison(git=3), one)
    assert several.selection(SAMPLING.caller, CLIENT) is None  # there are no variants
    one.put_variant("git", 3, {TOOLS: tools("ask")})
    one.put_variant("time", 7, {TOOLS: tools("then")})
    assert several.selection(SAMPLING.caller, None) == (("git", 3),)
    assert several.selection(SAMPLING.caller, CLIENT) == (("git", 3), ("time", 7))
    found = several.page(TOOLS, SAMPLING, CLIENT)
    assert [tool["name"] for tool in json.loads(b"{%b}" % found)["tools"]] == [
        "git_ask",
        "time_then",
    ]


# Variants


def seen(one: MergedCatalog, *selection: tuple[str, int]) -> list[str]:
    members = one.page(TOOLS, ALL, NEWEST, None, selection)
    return [tool["name"] for tool in json.loads(b"{%b}" % members)["tools"]]


def test_a_list_variant_replaces_the_default_lists_of_its_server() -> None:
    one = catalog(git=tools("log", "push"), time=tools("now"))
    assert (one.has_variants, seen(one)) == (False, ["git_log", "git_push", "time_now"])
    one.put_variant("git", 1, {TOOLS: tools("log", "ask"), RESOURCES: resources("a:1")})
    assert one.has_variants
    assert seen(one) == ["git_log", "git_push", "time_now"]
    assert seen(one, ("git", 1)) == ["git_ask", "git_log", "time_now"]
    assert seen(one, ("git", 2)) == seen(one)  # this variant has been dropped
    assert [name for name, _ in one.definitions(ALL, (("git", 1),))] == seen(one, ("git", 1))
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    assert seen(one, ("git", 1)) == ["git_ask", "time_now"]


def test_names_are_looked_up_in_all_list_variants() -> None:
    one = catalog(git=tools("log"))
    one.put_variant("git", 1, {TOOLS: tools("log", "ask"), RESOURCES: resources("a:1")})
    assert [tool["name"] for tool in page(one)["tools"]] == ["git_ask", "git_log"]
    found = one.tool("git_ask", ALL)
    assert found is not None
    assert (found.server, found.own) == ("git", "ask")
    assert one.owner("a:1", ALL) == "git"
    assert one.tool("git_ask", View(deny=("git_ask",))) is None
    assert one.own_names(TOOLS, "git") == ["log"]


def test_merged_names_are_the_same_in_all_list_variants() -> None:
    one = catalog(a=tools("b_c"), a_b=tools())
    one.put_variant("a_b", 1, {TOOLS: tools("c")})
    some, every = seen(one), seen(one, ("a_b", 1))
    assert (len(some), len(set(every))) == (1, 2)
    assert set(some) < set(every)


def test_lookups_prefer_the_default_item_to_a_list_variant() -> None:
    one = catalog(git=tools("log", title="Default"))
    one.put_variant("git", 1, {TOOLS: tools("log", title="Other")})
    members = one.page(TOOLS, ALL, NEWEST, None, (("git", 1),))
    assert b"Other" in members
    definition = one.definition("git_log", ALL)
    assert definition is not None
    assert b"Default" in bytes(definition)


def test_a_dropped_list_variant_is_not_listed() -> None:
    one = catalog(git=tools("log"))
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    before = one.changes
    one.drop_variant("git", 2)
    one.drop_variant("time", 1)
    assert one.changes == before
    one.drop_variant("git", 1)
    assert one.changes == before + len(ListKind)
    assert not one.has_variants
    assert (seen(one, ("git", 1)), one.tool("git_ask", ALL)) == (["git_log"], None)


def test_dropping_a_server_removes_its_list_variants() -> None:
    one = catalog(git=tools("log"), time=tools("now"))
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    assert one.drop("git") == set(ListKind)
    assert (one.has_variants, seen(one, ("git", 1))) == (False, ["time_now"])


@pytest.mark.parametrize(("room", "fits"), [(0, True), (-1, False)])
def test_list_variants_that_exceed_the_size_limits_are_refused(room: int, fits: bool) -> None:
    size = sum(map(len, tools("ask")))
    one, hits = (
        MergedCatalog(GatewaySettings(max_server_bytes=2 * size + room)),
        SERVER_CATALOG_BYTES.hits,
    )
    one.put("git", TOOLS, tools("log"))
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    if fits:
        one.put_variant("git", 2, {TOOLS: tools("say")})
    else:
        why = f"^the lists of git for some clients have more than {2 * size + room} bytes$"
        with pytest.raises(ListTooLarge, match=why):
            one.put_variant("git", 2, {TOOLS: tools("say")})
    assert SERVER_CATALOG_BYTES.hits - hits == (not fits)
    assert seen(one, ("git", 2)) == (["git_say"] if fits else ["git_log"])


def test_putting_a_list_variant_twice_does_not_count_its_size_twice() -> None:
    size = sum(map(len, tools("ask")))
    one = MergedCatalog(GatewaySettings(max_server_bytes=size))
    for _ in range(2):
        one.put_variant("git", 1, {TOOLS: tools("ask")})


def test_putting_an_equal_list_variant_has_no_effect() -> None:
    one = catalog(git=tools("log"))
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    before = one.changes
    one.put_variant("git", 1, {TOOLS: tools("ask")})
    assert one.changes == before
