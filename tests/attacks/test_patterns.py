"""Text of one peer, matched against patterns of another: the time grows with the length only."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.limits import TEMPLATE_TEXT, TEMPLATE_VARIABLES, URI_TEXT
from fairlead.server.template_matching import Optional, Step, Variable, match_steps
from fairlead.server.templates import UriTemplate

QUICK = 0.25  # seconds of processor time; the attacks below took minutes


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
def test_a_template_takes_linear_time(template: str, uri: str) -> None:
    assert seconds(UriTemplate(template).match, uri) < QUICK


def test_templates_and_uris_have_a_limit() -> None:
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
def test_a_match_is_that_of_the_regular_expression(drawn: list[Any], text: str) -> None:
    """The one with the same parts, which takes the same text for each of them."""
    steps: list[Step] = []
    pattern = ""
    for number, one in enumerate(drawn):
        if isinstance(one, str):
            steps.append(one)
            pattern += re.escape(one)
            continue
        kind, without = one
        characters = f"[^{without}]" if without else "."
        if kind == "var":
            steps.append(Variable(f"v{number}", without))
            pattern += f"(?P<v{number}>{characters}+)"
        else:
            steps.append(Optional(f"v{number}", kind, without))
            pattern += f"(?P<v{number}>(?:{re.escape(kind)}{characters}*)?)"
    expected = re.fullmatch(pattern, text, re.DOTALL)
    assert match_steps(steps, text) == (None if expected is None else expected.groupdict())
