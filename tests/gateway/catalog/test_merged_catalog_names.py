"""Names, sizes and order of merged lists; and lists that are waited for or fetched again."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from fairlead.client.api.list_budget import ListTooLarge
from fairlead.errors import ConfigError
from fairlead.gateway.catalog import view_list
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.list_requests import MergedLists
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.client_views import ClientViews
from fairlead.limits import CATALOG_BYTES, PAGE_BYTES, SERVER_CATALOG_BYTES
from fairlead.protocol.revisions import NEWEST
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
def test_a_tool_of_a_server_has_all_the_names_that_it_goes_by(
    name: str, displayed: str, merged: str, also: tuple[str, ...]
) -> None:
    found = catalog(git=tools("log", "push")).target(TOOLS, "git", name, ALL)
    assert (found.kind, found.own, found.server) == ("tool", name, "git")
    assert (found.displayed, found.merged) == (displayed, merged)
    assert set(also) <= {*found.also, *found.names}
    assert bool(found.also) is bool(also)


def test_other_spellings_are_those_of_the_list_as_it_is_now() -> None:
    one = catalog(git=tools("log", "Log"))
    assert one.listed_as(TOOLS, "git", "LOG") == ["log", "Log"]
    assert one.listed_as(TOOLS, "git", "LOG") == ["log", "Log"]
    assert one.listed_as(TOOLS, "other", "LOG") == []
    one.put("git", TOOLS, tools("push"))
    assert one.listed_as(TOOLS, "git", "LOG") == []
    assert one.listed_as(TOOLS, "git", "PUSH") == ["push"]


def test_a_view_has_what_it_has_under_the_names_of_the_server() -> None:
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


def test_a_server_that_is_expected_has_its_place() -> None:
    one = MergedCatalog()
    one.expect("first")
    one.put("second", RESOURCES, resources("a:1"))
    one.put("first", RESOURCES, resources("a:1"))
    assert one.owner("a:1", ALL) == "first"
    assert one.contested == 1
    assert one.arrange(["first", "second"]) == set()
    assert one.arrange(["second"]) == {RESOURCES}
    assert one.owner("a:1", ALL) == "second"
    one.drop("second")
    assert (one.owner("a:1", ALL), one.contested) == ("first", 0)


def test_templates_are_owned_by_their_text() -> None:
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
def test_lists_have_a_limited_size(room: int, fits: bool, each: bool) -> None:
    items, prompts = tools("log"), [raw(name="p")]
    size = sum(map(len, items)) + sum(map(len, prompts)) + room
    one = MergedCatalog(**({"server_bytes": size} if each else {"total_bytes": size}))
    limit = SERVER_CATALOG_BYTES if each else CATALOG_BYTES
    other, hits = "git" if each else "time", limit.hits
    one.put("git", TOOLS, items)
    one.put("git", TOOLS, items)  # instead of the old one
    if fits:
        one.put(other, ListKind.PROMPTS, prompts)
    else:
        whose = "its lists" if each else "the lists of all servers"
        with pytest.raises(ListTooLarge, match=f"of prompts/list, {whose} have more than {size}"):
            one.put(other, ListKind.PROMPTS, prompts)
    assert limit.hits - hits == (not fits)
    one.drop("git")
    one.put(other, ListKind.PROMPTS, prompts)  # there is room now


def test_what_is_left_out_is_counted_until_the_list_is_another() -> None:
    one = catalog(git=[*tools("log", "log"), raw(x=1)])
    one.put("git", RESOURCES, [raw(name="no uri")])
    assert one.left_out == {"git": 3}
    one.put("git", TOOLS, tools("log"))
    assert one.left_out == {"git": 1}
    one.drop("git")
    assert one.left_out == {}


def test_a_new_name_that_is_taken_is_told() -> None:
    one = catalog(git=tools("log", "push"))
    one.check(View(rename={"git_log": "history"}))
    with pytest.raises(ConfigError, match="a new name is taken already among the tools: 'git_log'"):
        one.check(View(rename={"git_push": "git_log"}))


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
    assert len(page(catalog(git=tools("a", "b", "c")))["tools"]) == 1  # one at least
    assert limit.hits == 1


# Lists that are waited for, or fetched again


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
    return MergedLists(catalog(git=tools("log")), given, ClientViews({}, ALL), **about)


async def test_servers_that_just_started_are_waited_for_until_their_deadline(
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
async def test_old_lists_are_fetched_again_behind_an_answer(
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
async def test_a_search_stands_in_for_the_list_unless_all_is_asked_for(
    search: bool, params: Any, whole: bool
) -> None:
    found = lists(search=search).page(TOOLS, exchange("tools/list", params))
    assert (b'"git_log"' in found) is whole
    assert b"prompts" in lists(search=search).page(ListKind.PROMPTS, exchange("prompts/list", {}))
