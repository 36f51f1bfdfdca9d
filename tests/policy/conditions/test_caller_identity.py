"""Conditions on the principal of a message."""

from typing import Any

import pytest

from fairlead.policy.conditions.conditions import compile_condition
from fairlead.policy.conditions.facts import Facts
from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.protocol.identity.token_principal import TokenPrincipal
from tests.support.single_exchange import exchange

TOKEN = TokenPrincipal(
    issuer="https://a.example",
    subject="ann",
    client="app",
    scopes=frozenset({"read", "list"}),
    claims={"groups": ["ops", "dev"], "org": {"name": "acme"}},
    role="staff",
)


def holds(raw: Any, principal: Principal) -> bool:
    mistakes: list[str] = []
    condition = compile_condition(raw, (), lambda _, why: mistakes.append(why), answers=False)
    assert mistakes == []
    return condition.holds(Facts(exchange(principal=principal), lambda one: one.server))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"identity": "staff"}, True),
        ({"identity": "oauth:https://a.example ann app"}, True),
        ({"identity": "ann"}, False),
        ({"identity": {"not": "staff"}}, False),
        ({"issuer": "https://a.example"}, True),
        ({"issuer": "https://b.example"}, False),
        ({"subject": ["ann", "bob"]}, True),
        ({"scope": "read"}, True),
        ({"scope": "write"}, False),
        ({"not": {"scope": "write"}}, True),
        ({"claim": {"groups": "dev"}}, True),
        ({"claim": {"groups": "admins"}}, False),
        ({"claim": {"org.name": "acme"}}, True),
        ({"claim": {"org": {"name": {"like": "ac*"}}}}, True),
        ({"claim": {"email": {"exists": False}}}, True),
    ],
)
def test_conditions_can_test_the_claims_of_an_access_token(condition: Any, expected: bool) -> None:
    assert holds(condition, TOKEN) is expected


@pytest.mark.parametrize("principal", ["staff", "ann", ANONYMOUS])
@pytest.mark.parametrize(
    "condition",
    [
        {"issuer": "*"},
        {"subject": "*"},
        {"scope": "*"},
        {"claim": {"groups": {"exists": True}}},
        {"identity": "oauth:*"},
    ],
)
def test_principals_without_an_access_token_have_no_token_claims(
    principal: Principal, condition: Any
) -> None:
    assert not holds(condition, principal)
