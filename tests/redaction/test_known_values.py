"""Tests of secrets that are known by value, at every position and in every encoding."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.redaction.known_values import KnownValues

SECRET = st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40
).filter(lambda text: "#" not in text)
FORMS = {
    "plain": lambda text: text,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "percent": lambda text: quote(text, safe=""),
    "json": lambda text: json.dumps(text)[1:-1],
}


def test_known_values_shorter_than_six_characters_are_not_redacted() -> None:
    known = KnownValues()
    assert known.add(["abcde", "abcdef"]) == {"abcdef"}
    assert known.replace("x abcde y abcdef z", "#") == "x abcde y # z"


@pytest.mark.parametrize("length", range(6, 33))
def test_a_known_value_is_found_at_every_offset_of_a_long_text(length: int) -> None:
    """Values of at least 7 and 15 bytes are searched with larger windows."""
    secret = "".join(chr(65 + number % 57) for number in range(length))
    known = KnownValues()
    known.add([secret])
    for before in range(17):
        for behind in range(9):
            text = "." * before + secret + "." * behind
            assert known.may_be_in(text.encode())
            assert known.replace(text, "#") == "." * before + "#" + "." * behind


@given(SECRET, st.sampled_from(sorted(FORMS)), st.integers(0, 9))
def test_a_known_value_is_found_in_every_encoding(secret: str, form: str, before: int) -> None:
    known = KnownValues()
    known.add([secret])
    written = FORMS[form](secret)
    assert "#" in known.replace("." * before + written + "!", "#")


def test_adding_known_values_returns_only_the_new_ones() -> None:
    known = KnownValues()
    assert known.add(["first value"]) == {"first value"}
    assert known.add(["first value", "second value"]) == {"second value"}
    assert known.values == {"first value", "second value"}


def test_a_known_value_that_is_added_after_a_search_is_found() -> None:
    known = KnownValues()
    known.add(["first value"])
    assert known.replace("first value", "#") == "#"
    assert known.replace(r"\u0066irst value", "#") == "#"
    known.add(["second value"])
    assert known.replace("first value, second value", "#") == "#, #"
    assert known.replace(r"\u0073econd value", "#") == "#"


@pytest.mark.parametrize(
    ("line", "secret"),
    [("a" * 16, True), ("a" * 15, False), ("-----BEGIN KEY-----", False)],
)
def test_each_long_line_of_a_private_key_is_also_a_known_value(line: str, secret: bool) -> None:
    known = KnownValues()
    known.add([f"-----BEGIN KEY-----\n{line}\n-----END KEY-----"])
    assert known.replace(f"x{line}x", "#") == ("x#x" if secret else f"x{line}x")
