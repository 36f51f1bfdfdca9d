"""Tests of parameters that clients also send as headers."""

from typing import Any

import pytest

from fairlead.protocol.types.base import HEADER_ANNOTATION
from fairlead.server.schema.header_annotation import Header, flat_headers

X = {HEADER_ANNOTATION: "X"}
TEXT_OR_NULL = [{"type": "string"}, {"type": "null"}]


def test_a_header_annotation_has_a_name_and_a_repr() -> None:
    header = Header("Region-2!")
    assert (header.name, repr(header)) == ("Region-2!", "Header('Region-2!')")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\n"])
def test_a_header_annotation_with_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(
        TypeError, match="invalid header name .*: expected only letters, digits and "
    ):
        Header(name)


@pytest.mark.parametrize(
    ("entry", "flat"),
    [
        ({"type": "integer", **X}, {"type": "integer", **X}),
        ({"anyOf": TEXT_OR_NULL, **X}, {"type": "string", **X}),
        ({"anyOf": TEXT_OR_NULL, "default": None, **X}, {"type": "string", **X}),
        ({"anyOf": TEXT_OR_NULL, "default": "", **X}, {"type": "string", "default": "", **X}),
        (
            {"anyOf": TEXT_OR_NULL, "description": "d", **X},
            {"type": "string", "description": "d", **X},
        ),
        ({"anyOf": TEXT_OR_NULL}, {"anyOf": TEXT_OR_NULL}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}], **X},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], **X},
        ),
        ({"$ref": "#/$defs/Color", **X}, {"title": "Color", "type": "string", "enum": ["r"], **X}),
        (
            {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}], **X},
            {"title": "Color", "type": "string", "enum": ["r"], **X},
        ),
        ({"$ref": "#/$defs/Color"}, {"$ref": "#/$defs/Color"}),
        ({"enum": ["a", "b"], **X}, {"enum": ["a", "b"], "type": "string", **X}),
        ({"enum": ["a", 1], **X}, {"enum": ["a", 1], **X}),
        ({"enum": [1, 2], "type": "integer", **X}, {"enum": [1, 2], "type": "integer", **X}),
        ({**X}, {**X}),
    ],
    ids=[
        "plain",
        "optional",
        "default null",
        "default text",
        "described",
        "no header",
        "union",
        "reference",
        "optional reference",
        "reference without header",
        "texts",
        "mixed values",
        "typed values",
        "anything",
    ],
)
def test_schemas_of_header_parameters_are_inlined_with_a_plain_type(entry: Any, flat: Any) -> None:
    definitions = {"Color": {"title": "Color", "enum": ["r"]}}
    other = {"type": "null"}
    schema = {"properties": {"first": other, "a": entry, "last": other}, "$defs": definitions}
    before = str(schema)
    assert flat_headers(schema) == {
        "properties": {"first": other, "a": flat, "last": other},
        "$defs": definitions,
    }
    assert str(schema) == before
