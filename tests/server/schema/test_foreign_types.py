"""Tests of `pathlib` and pydantic types, which msgspec does not support."""

import sys
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest

from fairlead.server.schema.foreign_types import (
    adapter_of,
    as_model,
    converter,
    from_json,
    is_path,
    require_type,
    to_plain,
)


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(alias="town")


def test_a_pydantic_model_is_recognized_only_if_pydantic_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert as_model(Weather) is Weather
    for other in (int, Weather(town="x"), list[Weather], pydantic.HttpUrl):
        assert as_model(other) is None
    monkeypatch.delitem(sys.modules, "pydantic")
    assert as_model(Weather) is None
    assert adapter_of(pydantic.HttpUrl) is None


def test_a_model_is_its_own_decoder_and_other_types_have_an_adapter() -> None:
    assert adapter_of(Weather) is Weather
    assert isinstance(adapter_of(pydantic.HttpUrl), pydantic.TypeAdapter)
    assert adapter_of(complex) is None


def test_a_path_type_is_recognized_only_if_pathlib_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (is_path(Path), is_path(PurePosixPath), is_path(str)) == (True, True, False)
    monkeypatch.delitem(sys.modules, "pathlib")
    assert is_path(Path) is False


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (Path, "a/b", Path("a/b")),
        (Weather, {"town": "Bern"}, Weather(town="Bern")),
        (pydantic.HttpUrl, "http://a.b/", pydantic.HttpUrl("http://a.b/")),
    ],
    ids=["path", "model", "url"],
)
def test_foreign_types_are_converted_from_and_to_json(kind: Any, value: Any, made: Any) -> None:
    found = from_json(kind, value)
    assert found == made
    assert type(found) is type(made)
    assert converter(kind)(value, True) == made
    assert msgspec.json.decode(msgspec.json.encode(made, enc_hook=to_plain)) == value


def test_foreign_values_without_a_json_form_are_rejected() -> None:
    with pytest.raises(TypeError, match="^expected str, got int$"):
        from_json(Path, 5)
    with pytest.raises(TypeError, match="^complex has no JSON form$"):
        from_json(complex, "1")
    with pytest.raises(TypeError, match="^a value of type range has no JSON form$"):
        to_plain(range(3))


def test_a_converter_accepts_numbers_in_strings_unless_it_is_strict() -> None:
    convert = converter(int)
    assert (convert("5", False), convert(5, True)) == (5, 5)
    with pytest.raises(msgspec.ValidationError):
        convert("5", True)


def test_a_converter_rejects_a_value_of_the_wrong_type() -> None:
    given = {"a": 1}
    assert require_type(given, dict) is given
    with pytest.raises(TypeError, match="^expected dict, got list$"):
        require_type([], dict)
