"""Tests of the tool contracts: valid and invalid payloads, and agreement with the schemas."""

import copy
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.protocol.contracts import (
    TOOL_ERROR_SCHEMA,
    TOOL_REQUEST_SCHEMA,
    TOOL_RESPONSE_SCHEMA,
    Checked,
    make_tool_error,
    validate_tool_error,
    validate_tool_request,
    validate_tool_response,
)

REQUEST: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1}, "_meta": {"progressToken": 7}},
}
RESPONSE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "r-1",
    "result": {
        "content": [{"type": "text", "text": "3"}],
        "isError": False,
        "structuredContent": None,
        "_meta": {},
    },
}
ERROR: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "error": {"code": -32602, "message": "No such tool", "data": [1]},
}

CONTRACTS = [
    (TOOL_REQUEST_SCHEMA, validate_tool_request, REQUEST),
    (TOOL_RESPONSE_SCHEMA, validate_tool_response, RESPONSE),
    (TOOL_ERROR_SCHEMA, validate_tool_error, ERROR),
]
VALIDATORS = [(jsonschema_rs.Draft202012Validator(s), check, good) for s, check, good in CONTRACTS]


@pytest.mark.covers("CON-01")
@pytest.mark.parametrize(("schema", "check", "good"), CONTRACTS)
def test_contract_schemas_have_a_dialect_and_an_id(
    schema: dict[str, Any], check: object, good: object
) -> None:
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:fairlead:contract:tool-")


@pytest.mark.covers("CON-01")
def test_contract_schema_ids_are_unique() -> None:
    assert len({schema["$id"] for schema, _, _ in CONTRACTS}) == len(CONTRACTS)


@pytest.mark.covers("CON-02", "CON-03", "CON-04", "CON-05")
@pytest.mark.parametrize(("schema", "check", "good"), CONTRACTS)
def test_the_validator_returns_a_valid_payload(
    schema: object, check: Callable[[object], Checked], good: object
) -> None:
    checked = check(good)
    assert checked == Checked(good)
    assert checked.ok
    assert checked.payload is good


def changed(payload: dict[str, Any], path: str, value: object = ...) -> dict[str, Any]:
    """Return a copy of the payload with the member at the dotted path set or removed."""
    result = copy.deepcopy(payload)
    *way, last = path.split(".")
    target = result
    for step in way:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return result


@pytest.mark.covers("CON-02", "CON-05")
@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ([REQUEST], "the payload must be an object"),
        (changed(REQUEST, "jsonrpc"), "jsonrpc is required"),
        (changed(REQUEST, "jsonrpc", "1.0"), 'jsonrpc must be "2.0"'),
        (changed(REQUEST, "id"), "id is required"),
        (changed(REQUEST, "id", None), "id must be a string or an integer"),
        (changed(REQUEST, "id", True), "id must be a string or an integer"),
        (changed(REQUEST, "id", 1.5), "id must be a string or an integer"),
        (changed(REQUEST, "id", 1.0), "id must be a string or an integer"),
        (changed(REQUEST, "id", ""), "id must not be empty"),
        (changed(REQUEST, "method", "tools/list"), 'method must be "tools/call"'),
        (changed(REQUEST, "params"), "params is required"),
        (changed(REQUEST, "params", []), "params must be an object"),
        (changed(REQUEST, "params.name"), "params.name is required"),
        (changed(REQUEST, "params.name", ""), "params.name must not be empty"),
        (changed(REQUEST, "params.name", 3), "params.name must be a string"),
        (changed(REQUEST, "params.arguments", None), "params.arguments must be an object"),
        (changed(REQUEST, "params.arguments", [1]), "params.arguments must be an object"),
        (changed(REQUEST, "params._meta", 1), "params._meta must be an object"),
    ],
)
def test_problems_of_an_invalid_request_have_paths(payload: object, problem: str) -> None:
    assert validate_tool_request(payload) == Checked(payload, (problem,))


@pytest.mark.covers("CON-03", "CON-05")
@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (changed(RESPONSE, "id"), "id is required"),
        (changed(RESPONSE, "result"), "result is required"),
        (changed(RESPONSE, "error", {}), "error must not be present"),
        (changed(RESPONSE, "result.content"), "result.content is required"),
        (changed(RESPONSE, "result.content", []), "result.content must not be empty"),
        (changed(RESPONSE, "result.content", "3"), "result.content must be an array"),
        (changed(RESPONSE, "result.content", ["3"]), "result.content[0] must be an object"),
        (changed(RESPONSE, "result.content", [{}]), "result.content[0].type is required"),
        (
            changed(RESPONSE, "result.content", [{"type": "text"}, {"type": ""}]),
            "result.content[1].type must not be empty",
        ),
        (changed(RESPONSE, "result.isError", 0), "result.isError must be a boolean"),
        (changed(RESPONSE, "result._meta", None), "result._meta must be an object"),
    ],
)
def test_problems_of_an_invalid_response_have_paths(payload: object, problem: str) -> None:
    assert validate_tool_response(payload) == Checked(payload, (problem,))


@pytest.mark.covers("CON-04", "CON-05")
@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (changed(ERROR, "id"), "id is required"),
        (changed(ERROR, "id", None), "id must be a string or an integer"),
        (changed(ERROR, "error"), "error is required"),
        (changed(ERROR, "result", None), "result must not be present"),
        (changed(ERROR, "error.code"), "error.code is required"),
        (changed(ERROR, "error.code", False), "error.code must be an integer"),
        (changed(ERROR, "error.code", "5"), "error.code must be an integer"),
        (changed(ERROR, "error.message"), "error.message is required"),
        (changed(ERROR, "error.message", ""), "error.message must not be empty"),
    ],
)
def test_problems_of_an_invalid_error_have_paths(payload: object, problem: str) -> None:
    assert validate_tool_error(payload) == Checked(payload, (problem,))


