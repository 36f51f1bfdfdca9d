"""Tests of tool filters, for encoded and decoded tools."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from tests.support.catalog_items import tools


def spec(**filters: Any) -> ServerSpec:
    return ServerSpec(entry=MCPStdioServerConfig(command="x"), **filters)


@pytest.mark.parametrize(
    ("filters", "permitted"),
    [
        ({"only_tools": ("read",)}, ["read"]),
        ({"only_tools": ("write", "read")}, ["read", "write"]),  # in the order of the server's list
        ({"only_tools": ()}, []),
        ({"without_tools": ("erase",)}, ["read", "write"]),
        ({"without_tools": ("ERASE", "Write")}, ["read"]),
        ({"only_tools": ("read", "erase"), "without_tools": ("erase",)}, ["read"]),
    ],
)
def test_tool_filters_apply_equally_to_encoded_and_decoded_tools(
    filters: dict[str, Any], permitted: list[str]
) -> None:
    one, listed = spec(**filters), tools("read", "erase", "write")
    assert one.filters_tools
    assert one.permitted(listed) == [tool for name in permitted for tool in tools(name)]
    decoded = [msgspec.json.decode(tool) for tool in listed]
    assert [tool["name"] for tool in one.allowed(decoded)] == permitted
    assert len(listed) == 3


def test_a_list_without_a_tool_filter_is_returned_unchanged() -> None:
    one, listed = spec(), [*tools("a"), Raw(b"no JSON")]
    assert not one.filters_tools
    assert one.permitted(listed) is listed


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (b'{"name":"a"}', "a"),
        (b'{"title":"b","name":"a"}', "a"),
        (b'{"name":"a","name":"b"}', "b"),
        (b'{"name":5,"name":"b"}', "b"),
    ],
    ids=["name", "more", "twice", "of two types"],
)
def test_tools_are_filtered_by_their_decoded_name(tool: bytes, name: str) -> None:
    listed = [Raw(tool)]
    for other in ("a", "b", ""):
        assert spec(only_tools=(other,)).permitted(listed) == (listed if other == name else [])
        assert spec(without_tools=(other,)).permitted(listed) == ([] if other == name else listed)


@pytest.mark.parametrize(
    "tool",
    [b"{}", b'{"name":5}', b"5", b"{", b'{"a":' + b"[" * 100_000, b'{"name":"a\xff"}'],
    ids=["nameless", "wrong name", "number", "cut", "depth", "bytes"],
)
def test_a_tool_without_a_readable_name_does_not_pass_a_filter(tool: bytes) -> None:
    assert spec(only_tools=("a",)).permitted([Raw(tool)]) == []
    assert spec(without_tools=("b",)).permitted([Raw(tool)]) == []
