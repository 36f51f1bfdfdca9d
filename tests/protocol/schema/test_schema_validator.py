"""Tests of rejected schemas, of counting paths in a schema, and of limits on explanations."""

from typing import Any

import pytest

from fairlead.limits import (
    EXPLAINED_PATHS,
    EXPLAINED_VALUES,
    SCHEMA_BYTES,
    SCHEMA_PATHS,
    SCHEMA_PATTERNS,
)
from fairlead.protocol.schema.schema_validator import SchemaValidator, _extent, _Paths

ANY: dict[str, Any] = {}


def doubled(levels: int) -> dict[str, Any]:
    """Return a schema in which each definition refers to the next one twice."""
    definitions: dict[str, Any] = {f"d{levels}": {}}
    for level in range(levels):
        definitions[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        (True, 1),
        (ANY, 1),
        ({"allOf": [{}, {}]}, 3),
        ({"anyOf": [{}, {}]}, 3),
        ({"oneOf": [{}]}, 2),
        ({"not": {}}, 2),
        ({"if": {}, "then": {}, "else": {}}, 4),
        ({"dependentSchemas": {"a": {}, "b": {}}}, 3),
        ({"dependencies": {"a": {}}}, 2),
        ({"properties": {"a": {}, "b": {}}}, 1),
        ({"properties": {"a": {"allOf": [{}]}}}, 2),
        ({"properties": {"a": {}}, "patternProperties": {"a": {}, "b": {}}}, 3),
        ({"additionalProperties": {"allOf": [{}]}}, 2),
        ({"unevaluatedProperties": {"allOf": [{}]}}, 2),
        ({"items": {}, "contains": {}}, 2),
        ({"prefixItems": [{}, {"allOf": [{}]}]}, 2),
        ({"items": [{}, {"allOf": [{}, {}]}]}, 3),
        ({"additionalItems": {"allOf": [{}]}}, 2),
        ({"unevaluatedItems": {"allOf": [{}]}}, 2),
        ({"$defs": {"a": {"allOf": [{}]}}, "$ref": "#/$defs/a"}, 3),
        ({"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}, 2),
        ({"$defs": {"a": {"$dynamicAnchor": "x"}}, "$dynamicRef": "#x"}, 2),
        ({"$id": "urn:s", "$defs": {"a": {}}, "$ref": "urn:s#/$defs/a"}, 2),
        ({"$defs": {"a/b": {}, "c~d": {}}, "allOf": [{"$ref": "#/$defs/a~1b"}]}, 3),
        ({"$defs": {"c~d": {}}, "$ref": "#/$defs/c~0d"}, 2),
        ({"allOf": [{}, {"$ref": "#/allOf/0"}]}, 4),
        (doubled(2), 14),
        # Recursive references add no paths, because the validator caches their results.
        ({"properties": {"a": {"$ref": "#"}}}, 2),
        ({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, 2),
        ({"items": {"$ref": "#"}}, 2),
    ],
    ids=str,
)
def test_paths_of_a_schema_that_apply_to_one_value_are_counted(schema: Any, paths: int) -> None:
    found = _Paths(schema)
    assert (found.at_once(), found.unknown) == (paths, False)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"$ref": "#/allOf/1", "allOf": [{}]},
        {"$ref": "#none"},
        {"$ref": "https://example.com/other"},
        {"properties": {"a": {"$id": "urn:inner"}}},
        {"allOf": [{"$id": "urn:inner"}]},
    ],
    ids=str,
)
def test_unresolvable_references_in_a_schema_are_detected(schema: Any) -> None:
    assert _Paths(schema).unknown is True
    with pytest.raises(ValueError, match=r"cannot be determined|are not followed|.*"):
        SchemaValidator(schema, foreign=True)


@pytest.mark.parametrize(
    ("schema", "patterns"),
    [
        ({"pattern": "a"}, 1),
        ({"patternProperties": {"a": {}, "b": {"pattern": "c"}}}, 3),
        ({"properties": {"pattern": {}}}, 0),
    ],
)
def test_regular_expressions_of_a_schema_are_counted(schema: Any, patterns: int) -> None:
    assert _Paths(schema).patterns == patterns


@pytest.mark.parametrize(
    ("schema", "most", "deepest"),
    [
        (ANY, 1, 256),
        ({"allOf": [{}]}, 1, 0),
        ({"allOf": [{}]}, 2, 256),
        ({"properties": {"a": {"allOf": [{}]}}}, 1, 0),
        ({"properties": {"a": {"allOf": [{}]}}}, 2, 256),
        ({"properties": {"a": {"properties": {"b": {"allOf": [{}]}}}}}, 1, 1),
        ({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}, 64, 4),
        ({"$ref": "https://example.com"}, 64, 1),
    ],
    ids=str,
)
def test_the_maximum_depth_of_explained_values_depends_on_the_number_of_schema_paths(
    schema: Any, most: int, deepest: int
) -> None:
    assert _Paths(schema).deepest(most) == deepest


@pytest.mark.parametrize(
    ("value", "deepest", "extent"),
    [
        (1, 5, (0, 1)),
        ([], 5, (0, 1)),
        ([1, 2], 5, (1, 3)),
        ({"a": {"b": 1}}, 5, (2, 3)),
        ([[1], {"a": 2}], 5, (2, 5)),
        ([[[1]]], 1, (2, 3)),
        ([[[1]]], 2, (3, 4)),
        ([[[1]]], 3, (3, 4)),
    ],
)
def test_the_extent_of_a_value_is_its_depth_and_size(
    value: Any, deepest: int, extent: tuple[int, int]
) -> None:
    assert _extent(value, deepest) == extent


