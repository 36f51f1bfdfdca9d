"""Tests of bytes and durations in the format of pydantic."""

import datetime

import pytest

from fairlead.server.schema.pydantic_format import in_pydantic_format


def test_bytes_are_encoded_as_text_or_else_as_base64() -> None:
    assert in_pydantic_format({"a": [b"text", b"\xff"]}) == {"a": ["text", "/w=="]}


def test_durations_are_encoded_with_all_units_of_iso_8601() -> None:
    span = datetime.timedelta(days=400, hours=2, minutes=3, seconds=4, microseconds=5)
    assert in_pydantic_format([span, -span, datetime.timedelta()]) == [
        "P1Y35DT2H3M4.000005S",
        "-P1Y35DT2H3M4.000005S",
        "PT0S",
    ]


def test_a_value_without_a_json_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="a value of type range has no JSON form"):
        in_pydantic_format(range(3))
