"""Parsing and building of `WWW-Authenticate` values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.auth.challenge import (
    MAX_CHALLENGES,
    Challenge,
    format_challenge,
    parse_challenges,
    pick_challenge,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("", []),
        ("Bearer", [Challenge("bearer")]),
        ('Bearer realm="a b"', [Challenge("bearer", (("realm", "a b"),))]),
        ("BEARER Scope = 'x y'", [Challenge("bearer", (("scope", "x y"),))]),
        ("Bearer error=invalid_token", [Challenge("bearer", (("error", "invalid_token"),))]),
        (r'Bearer d="say \"hi\" \\"', [Challenge("bearer", (("d", 'say "hi" \\'),))]),
        (
            'Bearer a="1", b="2", DPoP algs="ES256"',
            [
                Challenge("bearer", (("a", "1"), ("b", "2"))),
                Challenge("dpop", (("algs", "ES256"),)),
            ],
        ),
        ('Negotiate, Bearer a="1"', [Challenge("negotiate"), Challenge("bearer", (("a", "1"),))]),
        (', ,"x", Bearer', [Challenge("bearer")]),
    ],
)
def test_every_form_of_a_challenge_is_parsed(value: str | None, expected: list[Challenge]) -> None:
    assert parse_challenges(value) == expected


def test_all_values_of_a_repeated_parameter_are_kept_in_order() -> None:
    [challenge] = parse_challenges('Bearer resource_metadata="x", resource_metadata="y"')
    assert challenge.values("resource_metadata") == ["x", "y"]
    assert challenge.get("resource_metadata") == "x"
    assert challenge.get("scope") is None


def test_the_scopes_of_a_challenge_are_split_without_repetitions() -> None:
    [challenge] = parse_challenges('Bearer scope="a b  a c"')
    assert challenge.scopes == ("a", "b", "c")


def test_a_dpop_challenge_is_preferred_to_a_bearer_challenge() -> None:
    challenges = parse_challenges('Basic realm="x", Bearer a="1", DPoP b="2"')
    assert pick_challenge(challenges) == Challenge("dpop", (("b", "2"), ("a", "1")))
    assert pick_challenge(challenges[:2]) == Challenge("bearer", (("a", "1"),))
    assert pick_challenge(challenges[:1]) is None


@pytest.mark.parametrize(
    ("value", "error", "scopes"),
    [
        ('DPoP algs="ES256", Bearer error="insufficient_scope", scope="w"', 2, ("w",)),
        ('Bearer scope="a", Bearer error="insufficient_scope", scope="w"', 2, ("w",)),
        ('DPoP error="invalid_token", Bearer error="insufficient_scope", scope="w"', 2, ("w",)),
        ('Bearer error="invalid_token", DPoP error="use_dpop_nonce"', 1, ()),
        ('Bearer realm="x", Bearer error="invalid_token", scope="a"', 0, ("a",)),
        ('Basic error="insufficient_scope", Bearer scope="a"', None, ("a",)),
    ],
)
def test_the_error_and_scopes_are_read_from_all_challenges(
    value: str, error: int | None, scopes: tuple[str, ...]
) -> None:
    found = pick_challenge(parse_challenges(value))
    assert found is not None
    errors = ("invalid_token", "use_dpop_nonce", "insufficient_scope")
    assert found.error == (None if error is None else errors[error])
    assert found.scopes == scopes


def test_metadata_urls_of_all_challenges_are_kept() -> None:
    value = 'Bearer realm="x", Bearer resource_metadata="https://h/y", DPoP resource_metadata="z"'
    found = pick_challenge(parse_challenges(value))
    assert found is not None
    assert found.values("resource_metadata") == ["z", "https://h/y"]


def test_the_number_of_challenges_is_limited() -> None:
    assert len(parse_challenges("A, " * 1000)) == MAX_CHALLENGES


@given(st.text(max_size=300))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    parse_challenges(text)


_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@given(st.dictionaries(st.sampled_from(["error", "scope", "realm"]), _VALUES))
def test_a_built_challenge_is_parsed_to_the_same_parameters(params: dict[str, str]) -> None:
    assert parse_challenges(format_challenge("Bearer", params)) == [
        Challenge("bearer", tuple(params.items()))
    ]


def test_control_characters_in_a_challenge_do_not_end_the_header() -> None:
    assert format_challenge("Bearer", {"error": "a\r\nSet-Cookie: x"}) == (
        'Bearer error="a  Set-Cookie: x"'
    )
