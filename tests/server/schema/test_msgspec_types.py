"""Tests of converting type annotations for msgspec."""

import collections.abc
import datetime
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from annotated_types import Gt, MinLen

from fairlead.server.schema.msgspec_types import has_foreign_notes, to_msgspec_type


@dataclass
class Plain:
    size: int
    next: "Plain | None" = None


@dataclass
class Noted:
    size: Annotated[int, Gt(0)]


@dataclass
class Around:
    inner: list[Noted]


class Tagged(msgspec.Struct, tag="tagged"):
    inner: Noted


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int, False),
        (Annotated[int, Gt(0)], True),
        (Annotated[int, msgspec.Meta(gt=0)], False),
        (Annotated[int, msgspec.Meta(gt=0), Gt(0)], True),
        (Annotated[int, "a remark"], True),
        (list[Annotated[str, MinLen(1)]], True),
        (dict[str, int | None], False),
        (Literal["a", "b"], False),
        (Plain, False),
        (Noted, True),
        (Around, True),
        (Tagged, False),
    ],
)
def test_annotations_of_other_libraries_are_found_at_any_depth(kind: Any, expected: bool) -> None:
    assert has_foreign_notes(kind) is expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (object, Any),
        (int, int),
        (list[int], list[int]),
        (list[object], list[Any]),
        (dict[str, object], dict[str, Any]),
        (collections.abc.Iterable[int], list[int]),
        (tuple[object, ...], tuple[Any, ...]),
        (int | object, typing.Union[int, Any]),  # noqa: UP007 - the type that is returned
        (Annotated[int, Gt(0)], Annotated[int, msgspec.Meta(gt=0)]),
        (
            datetime.time,
            Annotated[datetime.time, msgspec.Meta(extra_json_schema={"format": "time"})],
        ),
    ],
)
def test_types_with_foreign_annotations_are_converted_for_msgspec(kind: Any, expected: Any) -> None:
    assert to_msgspec_type(kind) == expected
