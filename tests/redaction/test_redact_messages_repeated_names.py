"""Tests of detecting repeated member names in JSON objects, in any spelling."""

import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.redaction.redact_messages import repeats_a_name

texts = st.sampled_from(["a", "b", ":", '":', "\\u003a", "ü", "", '\\"', "a:b"])
leaves = st.one_of(texts, st.integers(0, 9), st.none(), st.just(1.5))


class Pairs(list[Any]):
    """The members of an object in which names may repeat."""


values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(texts, inner), max_size=3).map(Pairs)
    ),
    max_leaves=8,
)


def text_of(text: str, how: str) -> str:
    if how == "numbers":
        return '"' + "".join(f"\\u{ord(sign):04x}" for sign in text) + '"'
    if how == "capitals":
        return '"' + "".join(f"\\u{ord(sign):04X}" for sign in text) + '"'
    return json.dumps(text, ensure_ascii=how == "ascii")


def spelled(value: Any, how: str, space: str) -> str:
    if isinstance(value, Pairs):
        inner = (f"{text_of(k, how)}{space}:{space}{spelled(v, how, space)}" for k, v in value)
        return "{" + f"{space},".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelled(one, how, space) for one in value) + "]"
    return text_of(value, how) if isinstance(value, str) else json.dumps(value)


def has_one(value: Any) -> bool:
    if isinstance(value, Pairs):
        return len(dict(value)) < len(value) or any(has_one(held) for _, held in value)
    return isinstance(value, list) and any(has_one(one) for one in value)


hows = st.sampled_from(["ascii", "plain", "numbers", "capitals"])


@given(values, hows, st.sampled_from(["", " ", "\n\t"]))
@example(Pairs([("a", ":"), ("a", 1)]), "plain", "")
@example(Pairs([(":", 1), ("a", 1), ("a", 1)]), "numbers", "")
@example(Pairs([(":", 1), ("a", 1), ("a", 1)]), "capitals", "")
def test_repeated_member_names_of_an_object_are_detected_in_any_spelling(
    value: Any, how: str, space: str
) -> None:
    raw = spelled(value, how, space).encode()
    assert repeats_a_name(raw, msgspec.json.decode(raw)) is has_one(value)
