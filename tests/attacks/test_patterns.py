"""Patterns from one peer are matched against text from another in linear time."""

import importlib
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.files.formats import _COLON as colon
from fairlead.limits import TEMPLATE_TEXT, TEMPLATE_VARIABLES, URI_TEXT
from fairlead.policy.conditions.operators import InvalidTest, compare
from fairlead.policy.tool_lock.suspicious_text import find_suspicious_text
from fairlead.protocol.uri_templates.template import UriTemplate
from fairlead.protocol.uri_templates.template_matcher import (
    OptionalVariable,
    TemplateStep,
    TemplateVariable,
    match_steps,
)
from fairlead.redaction.linear_regex import LinearPattern
from fairlead.redaction.redact_messages import Redactor
from fairlead.redaction.redact_text import _OPENING as opening
from fairlead.redaction.redact_text import redact
from fairlead.wire.codec import _ANSWER as answer

QUICK = 0.25  # seconds of processor time; these attacks once took minutes


def seconds(work: Any, *arguments: Any) -> float:
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("x://a{?a}{&b}{&c}{&d}{&e}{&f}{&g}", "x://a?" + "&" * 16_000 + "#"),
        ("x://a{?a}{&b}{&c}{&d}", "x://a?&&&&&&&&&&&&&&&&&&&&&&&&&&&&&#"),
        ("x://a" + "".join(f"{{&v{n}}}" for n in range(32)), "x://a" + "&" * 16_000 + "#"),
        ("x://{a}{;b}{;c}{;d}{;e}", "x://a" + ";" * 16_000 + "/"),
        ("x://{+a}a{+b}/", "x://" + "a" * 16_000),
        ("x://{a}a{b}a", "x://" + "a" * 16_000 + "b"),
        ("x://{+a,b}/", "x://" + "," * 16_000),
    ],
)
def test_matching_a_uri_template_takes_linear_time(template: str, uri: str) -> None:
    assert seconds(UriTemplate(template).match, uri) < QUICK


def test_templates_and_uris_are_limited_in_length() -> None:
    long = "x://" + "a" * TEMPLATE_TEXT.value
    with pytest.raises(ValueError, match="longer than"):
        UriTemplate(long)
    with pytest.raises(ValueError, match="more than"):
        UriTemplate("x://" + "/".join(f"{{v{n}}}" for n in range(TEMPLATE_VARIABLES.value + 1)))
    hits = URI_TEXT.hits
    assert UriTemplate("x://{+a}").match("x://" + "a" * URI_TEXT.value) is None
    assert URI_TEXT.hits == hits + 1


LETTERS = st.text("ab/?&", max_size=12)
STEPS = st.lists(
    st.one_of(
        st.text("ab/?&", min_size=1, max_size=2),
        st.builds(lambda w: ("var", w), st.sampled_from(["", "/?", "b"])),
        st.builds(lambda f, w: (f, w), st.sampled_from("?&"), st.sampled_from(["", "a", "/"])),
    ),
    max_size=5,
)


@given(STEPS, LETTERS)
def test_a_template_matches_like_the_equivalent_regular_expression(
    drawn: list[Any], text: str
) -> None:
    """Compare the match and the variable values with an equivalent regular expression."""
    steps: list[TemplateStep] = []
    pattern = ""
    for number, one in enumerate(drawn):
        if isinstance(one, str):
            steps.append(one)
            pattern += re.escape(one)
            continue
        kind, without = one
        characters = f"[^{without}]" if without else "."
        if kind == "var":
            steps.append(TemplateVariable(f"v{number}", without))
            pattern += f"(?P<v{number}>{characters}+)"
        else:
            steps.append(OptionalVariable(f"v{number}", kind, without))
            pattern += f"(?P<v{number}>(?:{re.escape(kind)}{characters}*)?)"
    expected = re.fullmatch(pattern, text, re.DOTALL)
    assert match_steps(steps, text) == (None if expected is None else expected.groupdict())


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(x+x+)+y", "^(([a-z])+.)+[A-Z]"]
)
def test_matching_a_rule_pattern_takes_linear_time(pattern: str) -> None:
    test = compare({"matches": pattern})
    assert seconds(test, ["a" * 1_000_000 + "!"]) < QUICK
    assert seconds(Redactor(patterns=[pattern]).text, "x" * 100_000 + "!") < 4 * QUICK


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "a{2000}"])
def test_a_pattern_that_is_not_linear_is_rejected_with_a_remedy(pattern: str) -> None:
    with pytest.raises(InvalidTest, match="cannot run in linear time.*not_matches"):
        compare({"matches": pattern})
    with pytest.raises(ValueError, match="cannot run in linear time"):
        Redactor(patterns=[pattern])


