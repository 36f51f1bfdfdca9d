"""Tests that the rule index skips only rules that do not match."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.policy.conditions.facts import Facts
from fairlead.policy.conditions.rule_index_hints import (
    IndexHint,
    IndexHook,
    hints_of_name,
    hints_of_value,
    most_selective,
)
from fairlead.policy.rules import RuleSet
from fairlead.protocol.caller import Caller, principal_from, read_params_head
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.wire import Request
from tests.support.examples import examples

# A small vocabulary, so that conditions often match.
words = st.sampled_from(["a", "b", "ab", "a.b", "0", "1", "*"])
plain = st.one_of(words, st.sampled_from([0, 1, 1.0, True, False, None, 2.5]))
trees = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=8,
)
paths = st.lists(words, min_size=1, max_size=3).map(".".join)
patterns = st.sampled_from(["a", "a*", "*b", "?", "[ab]", "*", "x*"])
operators = st.one_of(
    st.fixed_dictionaries({"equals": trees}),
    st.fixed_dictionaries({"not": plain}),
    st.fixed_dictionaries({"in": st.lists(trees, max_size=2)}),
    st.fixed_dictionaries({"not_in": st.lists(plain, max_size=2)}),
    st.fixed_dictionaries({"like": patterns}),
    st.fixed_dictionaries({"not_like": patterns}),
    st.fixed_dictionaries({"matches": st.sampled_from(["a", "^b", "x"])}),
    st.fixed_dictionaries({"contains": plain}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"greater": st.sampled_from([0, 1, "a"])}),
    st.fixed_dictionaries({"like": patterns, "not": plain, "exists": st.booleans()}),
    st.fixed_dictionaries({"at_most": st.sampled_from([1, 2]), "not_in": st.just([1])}),
)
tests_of_values = st.one_of(plain.filter(lambda one: one is not None), operators)
by_path = st.dictionaries(paths, tests_of_values, min_size=1, max_size=2)
leaves = st.one_of(
    st.fixed_dictionaries({"params": by_path}),
    st.fixed_dictionaries({"headers": st.dictionaries(words, patterns, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"identity": st.one_of(patterns, st.lists(patterns, min_size=1))}),
    st.fixed_dictionaries({"client": st.fixed_dictionaries({"not": words})}),
    st.fixed_dictionaries({"tool": patterns}),
    st.fixed_dictionaries({"era": st.sampled_from(["handshake", "stateless"])}),
    st.fixed_dictionaries({"size": st.fixed_dictionaries({"less": st.integers(0, 60)})}),
)
about_answers = st.one_of(
    st.fixed_dictionaries({"result": by_path}),
    st.fixed_dictionaries({"error": st.fixed_dictionaries({"code": st.sampled_from([1, 2])})}),
    st.fixed_dictionaries({"kind": st.sampled_from(["response", "error"])}),
)


def combined(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        parts,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda several: {"all": several}),
            st.lists(inner, min_size=1, max_size=3).map(lambda several: {"any": several}),
            inner.map(lambda one: {"not": one}),
            st.tuples(inner, inner).map(lambda two: {**two[0], **two[1]}),
        ),
        max_leaves=5,
    )


class Nobody:
    log_level = None
    session = SessionContext(state=SessionState.ACTIVE)


def exchange_of(
    params: dict[str, Any], headers: dict[str, str] | None = None, principal: str | None = None
) -> Exchange:
    raw = msgspec.Raw(msgspec.json.encode(params))
    caller = Caller(NEWEST_HANDSHAKE, False, principal_from(principal))
    context = TransportContext(transport_type="memory", headers=headers)
    edge: Any = Nobody()
    message, up = Request(1, "tools/call", raw), Direction.CLIENT_TO_SERVER
    return Exchange(message, caller, read_params_head(raw), up, context, edge, did=[])


def rules_of(several: list[dict[str, Any]]) -> RuleSet:
    act = {"size": {"params": 1 << 20}}
    return RuleSet.of_data(
        {"rules": [{"name": str(n), "when": one, "do": act} for n, one in enumerate(several)]}
    )


def acted(exchange: Exchange) -> list[str]:
    return [note.removeprefix("rule: ") for note in exchange.did or ()]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(combined(leaves), min_size=1, max_size=6),
    st.dictionaries(words, trees, max_size=4),
    st.one_of(st.none(), st.dictionaries(words, words, max_size=3)),
    st.one_of(st.none(), words),
)
def test_indexed_rules_have_the_same_effect_as_rules_evaluated_one_by_one(
    several: list[dict[str, Any]],
    params: dict[str, Any],
    headers: dict[str, str] | None,
    principal: str | None,
) -> None:
    rules = rules_of(several)

    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    for _ in range(2):  # the second lookup uses the cache
        exchange = exchange_of({"name": "ab", **params}, headers, principal)
        facts = Facts(exchange, lambda _: None)
        expected = [rule.name for rule in rules.rules if rule.condition.holds(facts)]
        asyncio.run(_run(rules, exchange, proceed))
        assert acted(exchange) == expected


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(combined(st.one_of(about_answers, leaves)), min_size=1, max_size=6),
    st.one_of(st.dictionaries(words, trees, max_size=4), st.sampled_from([1, 2, 3])),
)
def test_indexed_response_rules_have_the_same_effect_as_rules_evaluated_one_by_one(
    several: list[dict[str, Any]], outcome: dict[str, Any] | int
) -> None:
    rules = rules_of(several)
    answer = None if isinstance(outcome, int) else msgspec.json.encode(outcome)
    error = RpcError(outcome, "no") if isinstance(outcome, int) else None

    async def proceed(exchange: Exchange) -> Answer:
        if error is not None:
            raise error
        return answer

    exchange = exchange_of({"name": "ab", "a": {"b": 1}}, {"a": "b"}, "ab")
    before = Facts(exchange, lambda _: None)
    after = Facts(exchange, lambda _: None).answered(answer, error)
    expected = [r.name for r in rules.rules if not r.answers and r.condition.holds(before)]
    late = [r.name for r in reversed(rules.rules) if r.answers and r.condition.holds(after)]
    asyncio.run(_run(rules, exchange, proceed))
    assert [name for name in acted(exchange) if name in expected] == expected
    assert [name for name in acted(exchange) if name in late] == late
    assert len(acted(exchange)) == len(expected) + len(late)


async def _run(rules: RuleSet, exchange: Exchange, proceed: Any) -> None:
    try:
        await rules(exchange, proceed)
    except RpcError:
        pass


def test_a_thousand_response_rules_do_not_nest_a_thousand_calls() -> None:
    rules = rules_of([{"result": {"n": {"at_least": n}}} for n in range(1000)])
    exchange = exchange_of({"name": "x"})

    async def proceed(_: Exchange) -> Answer:
        return b'{"n":2}'

    asyncio.run(_run(rules, exchange, proceed))
    assert acted(exchange) == ["2", "1", "0"]


KINDS: dict[str, Any] = {
    "method": lambda n: {"method": f"custom/{n}*"},
    "tool": lambda n: {"tool": f"tool-{n}*"},
    "value": lambda n: {"params": {"arguments.text": f"text {n}"}},
    "pattern": lambda n: {"params": {"arguments.text": {"like": f"text {n}*"}}},
    "path": lambda n: {"params": {f"arguments.a{n}": {"matches": f"text {n}"}}},
    "header": lambda n: {"headers": {f"x-team-{n}": "*"}},
    "identity": lambda n: {"identity": f"user-{n}"},
    "result": lambda n: {"result": {"content.0.text": f"text {n}"}},
    "nested": lambda n: {
        "any": [
            {"all": [{"method": "tools/call"}, {"params": {"arguments.text": f"text {n}"}}]},
            {"all": [{"identity": f"user-{n}*"}, {"not": {"tool": f"tool-{n}"}}]},
        ]
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_rules_without_a_match_take_less_than_five_times_as_long_as_one(
    kind: str,
) -> None:
    params = {"name": "echo", "arguments": {"text": "The quick brown fox jumps over the lazy dog"}}
    headers = {"host": "example.com", "accept": "*/*"}

    async def proceed(_: Exchange) -> Answer:
        return b'{"content":[{"type":"text","text":"The quick brown fox"}]}'

    async def cost(rules: RuleSet) -> float:
        exchange = exchange_of(params, headers, "somebody")
        best = float("inf")
        for _ in range(30):
            start = time.process_time()
            for _ in range(20):
                await rules(exchange, proceed)
            best = min(best, time.process_time() - start)
        assert not exchange.did
        return best

    one, many = rules_of([KINDS[kind](0)]), rules_of([KINDS[kind](n) for n in range(200)])
    assert asyncio.run(cost(many)) < 5 * asyncio.run(cost(one))


EQUAL_A, THERE = IndexHint("equal", "a"), IndexHint("there")


@pytest.mark.parametrize(
    ("wanted", "hints"),
    [
        ("a", (EQUAL_A,)),
        ("a*", (IndexHint("like", "a*"),)),
        (["a", "b?"], (EQUAL_A, IndexHint("like", "b?"))),
        ({"equals": "a"}, (EQUAL_A,)),
        ({"in": ["a", "b"]}, (EQUAL_A, IndexHint("equal", "b"))),
        ({"like": "a*", "not": "ab"}, (IndexHint("like", "a*"),)),
        ({"matches": "^a"}, (THERE,)),
        ({"exists": True}, (THERE,)),
        ({"exists": False}, None),
        ({"not": "a"}, None),
    ],
)
def test_a_condition_on_a_name_has_index_hints(wanted: Any, hints: Any) -> None:
    """Without index hints, every rule would be evaluated for every message."""
    assert hints_of_name(wanted) == hints


@pytest.mark.parametrize(
    ("wanted", "hints"),
    [
        (1, (IndexHint("equal", 1),)),
        ("a*", (IndexHint("equal", "a*"),)),
        (["a", {"b": 1}], (EQUAL_A, THERE)),
        ({"greater": 3}, (THERE,)),
        ({"equals": {"b": 1}}, (THERE,)),
        ({"not_in": ["a"]}, None),
    ],
)
def test_a_condition_on_a_value_has_index_hints(wanted: Any, hints: Any) -> None:
    assert hints_of_value(wanted) == hints


def test_the_most_selective_of_several_conditions_is_indexed() -> None:
    def hook(source: str, hint: IndexHint) -> tuple[IndexHook, ...]:
        return (IndexHook(source, (), hint),)

    exact, there = hook("tool", EQUAL_A), hook("tool", THERE)
    like = hook("tool", IndexHint("like", "a*"))
    decoded = hook("params", EQUAL_A)
    assert most_selective([None, there, like, exact]) == exact
    assert most_selective([there, like]) == like
    assert most_selective([decoded, exact]) == exact
    assert most_selective([exact * 2, exact]) == exact
    assert most_selective([exact, ()]) == ()
    assert most_selective([None, None]) is None
