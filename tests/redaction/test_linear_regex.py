"""Tests of regular expressions in Python syntax that run in linear time."""

import re

import pytest

from fairlead.redaction.linear_regex import LinearPattern


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("abc", ["xabcx"], ["ab"]),
        (r"^\d+$", ["12", "١٢", "12\n"], ["1a", "", "12\n\n"]),
        (r"^\D$", ["a", "ü"], ["1", "١"]),
        (r"^\w+$", ["aü_1"], ["a b", ""]),
        (r"^\W$", [" ", "-"], ["a", "ü", "_"]),
        (r"^\s$", [" ", "\t", "\x0b", "\x1c", "\x85", "\u2003"], ["a", ""]),
        (r"^\S$", ["a"], [" ", "\u2003"]),
        (r"^[\d_]+$", ["1_"], ["a"]),
        (r"^[\w-]+$", ["a-ü"], ["a b"]),
        (r"^[\s]$", ["\u2003"], ["a"]),
        (r"a\Z", ["a"], ["a\n", "ab"]),
        (r"a$", ["a", "a\n"], ["a\nb"]),
        (r"^a{,2}$", ["", "a", "aa"], ["aaa"]),
        (r"^a{1,2}$", ["a", "aa"], ["", "aaa"]),
        (r"^[{,]$", ["{", ","], ["0"]),
        (r"^\u00fc$", ["ü"], ["u"]),
        (r"^\U0001F600$", ["\U0001f600"], ["U"]),
        (r"^\u00fcx$", ["üx"], ["ü"]),
        (r"^[\b]$", ["\x08"], ["b"]),
        (r"\bcat\b", ["a cat!"], ["concat"]),
        (r"^[[]$", ["["], ["]"]),
        (r"^[]]$", ["]"], ["["]),
        (r"^[^]]$", ["["], ["]"]),
        (r"^[]a]b[{]$", ["]b{", "ab{"], ["b{"]),
        (r"^[a]{,1}$", ["", "a"], ["aa"]),
        (r"^\[a\]$", ["[a]"], ["a"]),
        (r"^[[:alpha:]]$", [":]", "a]"], ["b"]),
        (r"^\\$", ["\\"], ["a"]),
        (r"^\.$", ["."], ["a"]),
    ],
)
def test_a_linear_pattern_matches_the_same_texts_as_in_python(
    pattern: str, good: list[str], bad: list[str]
) -> None:
    compiled = LinearPattern(pattern)
    assert compiled.text == pattern
    assert [compiled.matches(text) for text in good] == [True] * len(good)
    assert [compiled.matches(text) for text in bad] == [False] * len(bad)
    if "[[" not in pattern:  # Python warns about this pattern
        for text in (*good, *bad):
            assert compiled.matches(text) is (re.search(pattern, text) is not None)


def test_a_pattern_matches_utf8_bytes() -> None:
    assert LinearPattern("ü").matches_bytes("xü".encode())
    assert not LinearPattern("a$").matches_bytes(b"a\n")
    assert not LinearPattern("b").matches_bytes(b"a")


def test_matches_are_replaced_by_literal_text() -> None:
    assert LinearPattern("a+").replace("baab ca", r"\1") == r"b\1b c\1"
    assert LinearPattern("x").replace("same", "y") == "same"
    assert LinearPattern("ü").replace("aüb", "ö") == "aöb"


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<x"])
def test_an_invalid_regular_expression_is_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression: ") as refused:
        LinearPattern(pattern)
    assert str(refused.value).startswith(repr(pattern))


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "a{1001}", "(?<!a)b"])
def test_a_pattern_that_cannot_run_in_linear_time_is_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="cannot run in linear time") as refused:
        LinearPattern(pattern)
    assert str(refused.value).endswith("one of them with `not_matches`")
