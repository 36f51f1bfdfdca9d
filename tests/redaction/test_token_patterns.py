"""Tests of token patterns, which search texts with many possible token starts in one pass."""

import pytest

from fairlead.redaction.token_patterns import may_hold_token

MANY = b"-_JA" * 200
TOKENS = [
    b"ghp_" + b"a" * 36,
    b"github_pat_" + b"a" * 40,
    b"glpat-" + b"a" * 20,
    b"sk-" + b"a" * 48,
    b"sk-ant-" + b"a" * 40,
    b"sk_live_" + b"a" * 24,
    b"xoxb-" + b"1" * 24,
    b"xapp-1-" + b"A" * 24,
    b"AKIA" + b"A" * 16,
    b"AIza" + b"a" * 35,
    b"npm_" + b"a" * 36,
    b"pypi-AgEIcHlwaS5vcmc" + b"a" * 40,
    b"hf_" + b"a" * 34,
    b"sbp_" + b"a" * 40,
    b"sntrys_" + b"a" * 40,
    b"figd_" + b"a" * 40,
    b"ntn_" + b"a" * 46,
    b"lin_api_" + b"a" * 40,
    b"dop_v1_" + b"a" * 64,
    b"tvly-" + b"a" * 32,
    b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    b"-----BEGIN RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:8].decode())
def test_every_kind_of_token_is_recognised(token: bytes) -> None:
    assert may_hold_token(b"a " + token + b" b")
    assert may_hold_token(MANY + b" " + token + b" " + MANY)


def test_prefixes_without_a_token_are_not_recognised_as_tokens() -> None:
    assert not may_hold_token(MANY)
    assert not may_hold_token(b"sk-ghp_AKIAxoxb-pwd=" * 500)
    assert not may_hold_token(b"1-" * 5000)
