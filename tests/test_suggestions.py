"""Tests of error messages for unknown names."""

import time
from itertools import islice, permutations

import pytest

from fairlead.suggestions import close_matches, did_you_mean, missing_attribute, unknown_name


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("serch", ["search", "views"], "unknown setting 'serch': did you mean 'search'?"),
        ("pageSize", ["page_size"], "unknown setting 'pageSize': did you mean 'page_size'?"),
        ("log-level", ["log_level"], "unknown setting 'log-level': did you mean 'log_level'?"),
        ("x", ["views", "search"], "unknown setting 'x': expected one of search, views"),
        ("x", [], "unknown setting 'x'"),
        ("a\x1b[2Jb", [], r"unknown setting 'a\x1b[2Jb'"),
    ],
)
def test_the_error_for_an_unknown_name_shows_the_closest_name_or_all_names(
    name: str, known: list[str], text: str
) -> None:
    assert unknown_name("setting", name, known) == text


def test_similar_names_are_returned_closest_first() -> None:
    known = ["notes", "note", "weather"]
    assert close_matches("note", known, most=3) == ["note", "notes"]
    assert close_matches("note", known) == ["note"]
    assert close_matches("quite different", known) == []


def test_only_the_first_of_several_names_that_differ_in_case_is_suggested() -> None:
    assert close_matches("NOTES", ["Notes", "notes"], most=3) == ["Notes"]


def test_a_did_you_mean_hint_joins_several_names() -> None:
    assert did_you_mean(["a", "b"]) == "did you mean 'a' or 'b'?"
    assert did_you_mean([]) == ""


def test_very_long_names_are_compared_in_bounded_time() -> None:
    started = time.monotonic()
    assert close_matches("ab" * 1_000_000, ["ab" * 999_999]) == ["ab" * 999_999]
    assert time.monotonic() - started < 1


def test_an_unknown_name_is_compared_with_thousands_of_names_in_bounded_time() -> None:
    words = ("create", "list", "get", "update", "delete", "search", "note", "issue", "branch")
    known = ["server_" + "_".join(one) for one in islice(permutations(words, 8), 100_000)]
    wanted = known[4321]
    started = time.process_time()
    assert close_matches(wanted.replace("search", "serch"), known) == [wanted]
    assert time.process_time() - started < 0.5


class Box:
    size = 1

    def __getattr__(self, name: str) -> object:
        raise missing_attribute(self, name, {"length": "use `box.size`"})

    @property
    def broken(self) -> object:
        return [].nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("length", "'Box' object has no attribute 'length': use `box.size`"),
        ("sise", "'Box' object has no attribute 'sise': did you mean 'size'?"),
        ("unlike", "'Box' object has no attribute 'unlike'"),
        ("__sise__", "'Box' object has no attribute '__sise__'"),
        ("broken", "'list' object has no attribute 'nothing'"),
    ],
)
def test_the_error_for_a_missing_attribute_names_its_replacement(name: str, message: str) -> None:
    box = Box()
    with pytest.raises(AttributeError) as missing:
        getattr(box, name)
    assert str(missing.value) == message
    assert not hasattr(box, name)
