"""Tests of converting text to the types in a JSON Schema, and of type descriptions."""

from typing import Any

import pytest

from fairlead.cli.client.schema_values import SchemaMismatch, name_type, read_value

ROOT: dict[str, Any] = {
    "$defs": {
        "Size": {"enum": ["small", "large"]},
        "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "integer"}]},
        "a/b": {"type": "boolean"},
    }
}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("-5", {"type": "integer"}, -5),
        ("5", {"type": "number"}, 5),
        ("5.5", {"type": "number"}, 5.5),
        ("99999999999999999999", {"type": "integer"}, 99999999999999999999),
        ("true", {"type": "boolean"}, True),
        ("No", {"type": "boolean"}, False),
        ("5", {"type": "string"}, "5"),
        ("", {"type": "string"}, ""),
        ("null", {"type": "string"}, "null"),
        ("[1]", {"type": "array"}, [1]),
        ('{"a":1}', {"type": "object"}, {"a": 1}),
        ("5", None, "5"),
        ("5", {}, "5"),
        ("5", True, "5"),
        ("null", {"type": ["string", "null"]}, None),
        ("5", {"type": ["string", "integer"]}, 5),
        ("5x", {"type": ["string", "integer"]}, "5x"),
        ("on", {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, True),
        ("[1", {"anyOf": [{"type": "array"}, {"type": "string"}]}, "[1"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("true", {"const": True}, True),
        ("tiny", {"enum": ["small"]}, "tiny"),  # the server decides which values are valid
        ("small", {"$ref": "#/$defs/Size"}, "small"),
        ("5", {"$ref": "#/$defs/Tree"}, 5),
        ("yes", {"$ref": "#/$defs/a~1b"}, True),
        ("5", {"$ref": "https://example.com/schema"}, "5"),
        ("5", {"allOf": [{"type": "integer"}]}, 5),
    ],
)
def test_argument_text_is_converted_to_the_type_in_the_schema(
    text: str, schema: Any, value: Any
) -> None:
    read = read_value(text, schema, ROOT)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("five", "integer"),
        ("5.5", "integer"),
        ("1_000", "integer"),
        ("", "integer"),
        ("nan", "number"),
        ("inf", "number"),
        ("maybe", "boolean"),
        ("1", "boolean"),
        ("{}", "array"),
        ("a,b", "array"),
        ("[]", "object"),
        ("nil", "null"),
    ],
)
def test_argument_text_that_cannot_be_converted_is_a_mismatch(text: str, kind: str) -> None:
    with pytest.raises(SchemaMismatch, match=kind):
        read_value(text, {"type": kind}, {})


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "integer 1..5"),
        ({"type": "number", "minimum": 0}, "number ≥ 0"),
        ({"type": "number", "maximum": 0}, "number ≤ 0"),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"type": "array"}, "array"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"type": ["string", "null"]}, "null or string"),
        ({"enum": ["a", "b", 3]}, "a | b | 3"),
        ({"$ref": "#/$defs/Size"}, "small | large"),
        ({"$ref": "#/$defs/Tree"}, "integer"),
        ({"$ref": "#/nowhere/at/all"}, "any"),
        ({}, "any"),
        (None, "any"),
        ({"type": 5}, "any"),
    ],
)
def test_each_schema_type_is_described_in_a_few_words(schema: Any, name: str) -> None:
    assert name_type(schema, ROOT) == name


@pytest.mark.parametrize(
    ("text", "value"),
    [("y", True), ("N", False), ("yes", True), ("no", False), ("true", True), ("False", False)],
)
def test_a_boolean_accepts_yes_no_and_their_first_letters(text: str, value: bool) -> None:
    assert read_value(text, {"type": "boolean"}, {}) is value


def test_the_letters_y_and_n_stay_strings_if_the_schema_allows_strings() -> None:
    assert read_value("y", {"type": ["boolean", "string"]}, {}) == "y"
