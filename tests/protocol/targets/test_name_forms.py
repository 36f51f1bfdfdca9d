"""Tests of Unicode normalisation in linear time."""

import unicodedata

import pytest

from fairlead.gateway.search.search_index import _words
from fairlead.protocol.targets.name_forms import (
    name_forms,
    nfkc,
    normalize_name,
    without_long_mark_runs,
)
from fairlead.protocol.targets.uri_forms import uri_forms

RUN = "\u0316\u0301" * 2000


def test_ordinary_text_is_normalised_to_a_unicode_normal_form() -> None:
    assert nfkc("ｆile") == "file"
    assert nfkc("plain") == "plain"
    assert nfkc("e" + "\u0301" * 30) == unicodedata.normalize("NFKC", "e" + "\u0301" * 30)


@pytest.mark.parametrize("mark", ["\u0301", "\uff9e", "\uff9f", "\u0f73", "\u0f75", "\u0f81"])
def test_a_name_with_too_many_consecutive_combining_marks_is_unclear(mark: str) -> None:
    assert nfkc("a" + mark * 31) is None
    assert nfkc("a" + mark * 30 + "b" + mark * 30) is not None


def test_all_characters_that_decompose_into_combining_marks_are_listed() -> None:
    """Characters that decompose into combining marks also count as marks."""
    for number in range(0x110000):
        character = chr(number)
        first = unicodedata.normalize("NFKD", character)[0]
        if unicodedata.combining(first) and not unicodedata.combining(character):
            assert nfkc("a" + character * 31) is None, hex(number)


def test_combining_marks_beyond_the_limit_are_removed() -> None:
    assert without_long_mark_runs("a" + "\u0301" * 100 + "b") == "a" + "\u0301" * 30 + "b"
    assert without_long_mark_runs("a" * 100) == "a" * 100
    assert list(_words("é" + "\u0301" * 5000 + " word"))[-1] == "word"


@pytest.mark.parametrize("between", ["\u200b", "\u00ad", "\ufe0f"])
def test_invisible_characters_do_not_hide_a_long_run_of_combining_marks(between: str) -> None:
    name = "a" + between.join("\u0316\u0301" * 40)
    assert name_forms(name) is None
    assert normalize_name(name) == name


def test_a_uri_with_a_long_run_of_encoded_combining_marks_is_unclear() -> None:
    assert uri_forms("file:///" + "%CC%81" * 40) is None
    assert uri_forms("file:///" + RUN[:40]) is None
