"""Invalid arguments: the size of the error and the time to produce it."""

import json
import time
from typing import Any, Literal

import msgspec
import pytest

from fairlead import MCPServer
from fairlead.limits import ERROR_DATA, ERROR_TEXT, EXPLAINED_PATHS, PROBLEMS
from fairlead.protocol.schema.schema_validator import SchemaValidator
from fairlead.protocol.schema.validation import Checker
from fairlead.wire import failure

QUICK = 0.25  # seconds of processor time


class Sum(msgspec.Struct, tag="sum"):
    """One kind of node."""

    left: "Sum | Product | int"
    right: "Sum | Product | int"


class Product(msgspec.Struct, tag="product"):
    """Another kind of node."""

    left: "Sum | Product | int"
    right: "Sum | Product | int"


def server() -> MCPServer:
    made = MCPServer("s")

    @made.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @made.tool()
    def names(values: list[int], kind: Literal["a", "b"] = "a") -> int:
        return len(values)

    @made.tool()
    def tree(root: Sum | Product | int) -> str:
        return "ok"

    return made


async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, float, int]:
    """Call a tool; return the text of its result, the processor time, and the bytes by which the
    response exceeds 16 times the request.
    """
    params = {"name": tool, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    made = server()
    await made.handle_request({**request, "params": {"name": tool, "arguments": {}}})
    began = time.process_time()
    answer = await made.handle_request(request)
    took = time.process_time() - began
    assert answer is not None
    text = answer["result"]["content"][0]["text"]
    return text, took, len(json.dumps(answer)) - 16 * len(json.dumps(request))


async def test_an_error_about_many_unknown_arguments_lists_a_limited_number_of_them() -> None:
    text, took, excess = await call("add", {f"unknown_{n}": 1 for n in range(900)})
    problems = json.loads(text)["field_errors"]
    assert problems[2]["field"] == "unknown_0"
    assert len(problems) == PROBLEMS.value + 1
    assert problems[-1]["constraint"].endswith(" more problems")
    assert took < QUICK
    assert excess < 64 << 10


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add", {"a" * 60_000: 1}),
        ("add", {"a": "x" * 60_000, "b": "y"}),
        ("add", {"a": ["x" * 100] * 500, "b": {"y": ["z"] * 2000}}),
        ("names", {"values": ["x"] * 10_000}),
        ("names", {"values": ["1"] * 10_000, "kind": "c" * 20_000}),
        ("names", {"values": "\x00" * 8_000}),
    ],
)
async def test_errors_about_arguments_are_limited_in_size_and_time(
    tool: str, arguments: Any
) -> None:
    _, took, excess = await call(tool, arguments)
    assert took < QUICK
    assert excess < 64 << 10


async def test_a_deeply_nested_argument_is_rejected_quickly() -> None:
    value: Any = "wrong"
    for _ in range(40):
        value = {"type": "sum", "left": value, "right": 1}
    _, took, _ = await call("tree", {"root": value})
    assert took < QUICK


def union(*operations: str) -> dict[str, Any]:
    node = {"$ref": "#/$defs/node"}
    options = [
        {
            "type": "object",
            "properties": {"op": {"const": one}, "left": node, "right": node},
            "required": ["op", "left"],
        }
        for one in operations
    ]
    return {"$defs": {"node": {"anyOf": [{"type": "integer"}, *options]}}, "$ref": "#/$defs/node"}


def deep(levels: int) -> Any:
    value: Any = "wrong"
    for _ in range(levels):
        value = {"op": "add", "left": value}
    return value


def test_errors_in_a_union_are_explained_only_to_a_limited_depth() -> None:
    checker = Checker(union("add", "mul"))
    shallow = checker.problems(deep(3))
    assert "anyOf" in shallow[0].constraint
    hits = EXPLAINED_PATHS.hits
    began = time.process_time()
    assert "too deeply" in checker.problems(deep(100))[0].constraint
    assert time.process_time() - began < QUICK
    assert EXPLAINED_PATHS.hits == hits + 1
    fits = deep(100)
    place = fits
    while isinstance(place["left"], dict):
        place = place["left"]
    place["left"] = 1
    assert checker.problems(fits) == []


def test_errors_in_a_recursive_schema_with_one_matching_type_are_explained_at_any_depth() -> None:
    schema = {
        "$defs": {
            "json": {
                "anyOf": [
                    {"type": "integer"},
                    {"type": "array", "items": {"$ref": "#/$defs/json"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
                ]
            }
        },
        "$ref": "#/$defs/json",
    }
    value: Any = "wrong"
    for _ in range(50):
        value = [value]
    (problem,) = Checker(schema).problems(value)
    assert problem.field == ".".join(["0"] * 50)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("deeper", [False, True])
def test_a_schema_whose_references_expand_exponentially_is_rejected(
    keyword: str, deeper: bool
) -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/d0", "$defs": {"d40": {"type": "integer"}}}
    for n in range(40):
        following = {"$ref": f"#/$defs/d{n + 1}"}
        inner = {"items": following} if deeper else following
        schema["$defs"][f"d{n}"] = {keyword: [inner, inner]}
    began = time.process_time()
    with pytest.raises(ValueError, match="too many paths"):
        SchemaValidator(schema)
    assert time.process_time() - began < QUICK


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(?=a)(a+)+$", r"(a*)*\1c", "(a|aa)+$"])
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_patterns_in_a_foreign_schema_are_matched_in_linear_time(pattern: str, place: str) -> None:
    text = "a" * 60_000 + "b"
    schema: dict[str, Any] = {"pattern": pattern}
    value: Any = text
    if place == "patternProperties":
        schema, value = {"patternProperties": {pattern: {"type": "integer"}}}, {text: 1}
    validator = SchemaValidator(schema, foreign=True)
    began = time.process_time()
    validator.errors(value)
    assert time.process_time() - began < QUICK


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{n}": {"type": "integer"} for n in range(50_000)}},
        {"allOf": [{"pattern": f"{n}"} for n in range(1000)]},
        {"properties": {"a": {"$id": "other", "$ref": "#/$defs/x", "$defs": {"x": {}}}}},
        {"$ref": "https://example.com/schema.json"},
    ],
)
def test_a_foreign_schema_is_limited_in_size_and_references(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SchemaValidator(schema, foreign=True)


def test_message_and_data_of_an_encoded_error_are_truncated() -> None:
    said = failure(1, -32602, "x" * 100_000, {"uri": "y" * 100_000})
    assert len(said.message) == ERROR_TEXT.value
    assert len(said.error) < ERROR_DATA.value
    assert msgspec.json.decode(said.error)["data"].keys() == {"omitted"}
