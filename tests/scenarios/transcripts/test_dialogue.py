"""Parsing and comparison of dialogues in the transcript tests."""

from pathlib import Path

import pytest

from tests.support.transcripts.dialogue import Step, matches, pair, read_dialogue


def test_a_dialogue_is_parsed_into_steps_with_sent_lines_and_expected_messages(
    tmp_path: Path,
) -> None:
    file = tmp_path / "dialogue.txt"
    file.write_text("# Why.\n→ [1,\n   2]\n→ invalid JSON\n← {}\n← 3\n\n→ 4\n", "utf-8")
    assert read_dialogue(file) == [
        Step(2, ["[1, 2]", "invalid JSON"], [{}, 3]),
        Step(8, ["4"], []),
    ]


def test_an_invalid_line_in_a_dialogue_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "dialogue.txt"
    file.write_text("→ {}\n<- {}\n", "utf-8")
    with pytest.raises(ValueError, match=r"dialogue\.txt:2"):
        read_dialogue(file)


@pytest.mark.parametrize(
    ("expected", "received", "same"),
    [
        ({"a": [1, "x"]}, {"a": [1, "x"]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([1, 2], [2, 1], False),
        (1, True, False),
        (None, {}, False),
        ("no * here", "no cat\nhere", False),
        ("no *here", "no cat\nhere", True),
        ("a.c", "abc", False),
        ("*", 17, False),
    ],
)
def test_expected_values_match_only_values_of_the_same_type(
    expected: object, received: object, same: bool
) -> None:
    assert matches(expected, received) is same


def test_missing_and_additional_messages_of_a_dialogue_are_returned() -> None:
    assert pair([1, 2, 2], [2, 1, 3], in_order=False) == [2, 3]
    assert pair([1, 2], [2, 1], in_order=False) == []
    assert pair([1, 2], [2, 1], in_order=True) == [(1, 2), (2, 1)]
    assert pair([1, 2], [1], in_order=True) == [2]
