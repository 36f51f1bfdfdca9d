"""Tests of escaping untrusted text for display."""

import json
import math
from typing import Any

import pytest

from fairlead.observe.safe_display import escape_json, json_text, prose, safe, visible


@pytest.mark.parametrize(
    ("text", "in_text", "in_line"),
    [
        ("plain\n\ttext", "plain\n\ttext", "plain\\n\\ttext"),
        ("a\r\nb", "a\nb", "a\\r\\nb"),
        ("a\rb", "a\u240db", "a\\rb"),
        ("\x1b[2J", "\u241b[2J", "\\x1b[2J"),
        ("\x00\x7f", "\u2400\u2421", "\\x00\\x7f"),
        ("\x80\x9f", "\ufffd\ufffd", "\\x80\\x9f"),
        ("\xa0", "\\xa0", "\\xa0"),
        ("a\u200bb", "a\\u200bb", "a\\u200bb"),
        ("a\u202eb", "a\\u202eb", "a\\u202eb"),
        ("\u2800", "\\u2800", "\\u2800"),
        ("\u3164", "\\u3164", "\\u3164"),
        ("\xad", "\\xad", "\\xad"),
        ("aüЖ漢한", "aüЖ漢한", "aüЖ漢한"),
        ("\U0001f600", "\U0001f600", "\U0001f600"),
        ("\U000e0041", "\\U000e0041", "\\U000e0041"),
        ("\u2764\ufe0f", "\u2764\ufe0f", "\u2764\ufe0f"),
        ("a\ufe0f", "a\\ufe0f", "a\\ufe0f"),
        ("\ufe0f", "\\ufe0f", "\\ufe0f"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f", "\u2764\ufe0f\\ufe0f"),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3", "1\ufe0f\u20e3"),
        ("1\ufe0fx", "1\\ufe0fx", "1\\ufe0fx"),
        ("\ufe0f\u20e3", "\\ufe0f\u20e3", "\\ufe0f\u20e3"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        (
            "\u2764\ufe0f\u200d\U0001f525",
            "\u2764\ufe0f\u200d\U0001f525",
            "\u2764\ufe0f\u200d\U0001f525",
        ),
        ("\U0001f468\u200d", "\U0001f468\\u200d", "\U0001f468\\u200d"),
        ("\u200d\U0001f468", "\\u200d\U0001f468", "\\u200d\U0001f468"),
        ("a\u200db", "a\\u200db", "a\\u200db"),
        ("+\ufe0f", "+\\ufe0f", "+\\ufe0f"),
    ],
    ids=ascii,
)
def test_control_and_hidden_characters_are_escaped(text: str, in_text: str, in_line: str) -> None:
    assert (safe(text), visible(text)) == (in_text, in_line)


def test_spaces_of_any_width_in_prose_are_kept() -> None:
    assert prose("a\xa0b\u2003c\r\nd\u200be") == "a\xa0b\u2003c\nd\\u200be"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "ü"}, '{"a": "ü"}'),
        ({"a": "\u200b"}, '{"a": "\\u200b"}'),
        ("\U000e0041", '"\\udb40\\udc41"'),
        ([math.inf, -math.inf, math.nan, 1.5], "[null, null, null, 1.5]"),
        ({"ü": (math.nan, "ü")}, '{"ü": [null, "ü"]}'),
    ],
    ids=ascii,
)
def test_json_escapes_hidden_characters_and_keeps_the_value(value: Any, text: str) -> None:
    assert json_text(value) == text
    json.loads(text)


def test_displayed_json_can_be_indented() -> None:
    assert json_text({"a": [1]}, indent=1) == '{\n "a": [\n  1\n ]\n}'
    assert json_text([math.nan], indent=1) == "[\n null\n]"


def test_hidden_characters_in_encoded_json_are_escaped() -> None:
    assert escape_json('{"a":\r\n"\u200bü"}') == '{"a": \n"\\u200bü"}'
