"""Tests of sealed state: encryption, detection of modifications, and expiry."""

import base64
import time

import pytest

from fairlead.protocol.sealed_state import KEYS_VARIABLE, BadSeal, KeyRing

ONE, TWO = bytes(32), bytes(31) + b"1"
GONE = "^the state was not created by this server, or its key was removed$"
CHANGED = "^the state was modified$"


def test_sealed_bytes_can_be_opened_with_any_key_of_the_ring() -> None:
    ring = KeyRing({"a": ONE, "b": TWO})
    sealed = ring.seal(b"content", ttl=60)
    assert sealed.startswith("v1.a.")
    assert "=" not in sealed
    assert ring.open(sealed) == b"content"
    assert KeyRing({"b": TWO, "a": ONE}).open(sealed) == b"content", "all keys open"
    assert ring.seal(b"content", ttl=60) != sealed


def test_a_seal_is_bound_to_the_name_of_its_key() -> None:
    sealed = KeyRing({"a": ONE}).seal(b"content", ttl=60)
    renamed = sealed.replace("v1.a.", "v1.b.")
    with pytest.raises(BadSeal, match=CHANGED):
        KeyRing({"b": ONE}).open(renamed)


@pytest.mark.parametrize("token", ["", "v1", "v1.a", "v2.a.AAAA", "v1.x.AAAA", "a.v1.AAAA"])
def test_tokens_that_are_not_sealed_state_are_refused(token: str) -> None:
    with pytest.raises(BadSeal, match=f"{GONE}|{CHANGED}"):
        KeyRing({"a": ONE}).open(token)


def test_sealed_state_is_rejected_if_it_was_modified_or_sealed_with_another_key() -> None:
    sealed = KeyRing({"a": ONE}).seal(b"content", ttl=60)
    with pytest.raises(BadSeal, match=CHANGED):
        KeyRing({"a": TWO}).open(sealed)
    with pytest.raises(BadSeal, match=GONE):
        KeyRing({"b": ONE}).open(sealed)
    flipped = sealed[:20] + ("A" if sealed[20] != "A" else "B") + sealed[21:]
    for wrong in (flipped, sealed[:-4], sealed + "!", "v1.a.", "v1.a.AAAA"):
        with pytest.raises(BadSeal, match=CHANGED):
            KeyRing({"a": ONE}).open(wrong)


@pytest.mark.parametrize(("later", "fits"), [(60, True), (60.5, False), (61, False)])
def test_sealed_state_is_rejected_after_its_time_to_live(
    monkeypatch: pytest.MonkeyPatch, later: float, fits: bool
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    ring = KeyRing({"a": ONE})
    sealed = ring.seal(b"content", ttl=60)
    now[0] += later
    if fits:
        assert ring.open(sealed) == b"content"
    else:
        with pytest.raises(BadSeal, match="^the state has expired$"):
            ring.open(sealed)


@pytest.mark.parametrize("keys", [{}, {"a": bytes(31)}, {"a": ONE, "b": bytes(33)}])
def test_sealing_keys_must_have_32_bytes(keys: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="^each key of a key ring must have 32 bytes$"):
        KeyRing(keys)


def test_sealing_keys_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    own, other = KeyRing.from_environment(), KeyRing.from_environment()
    with pytest.raises(BadSeal):
        other.open(own.seal(b"x", ttl=60))
    text = [base64.b64encode(key).decode() for key in (ONE, TWO)]
    monkeypatch.setenv(KEYS_VARIABLE, f"a:{text[0]}, b:{text[1]}")
    assert KeyRing({"a": ONE}).open(KeyRing.from_environment().seal(b"x", ttl=60)) == b"x"
    for wrong in ("a", f":{text[0]}", f"a.b:{text[0]}", "a:!", f"a:{text[0]},b"):
        monkeypatch.setenv(KEYS_VARIABLE, wrong)
        with pytest.raises(
            ValueError, match="must be a list of name:key, each key 32 bytes in base64$"
        ):
            KeyRing.from_environment()
