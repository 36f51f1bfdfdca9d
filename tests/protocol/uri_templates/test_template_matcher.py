"""Tests of matching the parsed steps of a template with a URI."""

import pytest

from fairlead.protocol.uri_templates.template_matcher import (
    OptionalVariable,
    TemplateStep,
    TemplateVariable,
    match_steps,
)

A = TemplateVariable("a", "/")
B = TemplateVariable("b", "/")
ANY = TemplateVariable("any", "")
MORE = OptionalVariable("more", "?", "#")


@pytest.mark.parametrize(
    ("steps", "uri", "found"),
    [
        ([], "", {}),
        ([], "x", None),
        (["x"], "x", {}),
        (["x"], "ax", None),
        (["x"], "xa", None),
        (["x"], "", None),
        ([A], "", None),
        ([A], "abc", {"a": "abc"}),
        ([A], "a/c", None),
        ([A], "/ac", None),
        ([A, "/", B], "a/b", {"a": "a", "b": "b"}),
        ([A, "/", B], "a/", None),
        ([A, B], "abc", {"a": "ab", "b": "c"}),
        ([A, B], "a", None),
        ([A, "b", B], "abbb", {"a": "ab", "b": "b"}),
        ([ANY, "/", B], "a/b/c", {"any": "a/b", "b": "c"}),
        (["x", MORE], "x", {"more": ""}),
        (["x", MORE], "x?", {"more": "?"}),
        (["x", MORE], "x?a", {"more": "?a"}),
        (["x", MORE], "xa", None),
        (["x", MORE], "x?a#", None),
        (["x", MORE, "#"], "x?a#", {"more": "?a"}),
        (["x", MORE, "?"], "x?", {"more": ""}),
        (["x", MORE, "?"], "x??", {"more": "?"}),
        ([A, "-", B], "-" * 12, {"a": "-" * 10, "b": "-"}),
        ([A, "--", B], "a" + "-" * 12 + "b", {"a": "a" + "-" * 10, "b": "b"}),
        ([A, "ab", B], "ab" * 12, {"a": "ab" * 10, "b": "ab"}),
        ([ANY, "x/", B], "x/" * 9 + "y", {"any": "x/" * 8, "b": "y"}),
        ([ANY, "/", B], "a/" * 7 + "b", {"any": "a/" * 6 + "a", "b": "b"}),
        ([ANY, "/", B], "a/" * 8 + "b", {"any": "a/" * 7 + "a", "b": "b"}),
        ([ANY, "/", B], "a/" * 9 + "b", {"any": "a/" * 8 + "a", "b": "b"}),
    ],
)
def test_a_template_must_match_the_whole_uri(
    steps: list[TemplateStep], uri: str, found: dict[str, str] | None
) -> None:
    assert match_steps(steps, uri) == found
