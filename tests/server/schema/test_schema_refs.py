"""Tests of references in schemas."""

from typing import Any

import pytest

from fairlead.server.schema.schema_refs import referenced_name, references, rename_references

DECIMAL = {"type": "string", "format": "decimal"}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({}, None),
        ({"$ref": "#/$defs/A"}, "A"),
        ({"$ref": "#/$defs/A", "description": "d"}, "A"),
        ({"$ref": "#/definitions/A"}, None),
        ({"$ref": "other.json#/$defs/A"}, None),
        ({"$ref": 5}, None),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}}, None),
    ],
)
def test_only_a_reference_to_a_definition_returns_its_name(
    schema: dict[str, Any], name: str | None
) -> None:
    assert referenced_name(schema) == name


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({}, []),
        ("#/$defs/A", []),
        (["#/$defs/A", {"$ref": "#/$defs/B"}], ["B"]),
        ({"$ref": "#/$defs/A"}, ["A"]),
        ({"$ref": "#/$defs/A", "anyOf": [{"$ref": "#/$defs/B"}]}, ["A", "B"]),
        ({"properties": {"x": {"items": {"$ref": "#/$defs/C"}}}}, ["C"]),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}, ["A", "A"]),
    ],
)
def test_references_to_definitions_are_found_at_any_depth(schema: Any, names: list[str]) -> None:
    assert list(references(schema)) == names


@pytest.mark.parametrize(
    ("schema", "renamed"),
    [
        ({"$ref": "#/$new/A"}, {"$ref": "#/$defs/A_2"}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}),
        ({"items": [{"$ref": "#/$new/A"}, 1, None]}, {"items": [{"$ref": "#/$defs/A_2"}, 1, None]}),
        ({"type": "object", "required": []}, {"type": "object"}),
        ({"required": ["a"]}, {"required": ["a"]}),
        ({"enum": []}, {"enum": []}),
        ("#/$new/A", "#/$defs/A_2"),
        (7, 7),
    ],
)
def test_references_to_renamed_definitions_are_updated(schema: Any, renamed: Any) -> None:
    assert rename_references(schema, {"A": "A_2"}) == renamed


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        (DECIMAL, {"anyOf": [{"type": "number"}, DECIMAL]}),
        (
            {**DECIMAL, "description": "d"},
            {"description": "d", "anyOf": [{"type": "number"}, DECIMAL]},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "number", "format": "decimal"}, {"type": "number", "format": "decimal"}),
        ({"items": DECIMAL}, {"items": {"anyOf": [{"type": "number"}, DECIMAL]}}),
    ],
    ids=["alone", "described", "other format", "other type", "nested"],
)
def test_the_schema_of_a_decimal_also_accepts_a_number(schema: Any, read: Any) -> None:
    assert rename_references(schema, {}) == read
