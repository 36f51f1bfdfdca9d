import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.errors import RpcError
from fairlead.protocol.caller import read_params_head
from fairlead.protocol.headers import (
    ParamHeader,
    check_mirrored,
    check_params,
    decode_value,
    encode_value,
    mirrored_name,
    param_headers,
    param_values,
    status_of,
)
from fairlead.wire import Notification, Request, to_json

VERSION = "io.modelcontextprotocol/protocolVersion"


# Values


@given(st.text())
def test_any_text_is_encoded_as_a_header_value_and_decoded_unchanged(text: str) -> None:
    carried = encode_value(text)
    assert re.fullmatch(r"(?:[!-~](?:[ -~\t]*[!-~])?)?", carried)
    assert decode_value(carried) == text
    assert decode_value(f" \t{carried}\t ") == text  # HTTP allows blanks around a value


@pytest.mark.parametrize(
    ("value", "carried"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        ("tab\tinside", "tab\tinside"),
        ("", ""),
        (42, "42"),
        (-7, "-7"),
        (True, "true"),
        (False, "false"),
        (" lead", "=?base64?IGxlYWQ=?="),
        ("trail\t", "=?base64?dHJhaWwJ?="),
        ("line\nend", "=?base64?bGluZQplbmQ=?="),
        ("zürich", "=?base64?esO8cmljaA==?="),
        ("=?base64?QQ==?=", "=?base64?PT9iYXNlNjQ/UVE9PT89?="),
        ("=?base64?", "=?base64?"),
        ("=?BASE64?QQ==?=", "=?BASE64?QQ==?="),
    ],
)
def test_header_values_are_encoded_only_if_necessary(value: Any, carried: str) -> None:
    assert encode_value(value) == carried
    if isinstance(value, str):
        assert decode_value(carried) == value


@pytest.mark.parametrize(
    "text",
    [
        *("=?base64?QQ?=", "=?base64?Q===?=", "=?base64?Q Q==?=", "=?base64?Q-_=?="),
        *("=?base64?/w==?=", "=?base64?ü?=", "ü", "a\x7f", "a\x00b", "a\nb"),
    ],
)
def test_header_values_with_invalid_encoding_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        decode_value(text)


@pytest.mark.parametrize("text", ["=?base64?=", "=?base64?QQ==", "QQ==?=", "=?Base64?QQ==?="])
def test_a_header_value_with_an_incomplete_base64_marker_is_plain_text(text: str) -> None:
    assert decode_value(text) == text


@pytest.mark.parametrize(
    ("code", "status"),
    [(-32700, 400), (-32600, 400), (-32602, 400), (-32601, 404), (-32603, 200), (7, 200)],
)
def test_each_error_code_has_an_http_status(code: int, status: int) -> None:
    assert status_of(code) == status


# Mirrored members


def request(method: str, **params: Any) -> Request:
    return Request(1, method, Raw(to_json({"_meta": {VERSION: "2026-07-28"}, **params})))


def check(message: Request | Notification, **headers: str) -> None:
    given = {name.replace("_", "-").encode(): v.encode("latin-1") for name, v in headers.items()}
    check_mirrored(message, read_params_head(message.params), given)


GOOD = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "add"}


def test_a_request_whose_headers_equal_the_body_is_accepted() -> None:
    check(request("tools/call", name="add"), **GOOD)
    check(request("tools/call", name="ä"), **{**GOOD, "mcp_name": encode_value("ä")})
    check(request("tools/call", name="add"), **{**GOOD, "mcp_name": "=?base64?YWRk?="})
    check(
        request("resources/read", uri="a:b"),
        **{**GOOD, "mcp_method": "resources/read", "mcp_name": "a:b"},
    )
    check(request("tasks/get", taskId="7"), **{**GOOD, "mcp_method": "tasks/get", "mcp_name": "7"})
    check(request("tools/list"), **{**GOOD, "mcp_method": "tools/list"})


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_a_request_without_a_required_header_is_refused(missing: str) -> None:
    headers = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(RpcError, match="is missing") as refused:
        check(request("tools/call", name="add"), **headers)
    assert refused.value.code == -32020


