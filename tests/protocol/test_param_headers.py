"""Tests of reading header annotations of arguments from tool lists."""

from msgspec import Raw

from fairlead.protocol.headers import ParamHeader
from fairlead.protocol.param_headers import ParamHeaderIndex, read_param_headers

REGION = ParamHeader("Region", ("region",), "string")
ONE = '{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}'


def tool(name: str, schema: str = "{}") -> Raw:
    return Raw(f'{{"name":"{name}","inputSchema":{schema}}}'.encode())


def test_header_annotations_are_read_from_a_tool_definition() -> None:
    assert read_param_headers(tool("a")) == ()
    assert read_param_headers(tool("a", ONE)) == (REGION,)
    assert read_param_headers(Raw(b'{"name":"x-mcp-header"}')) == ()


def test_the_last_definition_of_a_tool_determines_its_headers() -> None:
    index, rejected = ParamHeaderIndex(), list[str]()
    tools = [tool("a", ONE), tool("b", ONE)]
    assert index.usable(tools, rejected.append) == tools
    assert (index.of("a"), index.of("b")) == ((REGION,), (REGION,))
    index.usable([tool("a")], rejected.append)
    assert (index.of("a"), index.of("b"), rejected) == ((), (REGION,), [])


def test_escaped_header_annotations_are_found_and_undecodable_tools_are_kept() -> None:
    index, rejected = ParamHeaderIndex(), list[str]()
    strange = [Raw(b'{"name":1}'), Raw(b"7"), tool("deep", "[" * 5000 + "]" * 5000)]
    escaped = tool("a", ONE.replace("x-mcp", "\\u0078-mcp"))
    assert index.usable([*strange, escaped], rejected.append) == [*strange, escaped]
    assert index.of("a") == (REGION,)
    assert index.usable([tool("b", ONE.replace("Region", "no token"))], rejected.append) == []
    assert rejected == [
        "'b' cannot be called over HTTP: region: 'no token' is not a valid header name"
    ]


def test_the_header_index_drops_the_oldest_tools_beyond_its_size() -> None:
    index = ParamHeaderIndex(2 * len(tool("a", ONE)))
    for name in "abac":
        index.usable([tool(name, ONE)])
    assert [bool(index.of(name)) for name in "abc"] == [True, False, True]
    index.usable([tool("a")])
    index.usable([tool("d", ONE)])
    assert [bool(index.of(name)) for name in "acd"] == [False, True, True]


def test_adding_a_page_of_tools_returns_the_cursor_of_the_next_page() -> None:
    index = ParamHeaderIndex()
    assert index.learn(Raw(b'{"tools":[%b],"nextCursor":"2"}' % bytes(tool("a", ONE)))) == "2"
    assert index.of("a") == (REGION,)
    assert index.learn(Raw(b'{"tools":[%b]}' % bytes(tool("a")))) is None
    assert index.of("a") == ()
    assert index.learn(Raw(b'{"tools":[],"nextCursor":"3"}')) == "3"
    assert index.learn(Raw(b'{"tools":"none"}')) is None
