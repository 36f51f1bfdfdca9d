"""Tests of conditions: matches, decisions by the message key, and errors."""

from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.policy.conditions.conditions import ALWAYS, Condition, compile_condition, names
from fairlead.policy.conditions.facts import ANY, Facts, MessageKey, key_of
from fairlead.protocol.envelope import Direction
from tests.support.single_exchange import DOWN, UP, exchange

CALL = {"name": "read_file", "arguments": {"path": "/etc/passwd", "n": 3}}


def compiled(raw: Any, *, answers: bool = False, strict: bool = False) -> Condition:
    mistakes: list[tuple[Any, str]] = []
    made = compile_condition(
        raw, (), lambda where, why: mistakes.append((where, why)), answers=answers, strict=strict
    )
    assert mistakes == []
    return made


def facts(asked: Exchange | None = None, **more: Any) -> Facts:
    return Facts(asked or exchange(params=CALL), lambda one: one.server, **more)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({}, True),
        ({"method": "tools/call"}, True),
        ({"method": "tools/*"}, True),
        ({"method": ["prompts/get", "tools/call"]}, True),
        ({"method": "prompts/get"}, False),
        ({"tool": "read_*"}, True),
        ({"tool": "write_*"}, False),
        ({"prompt": "read_*"}, False),
        ({"target": "read_file"}, True),
        ({"resource": "*"}, False),
        ({"kind": "request"}, True),
        ({"kind": ["notification", "request"]}, True),
        ({"kind": "notification"}, False),
        ({"direction": "to_server"}, True),
        ({"direction": "client_to_server"}, True),
        ({"direction": "to_client"}, False),
        ({"direction": ["to_client", "to_server"]}, True),
        ({"era": "stateless"}, True),
        ({"era": "handshake"}, False),
        ({"era": ["handshake", "stateless"]}, True),
        ({"params": {"arguments.path": "/etc/passwd"}}, True),
        ({"params": {"arguments": {"path": {"like": "/etc/*"}}}}, True),
        ({"params": {"arguments": {"path": {"like": "/usr/*"}}}}, False),
        ({"params": {"arguments.n": {"at_least": 3, "less": 4}}}, True),
        ({"params": {"arguments.n": 3, "name": "other"}}, False),
        ({"size": {"greater": 10}}, True),
        ({"size": {"greater": 10_000}}, False),
        ({"server": "notes"}, True),
        ({"server": "other"}, False),
        ({"identity": "somebody"}, False),
        ({"identity": {"not": "somebody"}}, True),
        ({"transport": "http"}, True),
        ({"transport": "stdio"}, False),
        ({"address": "10.*"}, True),
        ({"revision": "2026-*"}, True),
        ({"tool": "read_*", "era": "handshake"}, False),
        ({"all": [{"tool": "read_*"}, {"era": "stateless"}]}, True),
        ({"all": [{"tool": "read_*"}, {"era": "handshake"}]}, False),
        ({"any": [{"tool": "x"}, {"era": "stateless"}]}, True),
        ({"any": [{"tool": "x"}, {"era": "handshake"}]}, False),
        ({"all": {"tool": "read_*"}}, True),
        ({"not": {"tool": "read_*"}}, False),
        ({"not": {"tool": "write_*"}}, True),
        ({"not": {"not": {"tool": "read_*"}}}, True),
        ([{"tool": "read_*"}, {"era": "stateless"}], True),
        ([{"tool": "read_*"}, {"era": "handshake"}], False),
    ],
    ids=str,
)
def test_a_condition_matches_requests_by_their_properties(condition: Any, expected: bool) -> None:
    asked = exchange(params=CALL, address="10.0.0.1", server="notes")
    made = compiled(condition)
    assert made.holds(facts(asked)) is expected
    known = made.known(key_of(asked))
    assert known in (None, expected), "the decision by key alone equals the full evaluation"
    if not expected:
        return
    assert made.index_hooks(key_of(asked)) != (), "a condition that matches has index hooks"


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ({}, True),
        ({"method": "tools/call"}, True),
        ({"method": "prompts/get"}, False),
        ({"kind": "request"}, True),
        ({"kind": "notification"}, False),
        ({"direction": "to_client"}, False),
        ({"tool": "read_*"}, None),
        ({"prompt": "read_*"}, False),
        ({"target": "x"}, None),
        ({"era": "stateless"}, None),
        ({"all": [{"kind": "notification"}, {"era": "stateless"}]}, False),
        ({"all": [{"kind": "request"}, {"era": "stateless"}]}, None),
        ({"all": [{"kind": "request"}, {"method": "tools/call"}]}, True),
        ({"any": [{"kind": "request"}, {"era": "stateless"}]}, True),
        ({"any": [{"kind": "notification"}, {"era": "stateless"}]}, None),
        ({"any": [{"kind": "notification"}, {"method": "x"}]}, False),
        ({"not": {"kind": "request"}}, False),
        ({"not": {"kind": "notification"}}, True),
        ({"not": {"era": "stateless"}}, None),
    ],
    ids=str,
)
def test_conditions_on_method_kind_and_direction_are_decided_by_the_message_key(
    condition: Any, known: bool | None
) -> None:
    key = MessageKey("tools/call", Direction.CLIENT_TO_SERVER, True, ANY)
    assert compiled(condition).known(key) is known


