"""The lists of many servers as one."""

import base64
import json
from itertools import permutations
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.errors import ConfigError, RpcError
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.protocol.targets.targets import Target
from fairlead.wire import to_json

ALL = View.everything()


def own(found: Target | None) -> tuple[str | None, str]:
    assert found is not None
    return found.server, found.own


def raw(**members: Any) -> Raw:
    return Raw(to_json(members))


def tools(*names: str, **more: Any) -> list[Raw]:
    return [raw(name=name, inputSchema={"type": "object"}, **more) for name in names]


def resources(*uris: str) -> list[Raw]:
    return [raw(uri=uri, name="some") for uri in uris]


def templates(*texts: str) -> list[Raw]:
    return [raw(uriTemplate=text, name="some") for text in texts]


def page(
    catalog: MergedCatalog,
    kind: ListKind = ListKind.TOOLS,
    view: View = ALL,
    revision: Revision = NEWEST,
    cursor: str | None = None,
) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(b"{" + catalog.page(kind, view, revision, cursor) + b"}")
    return members


def fleet() -> MergedCatalog:
    catalog = MergedCatalog()
    catalog.put("git", ListKind.TOOLS, tools("push", "log"))
    catalog.put("time", ListKind.TOOLS, tools("now"))
    return catalog


def test_one_list_in_the_order_of_the_merged_names() -> None:
    catalog = fleet()
    assert [tool["name"] for tool in page(catalog)["tools"]] == ["git_log", "git_push", "time_now"]
    assert catalog.names(ListKind.TOOLS, ALL) == ["git_log", "git_push", "time_now"]
    assert catalog.count(ListKind.TOOLS) == 3
    assert own(catalog.tool("git_log", ALL)) == ("git", "log")
    assert catalog.tool("log", ALL) is None
    assert catalog.prompt("git_log", ALL) is None
    assert page(catalog, ListKind.PROMPTS) == {"prompts": []}


def test_the_order_in_which_servers_come_changes_nothing() -> None:
    lists = {"a": tools("b_c", "x"), "a_b": tools("c"), "z": tools("c")}
    pages = set()
    for order in permutations(lists):
        catalog = MergedCatalog()
        for server in order:
            catalog.put(server, ListKind.TOOLS, lists[server])
        pages.add(catalog.page(ListKind.TOOLS, ALL, NEWEST, None))
    assert len(pages) == 1


def test_every_character_but_the_name_stays() -> None:
    text = (
        rb'{"x-new":[1.0,1E400,123456789012345678901234567890],"name":"big",'
        rb'"description":"\u00e4 \/","inputSchema":{"type":"object","default":0.10},'
        rb'"_meta":{"a/b":{"deep":-0}}}'
    )
    catalog = MergedCatalog()
    catalog.put("s", ListKind.TOOLS, [Raw(text)])
    expected = text.replace(b'"name":"big"', b'"name":"s_big"')
    assert catalog.page(ListKind.TOOLS, ALL, NEWEST, None) == b'"tools":[' + expected + b"]"
    definition = catalog.definition("s_big", ALL)
    assert definition is not None
    assert bytes(definition) == expected
    assert catalog.definition("big", ALL) is None


def test_resources_and_templates_are_not_renamed() -> None:
    catalog = MergedCatalog()
    listed = raw(uri="file:///b", name="b", size=1)
    catalog.put("s", ListKind.RESOURCES, [listed, *resources("file:///a")])
    catalog.put("s", ListKind.TEMPLATES, templates("file:///{x}"))
    found = page(catalog, ListKind.RESOURCES)["resources"]
    assert found == [
        {"uri": "file:///a", "name": "some"},
        {"uri": "file:///b", "name": "b", "size": 1},
    ]
    assert page(catalog, ListKind.TEMPLATES) == {
        "resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "some"}]
    }


def test_an_older_client_sees_what_its_revision_knows() -> None:
    catalog = MergedCatalog()
    catalog.put(
        "s", ListKind.TOOLS, tools("t", title="T", icons=[], outputSchema={"type": "object"})
    )
    catalog.put("s", ListKind.PROMPTS, [raw(name="p", title="P")])
    (new,) = page(catalog)["tools"]
    (old,) = page(catalog, revision=Revision.V2024_11_05)["tools"]
    assert new.keys() == {"name", "inputSchema", "title", "icons", "outputSchema"}
    assert old == {"name": "s_t", "inputSchema": {"type": "object"}}
    assert page(catalog, ListKind.PROMPTS, revision=Revision.V2025_03_26) == {
        "prompts": [{"name": "s_p"}]
    }