@pytest.mark.parametrize("wrong", sorted(GOOD))
@pytest.mark.parametrize("value", ["other", "ADD", "=?base64?!?=", "=?base64?b3RoZXI=?=", "\xfc"])
def test_a_header_that_differs_from_the_body_is_rejected(wrong: str, value: str) -> None:
    with pytest.raises(RpcError) as refused:
        check(request("tools/call", name="add"), **{**GOOD, wrong: value})
    assert refused.value.code == -32020


def test_a_name_that_looks_encoded_is_always_decoded() -> None:
    """Otherwise a proxy would route by the name `A`, and the server would run another tool."""
    strange = "=?base64?QQ==?="
    with pytest.raises(RpcError):
        check(request("tools/call", name=strange), **{**GOOD, "mcp_name": strange})
    check(request("tools/call", name=strange), **{**GOOD, "mcp_name": encode_value(strange)})


def test_notifications_are_rejected_only_if_headers_contradict_the_body() -> None:
    bare = Notification("notifications/x")
    check(bare)
    check(bare, mcp_protocol_version="2026-07-28", mcp_method="notifications/x")
    with pytest.raises(RpcError):
        check(bare, mcp_method="notifications/y")
    stamped = Notification("notifications/x", Raw(to_json({"_meta": {VERSION: "2026-07-28"}})))
    check(stamped)
    with pytest.raises(RpcError):
        check(stamped, mcp_protocol_version="2025-11-25")


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "x"}, "x"),
        ("tools/call", {}, None),
        ("tools/call", {"name": 7}, None),
        ("prompts/get", {"name": ""}, ""),
        ("resources/read", {"uri": "a:b", "name": "no"}, "a:b"),
        ("tasks/cancel", {"taskId": "t"}, "t"),
        ("tasks/cancel", {"taskId": 7}, None),
        ("tools/list", {"name": "x"}, None),
    ],
)
def test_the_name_header_repeats_the_name_or_uri_of_a_request(
    method: str, params: Any, name: str | None
) -> None:
    raw = Raw(to_json(params))
    assert mirrored_name(method, read_params_head(raw), raw) == name
    assert mirrored_name(method, read_params_head(UNSET), UNSET) is None