def test_a_kind_condition_distinguishes_results_and_errors() -> None:
    failed = RpcError(-1, "no")
    response, error = (
        compiled({"kind": "response"}, answers=True),
        compiled({"kind": "error"}, answers=True),
    )
    assert (response.holds(facts(answer=b"{}")), error.holds(facts(answer=b"{}"))) == (True, False)
    assert (response.holds(facts(error=failed)), error.holds(facts(error=failed))) == (False, True)


def test_result_and_error_conditions_match_members_of_a_response() -> None:
    answered = facts(answer=b'{"content":[{"text":"secret"}]}')
    assert compiled({"result": {"content.*.text": "secret"}}, answers=True).holds(answered)
    failed = facts(error=RpcError(-5, "no", {"a": 1}))
    for wanted in ({"code": -5}, {"message": "no"}, {"data.a": 1}):
        assert compiled({"error": wanted}, answers=True).holds(failed)
    assert not compiled({"error": {"code": -5}}, answers=True).holds(answered)


def test_a_condition_matches_notifications_from_a_server() -> None:
    told = exchange(
        "notifications/resources/updated", {"uri": "file:///a"}, way=DOWN, request=False
    )
    for condition in ({"kind": "notification"}, {"direction": "to_client"}, {"resource": "file:*"}):
        assert compiled(condition).holds(facts(told))
    assert not compiled({"resource": "http:*"}).holds(facts(told))


def test_a_prompt_condition_matches_completions_of_the_prompt() -> None:
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    asked = exchange("completion/complete", params, way=UP)
    assert compiled({"prompt": "p"}).holds(facts(asked))
    assert not compiled({"resource": "p"}).holds(facts(asked))
    assert not compiled({"tool": "p"}).holds(facts(asked))


FEW = 'must be "request" or "notification" or "response" or "error"'


@pytest.mark.parametrize(
    ("raw", "where", "why"),
    [
        (1, (), 'expected a map of conditions, such as { method = "tools/call" }'),
        ([], (), "the list of conditions must not be empty"),
        ({"any": []}, ("any",), "the list of conditions must not be empty"),
        (
            {"all": [{}, 1]},
            ("all", 1),
            'expected a map of conditions, such as { method = "tools/call" }',
        ),
        ({"metod": "x"}, ("metod",), "unknown condition 'metod': did you mean 'method'?"),
        ({"kind": "odd"}, ("kind",), f"`kind`: {FEW}"),
        ({"kind": []}, ("kind",), "`kind`: the list must not be empty"),
        ({"direction": "up"}, ("direction",), None),
        ({"era": "odd"}, ("era",), '`era`: must be "handshake" or "stateless"'),
        (
            {"method": 1},
            ("method",),
            "`method`: expected a string, a list of strings or a map of operators",
        ),
        (
            {"tool": {"lik": "x"}},
            ("tool", "lik"),
            "unknown operator 'lik': did you mean 'like'?",
        ),
        (
            {"size": {"greter": 1}},
            ("size", "greter"),
            "unknown operator 'greter': did you mean 'greater'?",
        ),
        (
            {"params": 1},
            ("params",),
            'expected a map of paths to values, such as { "arguments.path" = "/etc" }',
        ),
        (
            {"params": {}},
            ("params",),
            'expected a map of paths to values, such as { "arguments.path" = "/etc" }',
        ),
        ({"params": {"a": {"equals": 1, "x": 2}}}, ("params", "a", "x"), None),
        (
            {"params": {"a": {"equal": 1}}},
            ("params", "a", "equal"),
            "unknown operator 'equal': did you mean 'equals'?",
        ),
        ({"params": {"a": {"in": 1}}}, ("params", "a"), "`a`: `in`: expected a list"),
        (
            {"headers": {"a": 1}},
            ("headers", "a"),
            "`a`: expected a string, a list of strings or a map of operators",
        ),
        ({"not": {"odd-one": 1}}, ("not", "odd-one"), None),
    ],
    ids=str,
)
def test_mistakes_in_conditions_are_reported_with_their_location(
    raw: Any, where: Any, why: str | None
) -> None:
    mistakes: list[tuple[Any, str]] = []
    made = compile_condition(raw, (), lambda *one: mistakes.append(one), answers=False)
    assert len(mistakes) == 1
    assert mistakes[0][0] == where
    if why is not None:
        assert mistakes[0][1] == why
    assert isinstance(made.holds(facts()), bool)


def test_an_empty_condition_matches_every_message() -> None:
    always = ALWAYS
    key = key_of(exchange(params=CALL))
    assert (always.known(key), always.index_hooks(key), always.holds(facts())) == (True, None, True)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"tool": "x"}, True),
        ({"server": "x"}, False),
        ({"kind": "error"}, True),
        ({"kind": ["request", "error"]}, True),
        ({"kind": "request"}, False),
        ({"all": [{"tool": "x"}]}, True),
        ({"not": {"any": [{"kind": "error"}]}}, True),
        ({"params": {"tool": 1}}, False),
        ([{"tool": "x"}], True),
        ("tool", False),
    ],
)
def test_the_keys_and_kinds_of_nested_conditions_are_found(raw: Any, expected: bool) -> None:
    assert names(raw, "tool", kinds=("error", "response")) is expected
