"""Tests of redacting secrets in messages, at every position and in every spelling."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.redaction.redact_messages import Redactor
from tests.support.examples import examples

SECRET = "hunter2-hunter2"


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize(
    "message",
    [
        {"params": {"arguments": {"password": SECRET}}},
        {"params": {"arguments": {"deep": [{"Authorization": f"Basic {SECRET}"}]}}},
        {"result": {"structuredContent": {"apiKey": SECRET, "client_secret": [SECRET]}}},
        {"result": {"content": [{"type": "text", "text": f"Cookie: sid={SECRET}"}]}},
        {"result": {"content": [{"type": "text", "text": f'{{"token": "{SECRET}"}}'}]}},
        {"error": {"code": 1, "message": f"cannot log in with Bearer {SECRET}"}},
        {"params": {"uri": f"https://me:{SECRET}@example.com/x"}},
        {"params": {"uri": f"https://example.com/x?a=1&access_token={SECRET}&b=2"}},
        {"params": {"headers": {"X-Private-Key": SECRET}}},
        {"params": {"credentials": {"user": "u", "word": SECRET}}},
        {"params": {"properties": {"password": {"value": SECRET}}}},
        {"params": {"properties": {"password": {"type": "string", "default": SECRET}}}},
    ],
)
def test_a_secret_is_redacted_in_every_part_of_a_message(message: dict[str, Any]) -> None:
    plain = json.dumps(message).encode()
    slashes = plain.replace(b"/", b"\\/")
    letters = plain.replace(b"o", b"\\u006f").replace(b"e", b"\\u0065")
    for raw in (plain, slashes, letters):
        clean = Redactor().message(raw)
        assert SECRET not in json.dumps(json.loads(clean)), clean
        assert Redactor().message(clean) is clean, "redacting a second time changed the message"


@pytest.mark.covers("OBS-05")
def test_progress_tokens_token_limits_and_cursors_are_not_redacted() -> None:
    raw = b'{"params":{"_meta":{"progressToken":"abc"},"maxTokens":7},"result":{"nextCursor":"x"}}'
    assert Redactor().message(raw) is raw


def test_a_message_without_secrets_is_returned_unchanged() -> None:
    raw = b'{ "params" : {"n": 1.50, "big": 123456789012345678901234567890, "text": "\xc3\xa4"} }'
    assert Redactor().message(raw) is raw
    beside = raw.replace(b'"text"', b'"token": "x", "text"')
    clean = Redactor().message(beside)
    assert b'"n":1.50' in clean
    assert b'"big":123456789012345678901234567890' in clean


@pytest.mark.covers("OBS-05")
def test_secret_names_patterns_and_the_longest_text_are_configurable() -> None:
    redactor = Redactor(names=["Pin"], keep=["token"], patterns=[r"\b\d{16}\b"], longest=10)
    message = {"pin": "1234", "token": "fine", "text": "4111111111111111", "long": "x" * 20}
    assert json.loads(redactor.message(json.dumps(message).encode())) == {
        "pin": "[REDACTED]",
        "token": "fine",
        "text": "[REDACTED]",
        "long": "xxxxxxxxxx… (20 characters)",
    }
    with pytest.raises(ValueError, match="is not a regular expression"):
        Redactor(patterns=["("])


@given(st.text(min_size=6, max_size=20), st.booleans())
def test_a_known_value_is_found_in_any_escaping(secret: str, ascii: bool) -> None:
    # The text "[REDACTED]" must not contain the secret.
    secret = f"<{secret}>"
    raw = json.dumps({"a": [f"before {secret} after"]}, ensure_ascii=ascii)
    clean = Redactor(values=[secret]).message(raw.encode("utf-8", "replace"))
    try:
        raw.encode()
    except UnicodeEncodeError:
        return
    assert json.loads(clean) == {"a": ["before [REDACTED] after"]} or secret not in str(
        json.loads(clean)
    )


def test_a_schema_for_a_password_is_kept_without_defaults_and_examples() -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "description": "Yours.", "default": SECRET},
            "api_key": {"anyOf": [{"type": "string", "examples": [SECRET]}, {"type": "null"}]},
            "city": {"type": "string"},
        },
        "required": ["password"],
    }
    clean = json.loads(Redactor().message(json.dumps({"inputSchema": schema}).encode()))
    assert clean["inputSchema"] == {
        "type": "object",
        "properties": {
            "password": {"type": "string", "description": "Yours."},
            "api_key": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "city": {"type": "string"},
        },
        "required": ["password"],
    }


def test_secrets_in_invalid_or_deep_json_are_removed() -> None:
    assert SECRET.encode() not in Redactor().message(f"password={SECRET} {{".encode())
    deep = b'{"a":' * 20000 + f'"token={SECRET}"'.encode() + b"}" * 20000
    assert SECRET.encode() not in Redactor().message(deep)
    nested = b"[" * 900 + f'{{"token":"{SECRET}"}}'.encode() + b"]" * 900
    clean = Redactor().message(nested)
    assert SECRET.encode() not in clean
    msgspec.json.decode(clean)


def test_a_redactor_that_follows_another_redactor_also_redacts_its_values() -> None:
    known, own = Redactor(values=["first-value"]), Redactor(longest=40)
    assert own.follow(known) is own
    known.learn(["second-value"])
    own.learn(["third-value"])
    assert own.text("first-value second-value third-value") == " ".join(["[REDACTED]"] * 3)
    assert known.message(b'"third-value"') == b'"third-value"'


def test_a_forgotten_value_is_kept_only_by_followers_that_know_it_from_elsewhere() -> None:
    known = Redactor(values=["first-value", "second-value", "third-value"])
    own, both = Redactor().follow(known), Redactor(values=["first-value"]).follow(known)
    own.learn(["second-value"])
    known.forget(["first-value", "second-value"])
    text = "first-value second-value third-value"
    assert known.text(text) == "first-value second-value [REDACTED]"
    assert own.text(text) == "first-value [REDACTED] [REDACTED]"
    assert both.text(text) == "[REDACTED] second-value [REDACTED]"


# The quick check of the bytes must not accept a message that decoding would change.


# Significant words, parts of them, surrounding characters,
# and letters that are equal when case is ignored.
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
    """Return the value in one of the spellings that JSON allows."""
    text = json.dumps(value, ensure_ascii=escapes == "ascii")
    if escapes == "slashes":
        text = text.replace("/", "\\/")
    if escapes == "letters":
        text = text.replace("o", "\\u006f").replace("K", "\\u004B")
    return text.encode("utf-8", "replace")


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("kind", REDACTORS)
@settings(max_examples=examples(400), deadline=None)
@given(value=values, escapes=st.sampled_from(["no", "ascii", "slashes", "letters"]))
def test_the_quick_check_skips_decoding_only_for_messages_without_secrets(
    kind: str, value: Any, escapes: str
) -> None:
    redactor = REDACTORS[kind]
    raw = spelled(value, escapes)
    if redactor.message(raw) is raw:
        assert redactor._looked_into(raw) is raw
    else:
        assert redactor.message(raw) == redactor._looked_into(raw)


@pytest.mark.covers("OBS-05")
@settings(max_examples=examples(400), deadline=None)
@given(part=st.dictionaries(cased, values, max_size=3), around=st.tuples(cased, values, cased))
def test_the_redaction_of_a_message_does_not_depend_on_the_previous_message(
    part: Any, around: tuple[Any, ...]
) -> None:
    redactor = Redactor()
    before, beside, behind = around
    raw = json.dumps(part).encode()
    whole = json.dumps({before: part, behind: [beside, json.dumps(part)[1:]]}).encode()
    redactor.frame(whole)
    found = redactor.message(raw)
    redactor.frame(b"[]")  # clears the cached frame
    assert redactor.message(raw) == found


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("name", ["paſſword", "toKen", "COOKİE", "authorızation", "apıKey"])
def test_secret_names_with_letters_that_fold_to_ascii_are_recognised(name: str) -> None:
    raw = json.dumps({name: "hunter2-hunter2"}, ensure_ascii=False).encode()
    assert b"hunter2" not in Redactor().message(raw)


@pytest.mark.parametrize(
    "harmless",
    [
        {"_meta": {"progressToken": 7}, "maxTokens": 5, "max_tokens": 6, "nextCursor": "x"},
        {"keyword": "a word, a key and a phrase", "mail": "me@example.com"},
        {"text": 'line\nline\t\\ "quoted"', "url": "https://example.com/a@b"},
    ],
)
def test_messages_without_suspicious_words_are_not_decoded(harmless: dict[str, Any]) -> None:
    redactor = Redactor(names=["pin"], values=["hunter2-hunter2"])
    redactor._looked_into = None  # type: ignore[assignment, method-assign]  # would fail
    raw = json.dumps(harmless).encode()
    assert redactor.message(raw) is raw
