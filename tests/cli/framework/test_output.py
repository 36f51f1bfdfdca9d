"""Tests of the escaping and formatting of untrusted text for the terminal."""

from typing import Any

import pytest

from fairlead.cli.framework.output import blocks, brief_error, format_size, safe


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "words"}, "words"),
        ({"type": "text", "text": ""}, ""),
        ({"type": "image", "mimeType": "image/png", "data": "AA=="}, "[image: image/png, 1 byte]"),
        (
            {"type": "audio", "mimeType": "audio/wav", "data": "A" * 4000},
            "[audio: audio/wav, 3.0 kB]",
        ),
        ({"type": "image"}, "[image: ]"),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}},
            "[resource: a:b, 3 bytes]",
        ),
        ({"type": "resource"}, "[resource: ]"),
        (
            {"type": "resource_link", "uri": "a:b", "name": "n", "size": 5},
            "[link: a:b, n, 5 bytes]",
        ),
        ({"type": "hologram"}, "[hologram: unknown content type, 24 bytes of JSON]"),
    ],
)
def test_a_content_block_is_shown_as_text_or_as_a_one_line_summary(
    block: dict[str, Any], shown: str
) -> None:
    assert list(blocks({"content": [block]})) == [shown]


def test_structured_content_is_shown_only_if_there_is_no_text() -> None:
    structured = {"structuredContent": {"a": 1}}
    text = {"type": "text", "text": "words"}
    assert list(blocks({"content": [text], **structured})) == ["words"]
    assert list(blocks({"content": [], **structured})) == ['{\n  "a": 1\n}']
    assert list(blocks({"content": [{"type": "text", "text": ""}], **structured})) == [
        '{\n  "a": 1\n}'
    ]
    image = {"type": "image", "mimeType": "image/png", "data": ""}
    assert len(list(blocks({"content": [image], **structured}))) == 2


def test_invalid_tool_results_are_shown_without_an_exception() -> None:
    assert list(blocks({})) == []
    assert list(blocks({"content": None})) == []
    assert list(blocks({"content": ["words", 5]})) == []


def test_a_size_in_bytes_is_formatted_with_a_unit() -> None:
    assert [format_size(n) for n in (0, 1, 999, 1000, 1_500_000, 10_005_200_000)] == [
        "0 bytes",
        "1 byte",
        "999 bytes",
        "1.0 kB",
        "1.5 MB",
        "10.0 GB",
    ]


def test_displayed_text_keeps_line_breaks_and_tabs() -> None:
    assert safe("a\tb\r\nc\x1b[0m\x9b\x7f") == "a\tb\nc␛[0m\ufffd␡"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("no such host", "no such host"),
        ("exited. Last lines on stderr:\n  | a\n  | ImportError: x\n", "exited: ImportError: x"),
        ("exited: ImportError: x\nImportError: x", "exited: ImportError: x"),
        ("", ""),
    ],
)
def test_a_brief_error_ends_with_the_last_line_of_stderr(error: str, shown: str) -> None:
    assert brief_error(error) == shown
