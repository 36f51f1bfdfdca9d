"""Tests of shortening text from a peer for messages."""

import pytest

from fairlead.limits import QUOTED_TEXT
from fairlead.wire.quote_text import quoted, shortened


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcdefghij", 9, "abcde…hij"),
        ("a" * 200, 200, "a" * 200),
    ],
)
def test_the_middle_of_a_long_text_is_omitted(text: str, limit: int, expected: str) -> None:
    hits = QUOTED_TEXT.hits
    assert shortened(text, limit) == expected
    assert len(expected) <= limit
    assert QUOTED_TEXT.hits == hits + (text != expected)


def test_quoted_text_has_at_most_200_characters_by_default() -> None:
    assert len(shortened("x" * 201)) == 200
    assert shortened("x" * 133 + "y" * 68) == "x" * 133 + "…" + "y" * 66
    assert len(quoted("x" * 201)) == 202


def test_a_value_is_quoted_as_its_truncated_repr() -> None:
    assert (quoted("a'b"), quoted(1), quoted(["x"])) == ('"a\'b"', "1", "['x']")
    assert quoted("abcdefghij", 9) == "'abcde…hij'"
    assert quoted([1, 2, 3, 4], 9) == "[1, 2… 4]"
