"""Tests of `plain_json`, which replaces comments and trailing commas with spaces."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.files.formats import plain_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BETWEEN = st.sampled_from(["", " ", "\n", '// it\'s, "so" }\n', "/* [,] */", "/*\n// */", "\t"])


def dressed(value: Any, draw: Any) -> str:
    """Return a value as JSON with comments and trailing commas wherever they are allowed."""

    def gap() -> str:
        return str(draw(BETWEEN))

    if isinstance(value, list | dict):
        if isinstance(value, list):
            items = [dressed(item, draw) for item in value]
        else:
            items = [
                f"{json.dumps(key)}{gap()}:{gap()}{dressed(item, draw)}"
                for key, item in value.items()
            ]
        comma = gap() + "," if items and draw(st.booleans()) else ""
        opening, closing = "[]" if isinstance(value, list) else "{}"
        return opening + gap() + f"{gap()},{gap()}".join(items) + comma + gap() + closing
    return json.dumps(value, ensure_ascii=bool(draw(st.booleans())))


@given(st.data(), VALUES)
def test_removing_comments_from_json_keeps_its_values(data: st.DataObject, value: Any) -> None:
    text = dressed(value, data.draw)
    plain = plain_json(text)
    assert json.loads(plain) == value
    assert len(plain) == len(text)
    assert [i for i, c in enumerate(plain) if c == "\n"] == [
        i for i, c in enumerate(text) if c == "\n"
    ]


@given(VALUES)
def test_json_without_comments_is_returned_unchanged(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assert plain_json(text) == text


@given(st.text(alphabet='{}[],:"\\/*\n a1'))
def test_blanking_comments_keeps_the_length_and_lines_of_any_text(text: str) -> None:
    plain = plain_json(text)
    assert len(plain) == len(text)
    assert plain.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "http://x/*y*/", }', {"a": "http://x/*y*/"}),
        ('["\\"//", 1,]', ['"//', 1]),
        ("[1, // one\n 2 /* two */ , ]", [1, 2]),
        ('{"a": [1,],}', {"a": [1]}),
        ("[1] // the end", [1]),
        ('["a,]"]', ["a,]"]),
        ("[/**/]", []),
    ],
)
def test_comments_and_trailing_commas_in_json_are_blanked(text: str, value: Any) -> None:
    assert json.loads(plain_json(text)) == value


def test_blanking_comments_takes_linear_time() -> None:
    for text in ('"' + "\\" * 200_000, "/*" * 100_000, "[" + "," * 200_000, "/" * 200_001):
        assert len(plain_json(text)) == len(text)
