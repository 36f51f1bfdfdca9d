"""The choice of scopes, and requests for more of them."""

import pytest

from fairlead.auth.challenge import Challenge
from fairlead.auth.metadata import AuthorizationServer, ProtectedResource
from fairlead.auth.scopes import ScopeHistory, choose_scopes, parse_scopes

SERVER = AuthorizationServer(issuer="https://a")
OFFLINE = AuthorizationServer(issuer="https://a", scopes_supported=["offline_access"])
RESOURCE = ProtectedResource("https://h", ["https://a"], scopes_supported=["r1", "r2"])
CHALLENGE = Challenge("bearer", (("scope", "c1 c2"),))


def test_configured_scopes_are_requested_unchanged() -> None:
    assert choose_scopes(["x"], CHALLENGE, RESOURCE, OFFLINE) == ("x",)


def test_scopes_in_the_challenge_take_precedence_over_the_metadata() -> None:
    assert choose_scopes(None, CHALLENGE, RESOURCE, SERVER) == ("c1", "c2")
    assert choose_scopes(None, None, RESOURCE, SERVER) == ("r1", "r2")
    assert choose_scopes(None, None, None, SERVER) == ()


def test_offline_access_is_requested_only_if_the_server_supports_it() -> None:
    assert choose_scopes(None, CHALLENGE, None, OFFLINE) == ("c1", "c2", "offline_access")
    named = ProtectedResource("https://h", ["https://a"], ["offline_access", "r1"])
    assert choose_scopes(None, None, named, OFFLINE) == ("offline_access", "r1")
    assert choose_scopes(None, None, named, SERVER) == ("r1",)
    challenge = Challenge("bearer", (("scope", "c1 offline_access"),))
    assert choose_scopes(None, challenge, None, SERVER) == ("c1",)


def test_offline_access_is_not_the_only_scope_and_needs_a_user() -> None:
    assert choose_scopes(None, None, None, OFFLINE) == ()
    assert choose_scopes(None, CHALLENGE, None, OFFLINE, offline=False) == ("c1", "c2")


@pytest.mark.parametrize(
    ("value", "scopes"),
    [("a b a", ("a", "b")), (["a", 1, "", "b"], ("a", "b")), (None, ()), (3, ())],
)
def test_scopes_are_read_from_strings_and_lists(value: object, scopes: tuple[str, ...]) -> None:
    assert parse_scopes(value) == scopes


def test_a_step_up_requests_old_and_new_scopes_once() -> None:
    history = ScopeHistory()
    assert history.step_up(["a"], ["b"]) == ("a", "b")
    history.requested(["a", "b"], more=True)
    assert history.step_up(["b"], ["a"]) is None


def test_a_step_up_that_was_never_requested_may_be_repeated() -> None:
    history = ScopeHistory()
    for _ in range(5):
        assert history.step_up(["a"], ["b"]) == ("a", "b")


def test_the_number_of_unsuccessful_step_ups_is_limited() -> None:
    history = ScopeHistory()
    asked = []
    for number in range(5):
        asked.append(history.step_up(["a"], [f"s{number}"]))
        history.requested(asked[-1] or (), more=asked[-1] is not None)
    assert asked == [("a", "s0"), ("a", "s1"), None, None, None]


def test_a_successful_step_up_does_not_count_towards_the_limit() -> None:
    history = ScopeHistory()
    for number in range(5):
        assert history.step_up(["a"], [f"s{number}"]) == ("a", f"s{number}")
        history.requested(["a", f"s{number}"], more=True)
        history.succeeded()
    assert history.step_up(["a"], ["s0"]) is None
