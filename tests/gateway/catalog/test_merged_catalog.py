"""The catalog that merges the lists of several servers."""

from itertools import permutations
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.limits import CATALOG_VIEWS
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, fleet, own, page, raw, resources, templates, tools


def test_the_merged_list_is_sorted_by_merged_names() -> None:
    catalog = fleet()
    assert [tool["name"] for tool in page(catalog)["tools"]] == ["git_log", "git_push", "time_now"]
    assert catalog.names(ListKind.TOOLS, ALL) == ["git_log", "git_push", "time_now"]
    assert own(catalog.tool("git_log", ALL)) == ("git", "log")
    assert catalog.tool("log", ALL) is None
    assert catalog.prompt("git_log", ALL) is None
    assert page(catalog, ListKind.PROMPTS) == {"prompts": []}


def test_the_order_in_which_lists_arrive_does_not_change_the_merged_list() -> None:
    lists = {"a": tools("b_c", "x"), "a_b": tools("c"), "z": tools("c")}
    pages = set()
    for order in permutations(lists):
        catalog = MergedCatalog()
        for server in order:
            catalog.put(server, ListKind.TOOLS, lists[server])
        pages.add(catalog.page(ListKind.TOOLS, ALL, NEWEST, None))
    assert len(pages) == 1


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


def test_replacing_a_list_returns_whether_the_merged_list_has_changed() -> None:
    catalog = MergedCatalog()
    assert catalog.put("s", ListKind.TOOLS, []) is False
    assert catalog.put("s", ListKind.TOOLS, tools("a", "b")) is True
    before = catalog.version(ListKind.TOOLS)
    # the same items in another order
    assert catalog.put("s", ListKind.TOOLS, tools("b", "a")) is False
    assert catalog.version(ListKind.TOOLS) == before
    assert catalog.put("s", ListKind.TOOLS, tools("a", "b", title="new")) is True
    assert page(catalog)["tools"][0]["title"] == "new"
    assert catalog.put("s", ListKind.TOOLS, tools("a")) is True
    assert catalog.put("s", ListKind.TOOLS, []) is True
    assert page(catalog) == {"tools": []}
    assert catalog.version(ListKind.TOOLS) > before
    assert catalog.version(ListKind.PROMPTS) == 0


def test_dropping_a_server_removes_its_items() -> None:
    catalog = fleet()
    catalog.put("git", ListKind.RESOURCES, resources("a:b"))
    catalog.put("git", ListKind.PROMPTS, [])
    assert catalog.drop("git") == {ListKind.TOOLS, ListKind.RESOURCES}
    assert catalog.names(ListKind.TOOLS, ALL) == ["time_now"]
    assert catalog.owner("a:b", ALL) is None
    assert catalog.tool("git_log", ALL) is None
    assert catalog.drop("git") == set()
    assert catalog.drop("never seen") == set()


def test_a_page_is_encoded_once_until_its_list_changes() -> None:
    catalog = fleet()
    first = catalog.page(ListKind.TOOLS, ALL, NEWEST, None)
    catalog.put("git", ListKind.PROMPTS, [raw(name="p")])
    catalog.put("git", ListKind.TOOLS, tools("push", "log"))
    assert catalog.page(ListKind.TOOLS, View(), NEWEST, None) is first  # the view is equal
    catalog.drop("time")
    assert catalog.page(ListKind.TOOLS, ALL, NEWEST, None) != first


def test_the_first_server_that_lists_a_resource_owns_it() -> None:
    catalog = MergedCatalog()
    catalog.put("b", ListKind.RESOURCES, resources("a:x", "a:only-b"))
    catalog.put("a", ListKind.RESOURCES, resources("a:x"))
    catalog.put("c", ListKind.TEMPLATES, templates("a:{name}"))
    assert catalog.owner("a:x", ALL) == "b"  # "b" was added before "a"
    assert catalog.names(ListKind.RESOURCES, ALL) == ["a:only-b", "a:x"]
    assert catalog.owner("a:x", View(servers=("a", "c"))) == "a"
    assert catalog.owner("a:x", View(servers=("c",))) == "c"
    catalog.drop("b")
    assert catalog.owner("a:x", ALL) == "a"
    catalog.put("b", ListKind.RESOURCES, resources("a:x"))
    assert catalog.owner("a:x", ALL) == "b"  # "b" keeps its position after it is added again
    assert catalog.owner("z:x", ALL) is None


def test_a_uri_belongs_to_the_server_with_the_most_specific_template() -> None:
    catalog = MergedCatalog()
    catalog.put("wide", ListKind.TEMPLATES, templates("file:///{+path}"))
    catalog.put("logs", ListKind.TEMPLATES, templates("file:///logs/{name}"))
    catalog.put(
        "again", ListKind.TEMPLATES, templates("file:///logs/{file}", "odd:///{path*}", "{x*}")
    )
    assert catalog.owner("file:///logs/today", ALL) == "logs"
    assert catalog.owner("file:///logs/a/b", ALL) == "wide"
    # unsupported expression: only the literal prefix is compared
    assert catalog.owner("odd:///some/where", ALL) == "again"
    assert catalog.owner("other:x", ALL) is None


def test_a_view_is_applied_to_the_uri_and_not_to_its_template() -> None:
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


def test_the_number_of_cached_view_lists_is_limited() -> None:
    catalog, hits = fleet(), CATALOG_VIEWS.hits
    for number in range(2000):
        view = View(rename={"git_log": f"log{number}"})
        assert own(catalog.tool(f"log{number}", view)) == ("git", "log")
        catalog.page(ListKind.TOOLS, view, NEWEST, None)
    assert len(catalog._view_lists) <= 256
    assert CATALOG_VIEWS.hits - hits == 2000 - 256
    assert all(len(item._written) <= 20 for item in catalog._items(ListKind.TOOLS, ALL))


@given(
    st.dictionaries(
        st.text("ab_", min_size=1, max_size=3),
        st.lists(st.text("ab_", min_size=1, max_size=4), max_size=4),
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_every_listed_tool_is_routed_to_its_server(lists: dict[str, list[str]], size: int) -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=size))
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
    assert len(targets) == len(catalog.names(ListKind.TOOLS, ALL))


def test_only_changed_items_are_encoded_again() -> None:
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
    assert len(catalog.names(ListKind.TOOLS, ALL)) == 49 * 40 + 1
    assert sum(id(item) not in before for item in catalog._items(ListKind.TOOLS, ALL)) == 1
    assert min(again) < cold / 2