ALIKE = (
    *(r"^/(etc|root)/", r"\d+", r"^\w+$", r"[\w-]+@[\w.]+", r"\s", r"[^\s]+", r"\Ba", r"a{,2}b"),
    *(r"^a$", r"a\Z", r"[]a]", r"[^]a]", r"\u0041", r"(?i)É", r"\S\D\W", r"x|y|", r"a.b"),
    *(r"[\d\s]", r"[a\-z]", r"[\b]", r"\.\*", r"(?s)a.b", r"(?m)^a$", r"\x41", r"a{2}", r"(?:ab)+"),
)


@given(st.text(st.sampled_from("aAbéÉ٣ \n\u00a0/.,-_0[]^@\x08\x1c"), max_size=8))
@pytest.mark.parametrize("pattern", ALIKE)
def test_rule_patterns_match_like_python_regular_expressions(pattern: str, text: str) -> None:
    expected = re.search(pattern, text) is not None
    if r"\B" in pattern and not text.isascii():
        return  # `\B` of our patterns considers ASCII letters only, as documented
    assert LinearPattern(pattern).matches(text) is expected


@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*b", "*[ab]*[ab]*[ab]*c", "*" + "?a*" * 10 + "b"])
def test_matching_a_glob_takes_linear_time(pattern: str) -> None:
    assert seconds(compare({"like": pattern}), ["ab" * 50_000]) < QUICK


EXPRESSIONS = [
    (module, name, value)
    for module in map(
        importlib.import_module,
        [
            *(
                "fairlead.redaction.redact_text",
                "fairlead.redaction.redact_messages",
                "fairlead.wire.codec",
            ),
            *(
                "fairlead.wire.sse",
                "fairlead.protocol.schema.validation",
                "fairlead.protocol.uri_templates.template",
            ),
            *(
                "fairlead.server.features.prompt_entry",
                "fairlead.server.schema.header_annotation",
                "fairlead.server.schema.signature",
            ),
            *(
                "fairlead.protocol.headers",
                "fairlead.gateway.search.search_index",
                "fairlead.protocol.targets.unique_names",
            ),
            *("fairlead.policy.tool_lock.suspicious_text", "fairlead.recording.journal.tool_error"),
            *("fairlead.gateway.catalog.views", "fairlead.transport.stdio.child_process"),
            *(
                "fairlead.config.files.duplicate_keys",
                "fairlead.config.files.formats",
                "fairlead.config.variables.resolve",
            ),
            *("fairlead.config.validate", "fairlead.server.context.elicitation_forms"),
        ],
    )
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
]
AT_A_PLACE = (answer, opening, colon)  # these patterns are only matched at one position
PIECES = [
    *("a", " ", '"', "\\", "\\\\", "{", "[", "=", "&", "//", ":", "bearer ", "token=", "é", "-"),
    *('"a":', "password", "://a", "x@", "\n", "\r\n", "0", "1.", "\\u", "_", "/", "%41", "<", "aA"),
    *("authorization: ", "api_", "'", ",", ".", "Could not start `", "ignore ", "before use "),
]


@pytest.mark.parametrize(
    "expression",
    [value for *_, value in EXPRESSIONS],
    ids=[f"{m.__name__}.{n}" for m, n, _ in EXPRESSIONS],
)
def test_regular_expressions_in_the_source_code_take_linear_time(
    expression: re.Pattern[Any],
) -> None:
    """Match repeated fragments of text that are long enough for quadratic time to take seconds."""
    for piece in PIECES:
        for start in ("", "token", '"', "a://"):
            text: Any = start + piece * (20_000 // len(piece)) + "\x00"
            if isinstance(expression.pattern, bytes):
                text = text.encode()
            took = seconds(expression.fullmatch, text) + seconds(expression.match, text)
            if expression not in AT_A_PLACE:
                took += seconds(lambda: sum(1 for _ in expression.finditer(text)))  # noqa: B023
            assert took < QUICK, (piece, start, took)


@pytest.mark.parametrize("piece", PIECES)
def test_redacting_repeated_fragments_takes_linear_time(piece: str) -> None:
    clean = Redactor(values=["secret-value"])
    for start in ("", "token=", '{"password": "', "a://", "Authorization: "):
        text = start + piece * (20_000 // len(piece)) + "\x00"
        assert seconds(redact, text) < QUICK, start
        assert seconds(clean.text, text) < QUICK, start
        assert seconds(clean.message, json.dumps({"text": text, "token": text}).encode()) < QUICK
        assert seconds(find_suspicious_text, {"name": "t", "description": text}) < 4 * QUICK, start
