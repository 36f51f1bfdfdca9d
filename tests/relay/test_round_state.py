"""Sealed request states, each valid for one client and one server."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.protocol import sealed_state
from fairlead.protocol.caller import ANONYMOUS, Principal, read_params_head
from fairlead.protocol.sealed_state import KeyRing
from fairlead.relay.round_state import RoundStates
from fairlead.wire import Request
from tests.support.single_exchange import exchange

QUESTION = {"resultType": "input_required", "requestState": "s1", "inputRequests": {"a": 1}}


def states() -> RoundStates:
    own = RoundStates()
    own._ring = KeyRing()
    return own


def asked(state: Any, principal: Principal) -> Any:
    params = {"name": "t", "inputResponses": {"a": 2}, "requestState": state}
    return exchange("tools/call", params, principal=principal)


def sealed_for(own: RoundStates, principal: Principal, state: str = "s1") -> str:
    answer = Raw(json.dumps({**QUESTION, "requestState": state}).encode())
    sealed = own.seal(answer, server="red", replica="red#2", principal=principal)
    assert sealed is not None
    found = json.loads(bytes(sealed))
    assert {**found, "requestState": "s1"} == QUESTION
    assert isinstance(found["requestState"], str)
    return str(found["requestState"])


@pytest.mark.parametrize("principal", ["ada", "", ANONYMOUS])
def test_opening_a_sealed_state_returns_the_original_state(principal: Principal) -> None:
    own = states()
    sealed = sealed_for(own, principal, 'ünï"1')
    opened, replica = own.open(asked(sealed, principal), "red")
    params = json.loads(bytes(opened.message.params))
    assert params == {"name": "t", "inputResponses": {"a": 2}, "requestState": 'ünï"1'}
    assert replica == "red#2"


@pytest.mark.parametrize(
    ("principal", "server", "why"),
    [
        ("eve", "red", "the state was issued to another client"),
        (ANONYMOUS, "red", "the state was issued to another client"),
        ("ada", "blue", "the state belongs to another server"),
    ],
)
def test_a_request_state_is_rejected_from_another_client_or_for_another_server(
    principal: Principal, server: str, why: str
) -> None:
    own = states()
    sealed = sealed_for(own, "ada")
    with pytest.raises(RpcError, match=why) as caught:
        own.open(asked(sealed, principal), server)
    assert caught.value.code == -32602


@pytest.mark.parametrize("state", ["", "s1", "v1.p.AAAA", "v1.p.", "v2.x.y"])
def test_a_request_state_that_was_not_sealed_here_is_rejected(state: str) -> None:
    own = states()
    with pytest.raises(RpcError, match="requestState is not valid: the state was") as caught:
        own.open(asked(state, "ada"), "red")
    assert caught.value.code == -32602
    with pytest.raises(RpcError, match="the state was modified"):
        states().open(asked(sealed_for(own, "ada"), "ada"), "red")


def test_a_request_state_whose_key_contains_escapes_is_found() -> None:
    params = Raw(rb'{"name": "t", "request\u0053tate": "s1"}')
    forged = exchange("tools/call", {}, principal="ada")
    forged.message = Request(1, "tools/call", params)
    forged.head = read_params_head(params)
    with pytest.raises(RpcError, match="requestState is not valid"):
        states().open(forged, "red")


def test_a_request_state_expires_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    own = states()
    sealed = sealed_for(own, "ada")
    now = sealed_state.time.time()
    monkeypatch.setattr(sealed_state.time, "time", lambda: now + 24 * 3600 - 2)
    own.open(asked(sealed, "ada"), "red")
    monkeypatch.setattr(sealed_state.time, "time", lambda: now + 24 * 3600 + 2)
    with pytest.raises(RpcError, match="the state has expired"):
        own.open(asked(sealed, "ada"), "red")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b'{"content":[]}',
        b'{"resultType":"input_required","inputRequests":{}}',
        b'{"text":"input_required","requestState":7}',
        b"[]",
    ],
)
def test_results_without_a_request_state_are_unchanged(answer: bytes | None) -> None:
    own = states()
    assert own.seal(answer, server="red", replica="red", principal="ada") is answer


def test_requests_without_a_request_state_are_unchanged() -> None:
    plain = exchange("tools/call", {"name": "t"}, principal="ada")
    assert states().open(plain, "red") == (plain, None)
    nothing = exchange("tools/call", principal="ada")
    assert states().open(nothing, "red") == (nothing, None)