@pytest.mark.parametrize(
    "bad",
    [
        b"1",
        b"null",
        b"[]",
        b"{}",
        b'{"name":1}',
        b'{"name":""}',
        b'{"name":null}',
        b'{"name":"x","description":"\xff"}',
        rb'{"name":"\ud800"}',
        b'{"name":"x","a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"name":"t"}',  # there is one before it
    ],
)
def test_a_malformed_item_is_left_out_and_counted(bad: bytes) -> None:
    catalog = MergedCatalog()
    assert catalog.put("s", ListKind.TOOLS, [*tools("t"), Raw(bad), *tools("u")])
    assert [tool["name"] for tool in page(catalog)["tools"]] == ["s_t", "s_u"]
    assert catalog.left_out == {"s": 1}
    assert catalog.put("s", ListKind.TOOLS, tools("t", "u")) is False
    assert catalog.left_out == {}


def test_an_item_on_many_lines_stays_on_one() -> None:
    catalog = MergedCatalog()
    catalog.put("s", ListKind.RESOURCES, [Raw(b'{\n  "uri": "a:b",\r\n "name": "x"\n}\n')])
    assert b"\n" not in catalog.page(ListKind.RESOURCES, ALL, NEWEST, None)
    assert page(catalog, ListKind.RESOURCES)["resources"] == [{"uri": "a:b", "name": "x"}]


def test_put_says_whether_something_changed() -> None:
    catalog = MergedCatalog()
    assert catalog.put("s", ListKind.TOOLS, []) is False
    assert catalog.put("s", ListKind.TOOLS, tools("a", "b")) is True
    before = catalog.version(ListKind.TOOLS)
    assert catalog.put("s", ListKind.TOOLS, tools("b", "a")) is False  # the list is sorted anyway
    assert catalog.version(ListKind.TOOLS) == before
    assert catalog.put("s", ListKind.TOOLS, tools("a", "b", title="new")) is True
    assert page(catalog)["tools"][0]["title"] == "new"
    assert catalog.put("s", ListKind.TOOLS, tools("a")) is True
    assert catalog.put("s", ListKind.TOOLS, []) is True
    assert page(catalog) == {"tools": []}
    assert catalog.version(ListKind.TOOLS) > before
    assert catalog.version(ListKind.PROMPTS) == 0


def test_a_server_that_leaves_takes_its_things_along() -> None:
    catalog = fleet()
    catalog.put("git", ListKind.RESOURCES, resources("a:b"))
    catalog.put("git", ListKind.PROMPTS, [])
    assert catalog.drop("git") == {ListKind.TOOLS, ListKind.RESOURCES}
    assert catalog.names(ListKind.TOOLS, ALL) == ["time_now"]
    assert catalog.owner("a:b", ALL) is None
    assert catalog.tool("git_log", ALL) is None
    assert catalog.drop("git") == set()
    assert catalog.drop("never seen") == set()


def test_a_page_is_made_once_until_its_kind_changes() -> None:
    catalog = fleet()
    first = catalog.page(ListKind.TOOLS, ALL, NEWEST, None)
    catalog.put("git", ListKind.PROMPTS, [raw(name="p")])
    catalog.put("git", ListKind.TOOLS, tools("push", "log"))
    assert catalog.page(ListKind.TOOLS, View(), NEWEST, None) is first  # an equal view will do
    catalog.drop("time")
    assert catalog.page(ListKind.TOOLS, ALL, NEWEST, None) != first


def test_a_view_chooses_hides_and_renames() -> None:
    catalog = fleet()
    catalog.put("secret", ListKind.TOOLS, tools("key"))
    view = View(
        servers=("git", "time"),
        deny=("git_push",),
        hide=("time_*",),
        rename={"git_log": "history"},
    )
    assert [tool["name"] for tool in page(catalog, view=view)["tools"]] == ["history"]
    assert own(catalog.tool("history", view)) == ("git", "log")
    assert catalog.tool("git_log", view) is None
    assert catalog.tool("git_push", view) is None
    assert own(catalog.tool("time_now", view)) == ("time", "now")
    assert catalog.tool("secret_key", view) is None
    assert catalog.definition("secret_key", view) is None
    assert [name for name, _ in catalog.definitions(view)] == ["history"]
    hidden = catalog.definition("time_now", view)
    assert hidden is not None
    assert json.loads(bytes(hidden))["name"] == "time_now"


