"""Merged lists in views: names, pages and cursors."""

import base64
import json

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.view_list import read_item
from fairlead.gateway.catalog.views import View
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.limits import ITEM_BYTES, TEMPLATES
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, fleet, own, page, raw, templates, tools


def test_a_view_can_select_hide_and_rename_items() -> None:
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


def test_a_denied_tool_stays_denied_when_its_name_gets_a_suffix() -> None:
    catalog = MergedCatalog()
    catalog.put("a_b", ListKind.TOOLS, tools("c", "x" * 70 + "_delete"))
    view = View(deny=("a_b_c", "*_delete"))
    assert catalog.names(ListKind.TOOLS, view) == []
    catalog.put("a", ListKind.TOOLS, tools("b_c", "d"))
    assert catalog.names(ListKind.TOOLS, view) == ["a_d"]
    for name in catalog.names(ListKind.TOOLS, ALL):
        assert (catalog.tool(name, view) is None) == (name != "a_d")


def test_a_view_may_swap_the_names_of_two_items() -> None:
    catalog = fleet()
    view = View(rename={"git_log": "git_push", "git_push": "git_log"})
    assert own(catalog.tool("git_log", view)) == ("git", "push")
    assert own(catalog.tool("git_push", view)) == ("git", "log")


def test_a_name_that_a_view_assigns_takes_precedence_over_a_merged_name() -> None:
    catalog = fleet()
    view = View(rename={"git_log": "time_now"})
    assert own(catalog.tool("time_now", view)) == ("git", "log")
    assert catalog.names(ListKind.TOOLS, view) == ["git_push", "time_now"]


def test_all_pages_together_contain_the_whole_list() -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=3))
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


def test_no_item_is_skipped_or_repeated_if_the_list_changes_between_two_pages() -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=2))
    catalog.put("s", ListKind.TOOLS, tools(*"bcde"))
    first = page(catalog)
    catalog.put("s", ListKind.TOOLS, tools(*"abde"))  # the last item of the page was removed
    second = page(catalog, cursor=first["nextCursor"])
    assert [tool["name"] for tool in second["tools"]] == ["s_d", "s_e"]
    catalog.drop("s")
    assert page(catalog, cursor=first["nextCursor"]) == {"tools": []}


def test_pages_for_invented_cursors_are_not_cached() -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=2))
    catalog.put("s", ListKind.TOOLS, tools(*"abcd"))
    for number in range(100):
        cursor = base64.urlsafe_b64encode(b"tools:s_b%d" % number).decode()
        assert [tool["name"] for tool in page(catalog, cursor=cursor)["tools"]] == ["s_c", "s_d"]
    page(catalog, cursor=page(catalog)["nextCursor"])
    assert len(catalog._view_list(ListKind.TOOLS, ALL).pages) == 2


def test_an_invalid_cursor_is_refused() -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=1))
    catalog.put("s", ListKind.TOOLS, tools("a", "b"))
    catalog.put("s", ListKind.PROMPTS, [raw(name="a"), raw(name="b")])
    elsewhere = page(catalog, ListKind.PROMPTS)["nextCursor"]
    own = page(catalog)["nextCursor"]
    for cursor in (
        f"{own}!",
        f" {own}",
        "",
        "1",
        "nonsense!",
        "Mg==",
        "é",
        "\ud800",
        "x" * 10_000,
        elsewhere,
    ):
        with pytest.raises(RpcError, match="Unknown cursor") as caught:
            catalog.page(ListKind.TOOLS, ALL, NEWEST, cursor)
        assert caught.value.code == -32602
    with pytest.raises(RpcError):
        # lists in this catalog are not paged
        fleet().page(ListKind.TOOLS, ALL, NEWEST, page(catalog)["nextCursor"])


@pytest.mark.parametrize(("most", "matched", "hits"), [(1, ["c:5"], 1), (2, ["b:5", "c:5"], 0)])
def test_only_a_limited_number_of_templates_per_server_is_matched(
    monkeypatch: pytest.MonkeyPatch, most: int, matched: list[str], hits: int
) -> None:
    before = TEMPLATES.hits
    monkeypatch.setattr(TEMPLATES, "value", most)
    catalog = MergedCatalog()
    catalog.put("s", ListKind.TEMPLATES, templates("a:{x}", "b:{x}"))
    catalog.put("t", ListKind.TEMPLATES, templates("c:{x}"))
    found = [uri for uri in ("a:5", "b:5", "c:5") if catalog.owner(uri, ALL) is not None]
    assert found == ["a:5", *matched]
    assert len(page(catalog, ListKind.TEMPLATES)["resourceTemplates"]) == 3
    assert TEMPLATES.hits - before == hits


def test_a_denied_template_is_not_matched() -> None:
    catalog = MergedCatalog()
    catalog.put("s", ListKind.TEMPLATES, templates("a:{x}", "b:{x}"))
    view = View(deny=("a:{x}",))
    assert [catalog.owner(uri, view) for uri in ("a:5", "b:5")] == [None, "s"]
    assert catalog.names(ListKind.TEMPLATES, view) == ["b:{x}"]
    narrow = View(allow=("b:5",))
    assert [catalog.owner(uri, narrow) for uri in ("a:5", "b:5", "b:6")] == [None, "s", None]
    assert catalog.names(ListKind.TEMPLATES, narrow) == []