# Limits


def test_the_size_of_a_foreign_schema_is_limited() -> None:
    fits = {"description": "x" * (SCHEMA_BYTES.value - len('{"description":""}'))}
    SchemaValidator(fits, foreign=True)
    larger = {"description": fits["description"] + "x"}
    hits = SCHEMA_BYTES.hits
    with pytest.raises(ValueError, match="^the schema is larger than 524288 bytes$"):
        SchemaValidator(larger, foreign=True)
    assert SCHEMA_BYTES.hits == hits + 1
    SchemaValidator(larger)


def test_the_number_of_patterns_in_a_foreign_schema_is_limited() -> None:
    def patterns(count: int) -> dict[str, Any]:
        return {"properties": {f"p{n}": {"pattern": "a"} for n in range(count)}}

    SchemaValidator(patterns(SCHEMA_PATTERNS.value), foreign=True)
    hits = SCHEMA_PATTERNS.hits
    with pytest.raises(ValueError, match="^the schema has more than 256 patterns$"):
        SchemaValidator(patterns(SCHEMA_PATTERNS.value + 1), foreign=True)
    assert SCHEMA_PATTERNS.hits == hits + 1
    SchemaValidator(patterns(SCHEMA_PATTERNS.value + 1))


def test_the_number_of_paths_in_a_schema_is_limited() -> None:
    SchemaValidator({"allOf": [{"const": n} for n in range(SCHEMA_PATHS.value - 1)]})
    hits = SCHEMA_PATHS.hits
    with pytest.raises(ValueError, match="^the references of the schema lead to too many paths$"):
        SchemaValidator({"allOf": [{"const": n} for n in range(SCHEMA_PATHS.value)]})
    assert SCHEMA_PATHS.hits == hits + 1
    with pytest.raises(ValueError, match="too many paths"):
        SchemaValidator(doubled(40))


def test_an_invalid_schema_is_rejected_with_the_position_of_the_error() -> None:
    with pytest.raises(ValueError, match=r"\(at properties\.a\.type\)$"):
        SchemaValidator({"properties": {"a": {"type": "odd"}}})
    with pytest.raises(ValueError, match="^the schema is nested too deeply$"):
        deep: dict[str, Any] = {}
        for _ in range(5000):
            deep = {"not": deep}
        SchemaValidator(deep)


def test_an_external_reference_in_a_schema_is_not_followed() -> None:
    with pytest.raises(ValueError, match="example.com"):
        SchemaValidator({"$ref": "https://example.com/s"})


# Patterns

LOOKS_BACK = r"^(?=a)"


def test_patterns_with_look_around_are_checked_only_in_own_schemas() -> None:
    schema = {"pattern": LOOKS_BACK}
    assert [SchemaValidator(schema).is_valid(text) for text in ("a", "b")] == [True, False]
    foreign = SchemaValidator(schema, foreign=True)
    assert [foreign.is_valid(text) for text in ("a", "b")] == [True, True]


def test_only_unsupported_patterns_are_removed_from_a_foreign_schema() -> None:
    schema = {
        "allOf": [
            {"pattern": LOOKS_BACK},
            {"pattern": "b$"},
            {"properties": {"x": {"type": "null"}}},
        ],
    }
    foreign = SchemaValidator(schema, foreign=True)
    assert [foreign.is_valid(text) for text in ("b", "a")] == [True, False]
    assert foreign.is_valid({"x": 1}) is False


@pytest.mark.parametrize(
    ("patterns", "value", "valid"),
    [
        ({LOOKS_BACK: {"type": "null"}}, {"a": 1}, True),
        ({LOOKS_BACK: {}, "^b": {"type": "null"}}, {"b": 1}, False),
        ({"^b": {"type": "null"}}, {"a": 1}, False),
    ],
)
def test_members_of_unsupported_pattern_properties_are_accepted(
    patterns: dict[str, Any], value: Any, valid: bool
) -> None:
    schema = {
        "patternProperties": patterns,
        "additionalProperties": False,
        "not": {"pattern": LOOKS_BACK, "type": "string"},
    }
    assert SchemaValidator(schema, foreign=True).is_valid(value) is valid


# Errors


def test_each_error_of_a_small_value_is_listed() -> None:
    validator = SchemaValidator({"items": {"type": "integer"}})
    assert validator.errors([1]) == []
    errors = validator.errors(["a", 1, "b"])
    assert errors is not None
    assert [list(one.instance_path) for one in errors] == [[0], [2]]


def test_a_large_value_is_rejected_without_an_explanation() -> None:
    validator = SchemaValidator({"items": {"type": "integer"}})
    small = ["a"] * (EXPLAINED_VALUES.value - 1)
    assert len(validator.errors(small) or ()) == len(small)
    hits = EXPLAINED_VALUES.hits
    assert validator.errors([*small, "a"]) is None
    assert EXPLAINED_VALUES.hits == hits + 1


def test_a_deep_value_with_many_paths_is_rejected_without_an_explanation() -> None:
    twice = {"items": {"$ref": "#"}}
    validator = SchemaValidator({"type": "array", "allOf": [twice, twice]})
    assert validator.errors(1) != []
    deep: Any = 1
    for _ in range(8):
        deep = [deep]
    hits = EXPLAINED_PATHS.hits
    assert validator.errors(deep) is None
    assert EXPLAINED_PATHS.hits == hits + 1
