"""Tests of the identity on whose behalf a request is made."""

from fairlead.protocol.identity.principal import ANONYMOUS, principal_from, principal_name


def test_anonymous_is_falsy_and_differs_from_every_name() -> None:
    assert not ANONYMOUS
    for name in ("", "anonymous"):
        assert name != ANONYMOUS
    assert len({ANONYMOUS: 1, "anonymous": 2}) == 2


def test_a_principal_survives_conversion_to_a_name_and_back() -> None:
    for principal in (ANONYMOUS, "ada", ""):
        assert principal_from(principal_name(principal)) == principal
    assert principal_name(ANONYMOUS) is None
