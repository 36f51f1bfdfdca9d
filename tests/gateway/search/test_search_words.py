"""Words of tools and queries, and texts in search results."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.gateway.search import search_index as search


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("create_issue", ["create", "issue"]),
        ("createIssue", ["create", "issue", "createissue"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("create issues", ["create", "issue"]),
        ("queries", ["query"]),
        ("ties", ["tie"]),
        ("class status analysis", ["class", "status", "analysis"]),
        ("gas", ["gas"]),
        ("cats", ["cat"]),
        ("flies", ["fly"]),
        ("pies", ["pie"]),
        ("CATS", ["cat"]),
        ("bus", ["bus"]),
        ("axis", ["axis"]),
        ("boss", ["boss"]),
        ("mimeType2Text", ["mime", "type2", "text", "mimetype2text"]),
        ("日本語text", ["日本", "本語", "語t", "te", "ex", "xt"]),
        ("日本語", ["日本", "本語"]),
        ("日", ["日"]),
        ("日 create issues", ["日", "create", "issue"]),
        ("", []),
        ("--", []),
    ],
)
def test_text_is_split_into_words_for_the_search_index(text: str, words: list[str]) -> None:
    assert list(search._words(text)) == words


def test_the_search_index_contains_names_and_descriptions_of_properties() -> None:
    schema = {
        "properties": {
            "a": {"description": "first", "properties": {"b": {}}},
            "c": {"items": {"properties": {"d": {"description": "deep"}}}},
            "e": 1,
        },
        "anyOf": [{"properties": {"f": {}}}],
    }
    texts = list(search._texts(Raw(json.dumps(schema).encode())))
    assert texts == ["a", "first", "b", "", "c", "", "d", "deep", "e", "f", ""]
    assert list(search._texts(None)) == []
    assert list(search._texts(Raw(b"[]"))) == []


def test_the_search_index_contains_schemas_to_a_depth_of_four() -> None:
    schema: Any = {}
    for name in "edcba":
        schema = {"properties": {name: schema}}
    assert [one for one in search._texts(Raw(json.dumps(schema).encode())) if one] == list("abcd")


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("a  b\nc", 10, "a b c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abcd efg", 6, "abcd…"),
        ("ab" + " " * 30 + "cd", 6, "ab"),
        ("ab" + " " * 22 + "cd", 6, "ab"),
        ("ab" + " " * 21 + "cd", 6, "ab c"),
    ],
)
def test_a_description_is_shortened_to_one_line(text: str, most: int, short: str) -> None:
    assert search._short(text, most) == short
    assert len(search._short("x" * 500)) == 240


def test_the_error_for_an_unknown_tool_truncates_its_name() -> None:
    answer = json.loads(search.not_found_result("x" * 101))
    assert answer["isError"] is True
    assert answer["content"][0]["text"] == (
        f"unknown tool {'x' * 100!r}. Use search_tools to find a tool."
    )
