"""Items of lists: what is kept of them, and which are left out."""

import pytest
from msgspec import Raw

from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.catalog_items import ALL, page, raw, tools


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