@pytest.mark.parametrize(
    ("size", "pages"), [(0, [4]), (1, [1, 1, 1, 1]), (3, [3, 1]), (4, [4]), (5, [4])]
)
def test_pages_have_as_many_items_as_the_page_size(size: int, pages: list[int]) -> None:
    catalog = MergedCatalog(GatewaySettings(page_size=size))
    catalog.put("s", ListKind.TOOLS, tools(*"abcd"))
    found, cursor = [], None
    while True:
        result = page(catalog, cursor=cursor)
        found.append(len(result["tools"]))
        if (cursor := result.get("nextCursor")) is None:
            break
    assert found == pages
    # Each page is cached.
    kept = catalog._view_list(ListKind.TOOLS, ALL).pages
    assert len(kept) == len(pages)


def test_items_after_a_denied_or_duplicate_one_are_listed() -> None:
    catalog = MergedCatalog()
    catalog.put("s", ListKind.TOOLS, tools(*"abcd"))
    view = View(deny=("s_a",), rename={"s_b": "s_c"})
    assert catalog.names(ListKind.TOOLS, view) == ["s_c", "s_d"]
    assert own(catalog.tool("s_c", view)) == ("s", "b")
    catalog.put("s", ListKind.RESOURCES, [raw(uri=f"{one}:1", name="n") for one in "abc"])
    assert catalog.names(ListKind.RESOURCES, View(deny=("a:*",))) == ["b:1", "c:1"]


def test_a_renamed_item_is_encoded_with_its_new_name_and_otherwise_unchanged() -> None:
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


def test_an_item_is_converted_for_clients_with_older_revisions() -> None:
    catalog = MergedCatalog()
    catalog.put(
        "s", ListKind.TOOLS, tools("t", title="T", icons=[], outputSchema={"type": "object"})
    )
    catalog.put("s", ListKind.PROMPTS, [raw(name="p", title="P")])
    (new,) = page(catalog)["tools"]
    (old,) = page(catalog, revision=Revision.V2024_11_05)["tools"]
    assert new.keys() == {"name", "inputSchema", "title", "icons", "outputSchema"}
    kept = {"inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
    assert old == {"name": "s_t", **kept}
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
        b'{"name":"t"}',  # duplicate
    ],
)
def test_a_malformed_item_is_omitted_and_logged(
    caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    catalog = MergedCatalog()
    assert catalog.put("s", ListKind.TOOLS, [*tools("t"), Raw(bad), *tools("u")])
    assert [tool["name"] for tool in page(catalog)["tools"]] == ["s_t", "s_u"]
    assert caplog.messages == ["s: 1 invalid or duplicate tools left out"]
    assert catalog.put("s", ListKind.TOOLS, tools("t", "u")) is False
    assert len(caplog.messages) == 1


def test_an_item_on_several_lines_is_encoded_on_one_line() -> None:
    catalog = MergedCatalog()
    catalog.put("s", ListKind.RESOURCES, [Raw(b'{\n  "uri": "a:b",\r\n "name": "x"\n}\n')])
    assert b"\n" not in catalog.page(ListKind.RESOURCES, ALL, NEWEST, None)
    assert page(catalog, ListKind.RESOURCES)["resources"] == [{"uri": "a:b", "name": "x"}]


def test_encoded_items_are_kept_for_a_limited_number_of_names() -> None:
    item = read_item("s", ListKind.TOOLS, raw(name="t"))
    assert item is not None
    names = [f"n{number}" for number in range(4 * len(Revision))]
    first = [item.written(NEWEST, name) for name in names]
    again = [item.written(NEWEST, name) for name in names]
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert item.written(NEWEST, "one more") == b'{"name":"one more"}'
    assert item.written(NEWEST, "n0") is not first[0]
    assert item.written(NEWEST, "n0") == first[0]


@pytest.mark.parametrize(("size", "read"), [(0, True), (1, False)])
def test_an_item_over_the_size_limit_is_omitted(size: int, read: bool) -> None:
    hits = ITEM_BYTES.hits
    text = b'{"name":"t","x":"' + b"x" * (ITEM_BYTES.value - 19 + size) + b'"}'
    assert len(text) == ITEM_BYTES.value + size
    assert (read_item("s", ListKind.TOOLS, Raw(text)) is not None) is read
    assert ITEM_BYTES.hits - hits == (not read)


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("a:{x}", "a:1", True),
        ("a:{x}", "b:1", False),
        ("a:{x*}", "a:1/2", True),
        ("a:{x*}", "b:1", False),
        ("{x*}", "a:1", False),
    ],
)
def test_uris_match_templates_or_their_literal_beginning(
    template: str, uri: str, matches: bool
) -> None:
    item = read_item("s", ListKind.TEMPLATES, raw(uriTemplate=template, name="n"))
    assert item is not None
    assert item.matches(uri) is matches


def test_unsupported_templates_and_those_with_less_literal_text_are_less_specific() -> None:
    texts = ["{x*}", "abc:{x*}", "a:{x}", "a:b/{x}"]
    items = [read_item("s", ListKind.TEMPLATES, raw(uriTemplate=text, name="n")) for text in texts]
    found = sorted((one for one in items if one is not None), key=lambda one: one.specificity)
    assert [one.key for one in found] == texts
