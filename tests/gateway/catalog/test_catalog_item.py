"""Items of lists: their encoded form, and the items that are left out."""

import pytest
from msgspec import Raw

from fairlead.gateway.catalog.catalog_item import read_item
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.limits import ITEM_BYTES
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, page, raw, tools


def test_an_item_is_encoded_with_its_new_name_and_is_otherwise_unchanged() -> None:
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


def test_an_item_is_downgraded_for_older_clients() -> None:
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
        b'{"name":"t"}',  # duplicate
    ],
)
def test_a_malformed_item_is_left_out_and_logged(
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
def test_an_item_that_is_too_large_is_left_out(size: int, read: bool) -> None:
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


def test_more_specific_templates_come_first() -> None:
    texts = ["{x*}", "abc:{x*}", "a:{x}", "a:b/{x}"]
    items = [read_item("s", ListKind.TEMPLATES, raw(uriTemplate=text, name="n")) for text in texts]
    found = sorted((one for one in items if one is not None), key=lambda one: one.specificity)
    assert [one.key for one in found] == texts
