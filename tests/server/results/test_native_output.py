"""Tests of encoding return values according to their declared types."""

import datetime
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fairlead.protocol.schema.validation import InvalidArguments
from fairlead.server.results.native_output import NativeOutput

ANYTHING: dict[str, Any] = {}


class Plain:
    name: str

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass
class Span:
    length: datetime.timedelta
    data: bytes = b"\xff"


def encoded(kind: Any, value: Any) -> Any:
    return msgspec.json.decode(NativeOutput(kind, ANYTHING, wrapped=True).encode(value))


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (datetime.timedelta(0), "PT0S"),
        (datetime.timedelta(days=1), "P1D"),
        (datetime.timedelta(days=400, seconds=61), "P1Y35DT1M1S"),
        (datetime.timedelta(hours=2, microseconds=1500), "PT2H0.0015S"),
        (datetime.timedelta(days=-1, seconds=5), "-PT23H59M55S"),
    ],
)
def test_durations_are_encoded_in_iso_8601_format(span: datetime.timedelta, text: str) -> None:
    assert encoded(datetime.timedelta, span) == text
    assert encoded(list[Span], [Span(span, b"a")]) == [{"length": text, "data": "a"}]


def test_bytes_are_encoded_as_text_if_possible_or_else_as_base64() -> None:
    assert encoded(bytes, "grüß".encode()) == "grüß"
    assert encoded(dict[str, bytes], {"a": b"\xff\xfe"}) == {"a": "//4="}


def test_strings_are_converted_to_numbers_and_booleans() -> None:
    assert encoded(int, "5") == 5
    assert encoded(list[bool], ["true"]) == [True]
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        encoded(int, "five")


def test_a_dict_in_place_of_an_object_gets_the_default_values() -> None:
    assert encoded(Span, {"length": datetime.timedelta(1), "more": 1}) == {
        "length": "P1D",
        "data": "/w==",
    }


def test_a_plain_object_is_encoded_by_its_attributes_and_validated() -> None:
    schema = {"properties": {"name": {"type": "string"}}}
    output = NativeOutput(Plain, schema, wrapped=False, attributes=["name"])
    output.warm_up()
    assert output.encode(Plain("a")) == output.encode({"name": "a"}) == b'{"name":"a"}'
    with pytest.raises(InvalidArguments, match="name: "):
        output.encode(Plain(3))  # type: ignore[arg-type]
