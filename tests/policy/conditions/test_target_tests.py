"""Tests of conditions on targets, which are strict in allow rules and loose in deny rules."""

from typing import Any

import pytest

from fairlead.policy.conditions.operators import InvalidTest
from fairlead.policy.conditions.target_tests import server_test, target_test
from fairlead.protocol.targets.targets import Target


def tool(name: str, **more: Any) -> Target:
    return Target("tool", name, name, **more)


PLAIN, UPPER = tool("read"), tool("READ")


@pytest.mark.parametrize(
    ("wanted", "strict", "plain", "upper"),
    [
        ("read", False, True, True),
        ("read", True, True, False),
        (["x", "read"], True, True, False),
        ({"equals": "read"}, False, True, True),
        ({"equals": "read"}, True, True, False),
        ({"equals": "r*"}, False, False, False),
        ({"equals": 1}, False, False, False),
        ({"in": ["read", "x", 1]}, True, True, False),
        ({"in": ["r*"]}, True, False, False),
        ({"like": "r*"}, False, True, True),
        ({"like": "r*"}, True, True, False),
        ({"not": "read"}, False, False, True),
        ({"not": "read"}, True, False, False),
        ({"not_in": ["read"]}, False, False, True),
        ({"not_like": "r*"}, True, False, False),
        ({"matches": "^r"}, False, True, True),
        ({"matches": "^r"}, True, True, False),
        ({"not_matches": "^r"}, False, False, True),
        ({"contains": "EA"}, False, True, True),
        ({"contains": "ea"}, True, True, False),
        ({"exists": True}, False, True, True),
        ({"exists": False}, False, False, False),
        ({"like": "r*", "not": "read"}, False, False, True),
        ({"like": "r*", "contains": "ad"}, True, True, False),
    ],
    ids=str,
)
def test_deny_rules_ignore_case_and_allow_rules_require_the_exact_name(
    wanted: Any, strict: bool, plain: bool, upper: bool
) -> None:
    test = target_test(wanted, strict=strict)
    assert (test((PLAIN,)), test((UPPER,))) == (plain, upper)


@pytest.mark.parametrize(("strict", "both"), [(False, True), (True, False)])
def test_a_deny_rule_matches_any_target_and_an_allow_rule_requires_all(
    strict: bool, both: bool
) -> None:
    test = target_test("read", strict=strict)
    assert test((PLAIN, tool("write"))) is both
    assert test((PLAIN, PLAIN)) is True
    assert test(()) is False
    other = target_test({"contains": "rea"}, strict=strict)
    assert other((PLAIN, tool("write"))) is both


def test_negating_a_target_test_switches_between_strict_and_loose_matching() -> None:
    several = (PLAIN, tool("write"))
    assert target_test({"not": "read"}, strict=False)(several) is True
    assert target_test({"not": "read"}, strict=True)(several) is False


def test_deny_rules_match_an_unclear_target_and_allow_rules_do_not() -> None:
    unclear = (tool("x", unclear=True),)
    assert target_test("read", strict=False)(unclear) is True
    assert target_test("x", strict=True)(unclear) is False
    assert target_test({"contains": "x"}, strict=True)(unclear) is False


@pytest.mark.parametrize("wanted", [1, [], {"odd": 1}, {}])
def test_invalid_target_and_server_tests_are_rejected(wanted: Any) -> None:
    with pytest.raises(InvalidTest):
        target_test(wanted, strict=False)
    with pytest.raises(InvalidTest):
        server_test(wanted, strict=False)


@pytest.mark.parametrize(
    ("servers", "loose", "strict"),
    [
        (("a",), True, True),
        (("a", "b"), True, False),
        (("b",), False, False),
        ((), False, False),
    ],
)
def test_a_strict_server_test_requires_that_all_servers_match(
    servers: tuple[str, ...], loose: bool, strict: bool
) -> None:
    assert server_test("a", strict=False)(servers) is loose
    assert server_test("a", strict=True)(servers) is strict


def test_a_message_without_a_server_matches_a_negated_server_test() -> None:
    assert server_test({"not": "a"}, strict=True)(()) is True