def test_what_is_denied_stays_denied_when_its_name_gets_a_tail() -> None:
    catalog = MergedCatalog()
    catalog.put("a_b", ListKind.TOOLS, tools("c", "x" * 70 + "_delete"))
    view = View(deny=("a_b_c", "*_delete"))
    assert catalog.names(ListKind.TOOLS, view) == []
    catalog.put("a", ListKind.TOOLS, tools("b_c", "d"))
    assert catalog.names(ListKind.TOOLS, view) == ["a_d"]
    for name in catalog.names(ListKind.TOOLS, ALL):
        assert (catalog.tool(name, view) is None) == (name != "a_d")


def test_two_may_swap_their_names() -> None:
    catalog = fleet()
    view = View(rename={"git_log": "git_push", "git_push": "git_log"})
    assert own(catalog.tool("git_log", view)) == ("git", "push")
    assert own(catalog.tool("git_push", view)) == ("git", "log")
    catalog.check(view)


def test_a_new_name_that_is_taken_is_refused_and_not_taken_over() -> None:
    catalog = fleet()
    view = View(rename={"git_log": "time_now"})
    with pytest.raises(ConfigError, match="taken already among the tools: 'time_now'"):
        catalog.check(view)
    assert own(catalog.tool("time_now", view)) == ("git", "log")
    assert catalog.names(ListKind.TOOLS, view) == ["git_push", "time_now"]
    catalog.check(ALL)


def test_pages_join_to_the_whole_list() -> None:
    catalog = MergedCatalog(page_size=3)
    catalog.put("s", ListKind.TOOLS, tools(*"gfedcba"))
    seen, cursor, pages = [], None, 0
    while True:
        result = page(catalog, cursor=cursor)
        seen += [tool["name"] for tool in result["tools"]]
        pages += 1
        if (cursor := result.get("nextCursor")) is None:
            break
    assert seen == [f"s_{letter}" for letter in "abcdefg"]
    assert pages == 3


def test_a_change_between_two_pages_skips_and_repeats_nothing() -> None:
    catalog = MergedCatalog(page_size=2)
    catalog.put("s", ListKind.TOOLS, tools(*"bcde"))
    first = page(catalog)
    catalog.put("s", ListKind.TOOLS, tools(*"abde"))  # what came last is gone
    second = page(catalog, cursor=first["nextCursor"])
    assert [tool["name"] for tool in second["tools"]] == ["s_d", "s_e"]
    catalog.drop("s")
    assert page(catalog, cursor=first["nextCursor"]) == {"tools": []}


def test_cursors_that_are_made_up_do_not_pile_up() -> None:
    catalog = MergedCatalog(page_size=2)
    catalog.put("s", ListKind.TOOLS, tools(*"abcd"))
    for number in range(100):
        cursor = base64.urlsafe_b64encode(b"tools:s_b%d" % number).decode()
        assert [tool["name"] for tool in page(catalog, cursor=cursor)["tools"]] == ["s_c", "s_d"]
    page(catalog, cursor=page(catalog)["nextCursor"])
    assert len(catalog._view_list(ListKind.TOOLS, ALL).pages) == 2


def test_an_invalid_cursor_is_refused() -> None:
    catalog = MergedCatalog(page_size=1)
    catalog.put("s", ListKind.TOOLS, tools("a", "b"))
    catalog.put("s", ListKind.PROMPTS, [raw(name="a"), raw(name="b")])
    elsewhere = page(catalog, ListKind.PROMPTS)["nextCursor"]
    for cursor in ("", "1", "nonsense!", "Mg==", "é", "\ud800", "x" * 10_000, elsewhere):
        with pytest.raises(RpcError, match="Unknown cursor") as caught:
            catalog.page(ListKind.TOOLS, ALL, NEWEST, cursor)
        assert caught.value.code == -32602
    with pytest.raises(RpcError):
        fleet().page(ListKind.TOOLS, ALL, NEWEST, page(catalog)["nextCursor"])  # it has no pages


def test_a_listed_resource_belongs_to_who_lists_it() -> None:
    catalog = MergedCatalog()
    catalog.put("b", ListKind.RESOURCES, resources("a:x", "a:only-b"))
    catalog.put("a", ListKind.RESOURCES, resources("a:x"))
    catalog.put("c", ListKind.TEMPLATES, templates("a:{name}"))
    assert catalog.owner("a:x", ALL) == "b"  # it came first
    assert catalog.contested == 1
    assert catalog.count(ListKind.RESOURCES) == 2
    assert catalog.owner("a:x", View(servers=("a", "c"))) == "a"
    assert catalog.owner("a:x", View(servers=("c",))) == "c"
    catalog.drop("b")
    assert catalog.owner("a:x", ALL) == "a"
    catalog.put("b", ListKind.RESOURCES, resources("a:x"))
    assert catalog.owner("a:x", ALL) == "b"  # and is the first again when it comes back
    assert catalog.owner("z:x", ALL) is None


