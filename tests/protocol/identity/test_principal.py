"""Tests of the identity on whose behalf a request is made."""

from fairlead.protocol.identity.principal import ANONYMOUS, principal_from, principal_name


def test_anonymous_is_false_and_equals_no_name() -> None:
    assert not ANONYMOUS
    for name in ("", "anonymous"):
        assert name != ANONYMOUS
    assert len({ANONYMOUS: 1, "anonymous": 2}) == 2


def test_a_principal_is_written_and_read_back() -> None:
    for principal in (ANONYMOUS, "ada", ""):
        assert principal_from(principal_name(principal)) == principal
    assert principal_name(ANONYMOUS) is None
