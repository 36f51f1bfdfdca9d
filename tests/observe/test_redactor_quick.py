"""The quick look at a message's bytes never lets through what a thorough one would take out."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.observe.redactor import Redactor

# Words that mean something, pieces of them, what stands around them, and letters that only count
# as others where case does not matter.
WORDS = (
    *("authorization", "cookie", "token", "secret", "passwd", "password", "passphrase"),
    *("apikey", "api_key", "api-key", "credential", "privatekey", "private_key", "private-key"),
    *("progressToken", "maxTokens", "max_tokens", "nextCursor", "Bearer abcdefghijk", "bearer "),
    *("https://me:word@host/x", "http://me@host", "://", "@", "/", ":", "=", " ", "--", '"', "\\"),
    *("pwd", "PWD", "basic ", "Basic dXNlcjpwYXNz", "root:hunter2@", "db:5432/x", "%3D", "\\n"),
    *("ghp_", "sk-", "sk-ant-", "npm_", "xoxb-", "glpat-", "AKIA", "AIza", "eyJ", ".eyJ", "."),
    *("IOSFODNN7EXAMPLE", "0123456789abcdefghijklmnopqrstuvwxyz", "-----BEGIN PRIVATE KEY-----"),
    *("pass", "word", "key", "to", "ken", "K", "ſ", "ı", "İ", "ä", "\n", "pin", "hunter2-hunter2"),
)
pieces = st.one_of(st.sampled_from(WORDS), st.text(max_size=4))
texts = st.lists(pieces, max_size=5).map("".join)
cased = st.tuples(texts, st.sampled_from(["as it is", "upper", "title", "swapped"])).map(
    lambda both: {
        "as it is": both[0],
        "upper": both[0].upper(),
        "title": both[0].title(),
        "swapped": both[0].swapcase(),
    }[both[1]]
)
values = st.recursive(
    st.one_of(cased, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(cased, inner, max_size=3)),
    max_leaves=6,
)
REDACTORS = {
    "plain": Redactor(),
    "names": Redactor(names=["PIN", 'a"b', "line\nbreak"], keep=["token"]),
    "other letters": Redactor(names=["Schlüssel"]),
    "values": Redactor(values=["hunter2-hunter2", 'quo"ted\\', "umläut-wort"]),
    "longest": Redactor(longest=12),
}


def spelled(value: Any, escapes: str) -> bytes:
    """The same value, written in the ways that JSON allows."""
    text = json.dumps(value, ensure_ascii=escapes == "ascii")
    if escapes == "slashes":
        text = text.replace("/", "\\/")
    if escapes == "letters":
        text = text.replace("o", "\\u006f").replace("K", "\\u004B")
    return text.encode("utf-8", "replace")


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("kind", REDACTORS)
@settings(max_examples=400, deadline=None)
@given(value=values, escapes=st.sampled_from(["no", "ascii", "slashes", "letters"]))
def test_what_is_passed_unread_has_nothing_to_hide(kind: str, value: Any, escapes: str) -> None:
    redactor = REDACTORS[kind]
    raw = spelled(value, escapes)
    if redactor.message(raw) is raw:
        assert redactor._looked_into(raw) is raw
    else:
        assert redactor.message(raw) == redactor._looked_into(raw)


@pytest.mark.covers("OBS-05")
@settings(max_examples=400, deadline=None)
@given(part=st.dictionaries(cased, values, max_size=3), around=st.tuples(cased, values, cased))
def test_a_part_of_what_was_looked_at_hides_nothing(part: Any, around: tuple[Any, ...]) -> None:
    redactor = Redactor()
    before, beside, behind = around
    raw = json.dumps(part).encode()
    whole = json.dumps({before: part, behind: [beside, json.dumps(part)[1:]]}).encode()
    redactor.frame(whole)
    found = redactor.message(raw)
    redactor.frame(b"[]")  # so that the whole is forgotten
    assert redactor.message(raw) == found


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("name", ["paſſword", "toKen", "COOKİE", "authorızation", "apıKey"])
def test_letters_that_only_look_like_others_are_no_way_around(name: str) -> None:
    raw = json.dumps({name: "hunter2-hunter2"}, ensure_ascii=False).encode()
    assert b"hunter2" not in Redactor().message(raw)


@pytest.mark.parametrize(
    "harmless",
    [
        {"_meta": {"progressToken": 7}, "maxTokens": 5, "max_tokens": 6, "nextCursor": "x"},
        {"keyword": "a word, a key, a phrase, a bear", "mail": "me@example.com"},
        {"text": 'line\nline\t\\ "quoted"', "url": "https://example.com/a@b"},
    ],
)
def test_most_messages_are_never_opened(harmless: dict[str, Any]) -> None:
    redactor = Redactor(names=["pin"], values=["hunter2-hunter2"])
    redactor._looked_into = None  # type: ignore[assignment, method-assign]  # would fail
    raw = json.dumps(harmless).encode()
    assert redactor.message(raw) is raw