def test_the_closest_template_wins() -> None:
    catalog = MergedCatalog()
    catalog.put("wide", ListKind.TEMPLATES, templates("file:///{+path}"))
    catalog.put("logs", ListKind.TEMPLATES, templates("file:///logs/{name}"))
    catalog.put(
        "again", ListKind.TEMPLATES, templates("file:///logs/{file}", "odd:///{path*}", "{x*}")
    )
    assert catalog.owner("file:///logs/today", ALL) == "logs"
    assert catalog.owner("file:///logs/a/b", ALL) == "wide"
    assert catalog.owner("odd:///some/where", ALL) == "again"  # beyond us, but it begins like that
    assert catalog.owner("other:x", ALL) is None


def test_a_view_judges_the_uri_and_not_the_template_that_made_it() -> None:
    catalog = MergedCatalog()
    catalog.put("files", ListKind.TEMPLATES, templates("file:///{+path}", "db:///{table}"))
    catalog.put("files", ListKind.RESOURCES, resources("file:///docs/a", "file:///key"))
    view = View(allow=("file:///docs/*", "db:*"), deny=("db:///{table}",), hide=("*/a",))
    assert catalog.owner("file:///docs/b", view) == "files"
    assert catalog.owner("file:///docs/a", view) == "files"
    assert catalog.owner("file:///key", view) is None
    assert catalog.owner("file:///docs/../key", view) is None
    assert catalog.owner("db:///users", view) is None
    assert catalog.names(ListKind.RESOURCES, view) == []
    assert catalog.names(ListKind.TEMPLATES, view) == []


def test_many_views_do_not_pile_up() -> None:
    catalog = fleet()
    for number in range(2000):
        view = View(rename={"git_log": f"log{number}"})
        assert own(catalog.tool(f"log{number}", view)) == ("git", "log")
        catalog.page(ListKind.TOOLS, view, NEWEST, None)
    assert len(catalog._view_lists) <= 256
    assert all(len(item._written) <= 20 for item in catalog._items(ListKind.TOOLS, ALL))


@given(
    st.dictionaries(
        st.text("ab_", min_size=1, max_size=3),
        st.lists(st.text("ab_", min_size=1, max_size=4), max_size=4),
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_every_listed_tool_leads_to_its_server(lists: dict[str, list[str]], size: int) -> None:
    catalog = MergedCatalog(page_size=size)
    for server, names in lists.items():
        catalog.put(server, ListKind.TOOLS, tools(*names))
    found, cursor = [], None
    while True:
        result = page(catalog, cursor=cursor)
        found += [tool["name"] for tool in result["tools"]]
        if (cursor := result.get("nextCursor")) is None:
            break
    assert found == sorted(found) == catalog.names(ListKind.TOOLS, ALL)
    targets = [catalog.tool(name, ALL) for name in found]
    assert {(t.server, t.own) for t in targets if t is not None} == {
        (server, name) for server, names in lists.items() for name in names
    }
    assert len(targets) == catalog.count(ListKind.TOOLS)


def test_one_change_in_a_big_fleet_writes_only_what_changed() -> None:
    properties = {f"p{n}": {"type": "string", "description": "one of them"} for n in range(6)}
    schema = {"type": "object", "properties": properties}
    catalog = MergedCatalog()
    for server in range(50):
        catalog.put(f"s{server}", ListKind.TOOLS, [
            raw(name=f"tool{n}", description="Does it. " * 20, inputSchema=schema)
            for n in range(40)
        ])  # fmt: skip
    started = perf_counter()
    catalog.page(ListKind.TOOLS, ALL, Revision.V2024_11_05, None)
    cold = perf_counter() - started
    before = {id(item): item for item in catalog._items(ListKind.TOOLS, ALL)}
    again = []
    for turn in range(5):
        catalog.put("s7", ListKind.TOOLS, tools("tool0", title=str(turn)))
        started = perf_counter()
        catalog.page(ListKind.TOOLS, ALL, Revision.V2024_11_05, None)
        again.append(perf_counter() - started)
    assert catalog.count(ListKind.TOOLS) == 49 * 40 + 1
    assert sum(id(item) not in before for item in catalog._items(ListKind.TOOLS, ALL)) == 1
    assert min(again) < cold / 2