# Arguments


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(name: str, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def test_header_annotations_are_found_in_nested_properties() -> None:
    found = param_headers(
        schema(
            region=marked("Region"),
            inner=schema(deep=schema(n=marked("N", "integer"))),
            on=marked("On", "boolean"),
            plain={"type": "string", "default": {"x-mcp-header": "no mark"}, "enum": ["a"]},
            **{"x-mcp-header": {"type": "string"}, "default": marked("D"), "items": {"type": "x"}},
        )
    )
    assert found == (
        ParamHeader("Region", ("region",), "string"),
        ParamHeader("N", ("inner", "deep", "n"), "integer"),
        ParamHeader("On", ("on",), "boolean"),
        ParamHeader("D", ("default",), "string"),
    )


@pytest.mark.parametrize(
    "nothing", [{}, True, None, [], "x", {"properties": []}, {"properties": 3}]
)
def test_schemas_without_header_annotations_have_no_header_arguments(nothing: Any) -> None:
    assert param_headers(nothing) == ()


def test_a_property_named_like_the_header_annotation_is_not_an_annotation() -> None:
    odd = {"x-mcp-header": {"type": "string"}}
    assert param_headers(schema(**odd)) == ()
    assert param_headers(schema(a={"type": "array", "items": schema(**odd)})) == ()
    assert param_headers({"$defs": {"x-mcp-header": {"type": "string"}}}) == ()


@pytest.mark.parametrize(
    "bad",
    [
        schema(a=marked("")),
        schema(a=marked("two words")),
        schema(a=marked("colon:")),
        schema(a=marked("ü")),
        schema(a={"type": "string", "x-mcp-header": 7}),
        schema(a=marked("A", "number")),
        schema(a=marked("A", "object")),
        schema(a=marked("A", ["string", "null"])),
        schema(a={"x-mcp-header": "A"}),
        schema(a=marked("A"), b=marked("a")),
        marked("Root"),
        schema(a={"type": "array", "items": marked("A")}),
        schema(a={"anyOf": [marked("A")]}),
        schema(a={"type": "array", "prefixItems": [{"x": 1}, marked("A")]}),
        {"allOf": [schema(a=marked("A"))]},
        {"if": schema(a=marked("A"))},
        {"$defs": {"x": marked("A")}},
        {"$defs": {"default": marked("A")}},
        {"patternProperties": {"enum": marked("A")}},
        schema(a={"type": "array", "items": schema(default=marked("A"))}),
    ],
)
def test_invalid_header_annotations_are_rejected(bad: Any) -> None:
    with pytest.raises(ValueError):
        param_headers(bad)


def test_a_schema_nested_too_deeply_for_header_annotations_is_rejected() -> None:
    deep: Any = marked("A")
    for _ in range(5000):
        deep = schema(a=deep)
    with pytest.raises(ValueError, match="too deeply"):
        param_headers(deep)


MARKS = (
    ParamHeader("S", ("s",), "string"),
    ParamHeader("N", ("n",), "integer"),
    ParamHeader("B", ("o", "b"), "boolean"),
)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({"s": "x", "n": 4, "o": {"b": True}}, ["x", 4, True]),
        ({"s": None, "n": 4.0, "o": {"b": None}}, [None, 4, None]),
        ({"s": ["x"], "n": 4.5, "o": "b"}, [None, None, None]),
        ({"n": 2**53}, [None, None, None]),
        ({"n": -(2**53) + 1}, [None, 1 - 2**53, None]),
        (None, [None, None, None]),
    ],
)
def test_only_values_that_a_header_can_carry_are_returned(
    arguments: Any, values: list[Any]
) -> None:
    found = [value for _, value in param_values(MARKS, arguments)]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


def check_call(arguments: Any, **headers: str) -> None:
    given = {f"mcp-param-{n}".encode(): v.encode("latin-1") for n, v in headers.items()}
    check_params(MARKS, UNSET if arguments is None else Raw(to_json(arguments)), given)


scalars = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | st.text(),
        "n": st.none() | st.integers(1 - 2**53, 2**53 - 1),
        "o": st.fixed_dictionaries({}, optional={"b": st.none() | st.booleans()}),
    },
)


@given(scalars)
def test_a_server_accepts_the_argument_headers_of_a_client(arguments: dict[str, Any]) -> None:
    headers = {
        mark.header.lower(): encode_value(value)
        for mark, value in param_values(MARKS, arguments)
        if value is not None
    }
    check_call(arguments, **headers)
    for name in headers:
        with pytest.raises(RpcError, match="missing"):
            check_call(arguments, **{n: v for n, v in headers.items() if n != name})


@pytest.mark.parametrize("said", ["42", "42.0", "042", "=?base64?NDI=?="])
def test_integer_arguments_and_headers_are_compared_as_numbers(said: str) -> None:
    check_call({"n": 42}, n=said)


@pytest.mark.parametrize(
    "said", ["43", "42.5", "", "x", "4_2", "+42", "=?base64?2aTZog==?=", "9" * 5000, "\xfc", "1e3"]
)
def test_a_header_whose_integer_differs_from_the_argument_is_refused(said: str) -> None:
    with pytest.raises(RpcError) as refused:
        check_call({"n": 42}, n=said)
    assert refused.value.code == -32020


def test_headers_without_matching_arguments_are_refused() -> None:
    check_call(None)
    with pytest.raises(RpcError, match="the argument is not"):
        check_call({}, s="x")
    with pytest.raises(RpcError, match="the argument is not"):
        check_call(None, b="true")
    with pytest.raises(RpcError):
        check_call({"o": {"b": True}}, b="True")
    check_params(MARKS, Raw(b"[1]"), {})
    check_params(MARKS, Raw(b"{nonsense"), {})
