"""What makes a parked request the same one, and how its questions are passed on."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.protocol.json_edit import members_of
from fairlead.relay.bridge import parked_calls as parking
from tests.support.single_exchange import DOWN, exchange


def members(value: Any) -> dict[str, Raw]:
    found = members_of(json.dumps(value).encode())
    assert found is not None
    return found


def digest(value: Any, method: str = "tools/call") -> bytes:
    return parking._digest(method, None if value is None else members(value))


def test_a_request_is_the_same_in_each_round() -> None:
    first = digest({"name": "a", "arguments": {"x": 1, "y": 2}})
    assert digest({"arguments": {"y": 2, "x": 1}, "name": "a"}) == first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 2}, "_meta": {"k": 1}}) == first
    again = {"name": "a", "arguments": {"x": 1, "y": 2}, "requestState": "s", "inputResponses": {}}
    assert digest(again) == first
    assert digest({"name": "b", "arguments": {"x": 1, "y": 2}}) != first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 3}}) != first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 2}}, "prompts/get") != first
    assert digest(None) == digest({})


@pytest.mark.parametrize(
    ("params", "question"),
    [
        (None, {"method": "elicitation/create"}),
        ({}, {"method": "elicitation/create", "params": {}}),
        (
            {"message": "m", "task": {}, "elicitationId": "e"},
            {"method": "elicitation/create", "params": {"message": "m"}},
        ),
        (
            {"message": "m", "_meta": {"progressToken": 1}},
            {"method": "elicitation/create", "params": {"message": "m"}},
        ),
        (
            {"_meta": {"progressToken": 1, "k": 2}},
            {"method": "elicitation/create", "params": {"_meta": {"k": 2}}},
        ),
    ],
)
def test_a_question_as_a_stateless_client_is_asked_it(params: Any, question: Any) -> None:
    asked = exchange("elicitation/create", params, way=DOWN)
    assert json.loads(bytes(parking._embedded(asked))) == question


@pytest.mark.parametrize(
    ("method", "params", "mode"),
    [
        ("elicitation/create", {"mode": "url"}, "url"),
        ("elicitation/create", {"mode": 1}, None),
        ("elicitation/create", None, None),
        ("sampling/createMessage", {"mode": "url"}, None),
    ],
)
def test_the_mode_of_an_elicitation(method: str, params: Any, mode: str | None) -> None:
    assert parking._mode(exchange(method, params, way=DOWN)) == mode


@pytest.mark.parametrize(
    ("responses", "action"),
    [
        (None, None),
        ({}, None),
        ({"q": {"action": "accept"}}, None),
        ({"q": 1}, None),
        ({"q": {"action": "decline"}}, "decline"),
        ({"p": {"action": "accept"}, "q": {"action": "cancel"}}, "cancel"),
    ],
)
def test_a_page_that_was_not_visited(responses: Any, action: str | None) -> None:
    given = members({} if responses is None else {"inputResponses": responses})
    if action is None:
        parking._check_visited(given)
        return
    with pytest.raises(RpcError) as refused:
        parking._check_visited(given)
    assert (refused.value.code, refused.value.message) == (
        -32603,
        f"The server needs a page to be visited; the user: {action}",
    )