@pytest.mark.covers("CON-05")
def test_all_problems_of_a_payload_are_listed() -> None:
    assert validate_tool_request({"id": 1, "params": {"arguments": 2}}).problems == (
        "jsonrpc is required",
        "method is required",
        "params.name is required",
        "params.arguments must be an object",
    )


@pytest.mark.covers("CON-02", "CON-03")
def test_payloads_with_unknown_members_are_valid() -> None:
    assert validate_tool_request({**REQUEST, "trace": 1}).ok
    assert validate_tool_response(changed(RESPONSE, "result.resultType", "complete")).ok


@pytest.mark.covers("CON-04")
@pytest.mark.parametrize("data", [None, False, 0, "text", [], {}])
def test_the_data_of_an_error_may_be_any_value(data: object) -> None:
    assert validate_tool_error(changed(ERROR, "error.data", data)).ok


@pytest.mark.covers("CON-07")
def test_contract_problems_never_contain_values_of_the_payload() -> None:
    secret = "sk-1234"
    payload = {**changed(REQUEST, "params.name", [secret]), "jsonrpc": secret, "method": secret}
    assert secret not in " ".join(validate_tool_request(payload).problems)


# Schema and validator agree on any payload.


def has_whole_float(value: object) -> bool:
    """Return True if a value contains 1.0, an integer in JSON Schema but not for the validator."""
    match value:
        case float():
            return value.is_integer()
        case dict():
            return any(has_whole_float(item) for item in value.values())
        case list():
            return any(has_whole_float(item) for item in value)
    return False


def places(value: object) -> list[tuple[Any, Any]]:
    """Return the container and key of every value in a payload."""
    pairs: list[tuple[Any, Any]] = []
    keyed = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in keyed:
        pairs.append((value, key))
        pairs += places(inner)
    return pairs


names = st.sampled_from(
    sorted({key for _, _, good in CONTRACTS for _, key in places(good) if isinstance(key, str)})
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["2.0", "tools/call", "text", ""])
    | st.text(max_size=4)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, good: dict[str, Any]) -> object:
    """Generate a valid payload with a few members replaced, removed or added."""
    payload = copy.deepcopy(good)
    for _ in range(draw(st.integers(0, 3))):
        spots = places(payload)
        if not spots:
            break
        container, key = draw(st.sampled_from(spots))
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove":
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw(names)] = draw(values)
        else:
            container[key] = draw(values)
    return payload


@pytest.mark.covers("CON-01", "CON-02", "CON-03", "CON-04")
@given(st.sampled_from(VALIDATORS).flatmap(lambda v: st.tuples(st.just(v), mutated(v[2]) | values)))
def test_the_validator_agrees_with_the_published_schema(case: Any) -> None:
    (schema, check, _), payload = case
    assume(not has_whole_float(payload))
    assert check(payload).ok == schema.is_valid(payload), check(payload).problems


# Synthetic errors.


@pytest.mark.covers("CON-08")
@pytest.mark.parametrize(
    ("code", "kind"),
    [(502, "http"), (404, "http"), (408, "timeout"), (499, "closed"), (-32700, "parse")],
)
def test_a_synthetic_error_has_the_kind_of_its_code(code: int, kind: str) -> None:
    error = make_tool_error(7, code, "The call failed; try again")
    assert error == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": code,
            "message": "The call failed; try again",
            "data": {"synthetic": True, "kind": kind},
        },
    }
    assert validate_tool_error(error).ok


@pytest.mark.covers("CON-08")
def test_the_kind_of_a_synthetic_error_may_be_given() -> None:
    error = make_tool_error("a", 408, "The gateway timed out", kind="http")
    assert error["error"]["data"] == {"synthetic": True, "kind": "http"}


@pytest.mark.covers("CON-08")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"status": 502}, {"status": 502, "synthetic": True, "kind": "http"}),
        ({"synthetic": False, "kind": "x"}, {"synthetic": True, "kind": "http"}),
        ("body", {"data": "body", "synthetic": True, "kind": "http"}),
        (0, {"data": 0, "synthetic": True, "kind": "http"}),
    ],
)
def test_data_of_a_synthetic_error_always_marks_the_error_as_synthetic(
    data: object, expected: object
) -> None:
    assert make_tool_error(1, 502, "Bad gateway", data)["error"]["data"] == expected


@pytest.mark.covers("CON-07", "CON-08")
def test_the_message_of_a_synthetic_error_excludes_stack_traces() -> None:
    message = (
        'Could not connect\nTraceback (most recent call last):\n  File "/home/me/app.py", line 3'
    )
    assert make_tool_error(1, 499, message)["error"]["message"] == "Could not connect"


@pytest.mark.covers("CON-04", "CON-07", "CON-08")
@pytest.mark.parametrize("code", [503, 408, 499, -32700])
@pytest.mark.parametrize("message", ["", " \n"])
def test_a_synthetic_error_without_a_message_describes_the_kind_of_failure(
    code: int, message: str
) -> None:
    error = make_tool_error(1, code, message)
    assert validate_tool_error(error).ok
    assert "; " in error["error"]["message"]  # the message has the form "problem; remedy"
