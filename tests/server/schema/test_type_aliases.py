"""Tests of type aliases and the replacement of type variables."""

from typing import Any, TypeVar

import pytest
import typing_extensions as te

from fairlead.server.schema.msgspec_types import to_msgspec_type
from fairlead.server.schema.type_aliases import (
    alias_of,
    alias_value,
    substituted,
    variable_type,
)

T = TypeVar("T")
Names = te.TypeAliasType("Names", list[str])
Either = te.TypeAliasType("Either", "int | list[str]")
Pairs = te.TypeAliasType("Pairs", list[tuple[T, T]], type_params=(T,))
Tree = te.TypeAliasType("Tree", "int | list[Tree]")
Unknown = te.TypeAliasType("Unknown", "list[Missing]")  # noqa: F821 - the name is missing on purpose


def test_an_alias_is_recognized_with_and_without_arguments() -> None:
    assert (alias_of(Names), alias_of(Pairs[int]), alias_of(list[str])) == (Names, Pairs, None)


def test_an_alias_stands_for_its_type_with_the_given_arguments() -> None:
    assert alias_value(Names) == list[str]
    assert alias_value(Either) == int | list[str]
    assert alias_value(Pairs[int]) == list[tuple[int, int]]
    assert to_msgspec_type(dict[str, Pairs[int]]) == dict[str, list[tuple[int, int]]]


def test_an_alias_with_an_unknown_name_is_an_error() -> None:
    with pytest.raises(NameError, match="Missing"):
        alias_value(Unknown)


def test_an_alias_that_refers_to_itself_cannot_be_decoded() -> None:
    with pytest.raises(TypeError, match="the type alias Tree refers to itself"):
        to_msgspec_type(list[Tree])


def test_type_variables_are_replaced_by_their_values_or_any() -> None:
    assert substituted(list[T], {T: int}) == list[int]
    assert substituted(T, {}) is Any
    assert substituted(list[T], {}) == list[T]


def test_the_type_of_a_free_variable_is_its_default_its_constraints_or_its_bound() -> None:
    assert variable_type(TypeVar("A")) is Any
    assert variable_type(TypeVar("B", bound=int)) is int
    assert variable_type(TypeVar("C", int, str)) == int | str
    assert variable_type(te.TypeVar("D", default=str)) is str
