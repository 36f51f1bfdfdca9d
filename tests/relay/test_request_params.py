"""Functions that read request params."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.limits import SESSION_SUBSCRIPTIONS
from fairlead.relay.request_params import (
    cursor_of,
    level_of,
    listen_request_for,
    reference_of,
    uris_of,
    wants_all,
    with_members,
)
from tests.support.single_exchange import exchange


def params_of(made: Any) -> Any:
    return json.loads(bytes(made.message.params))


@pytest.mark.parametrize(
    ("params", "cursor"),
    [(None, None), ({}, None), ({"cursor": "c"}, "c"), ({"cursor": None}, None)],
)
def test_the_cursor_is_read_from_list_params(params: Any, cursor: str | None) -> None:
    assert cursor_of(exchange("tools/list", params)) == cursor


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, False),
        ({}, False),
        ({"_meta": {"fairlead/allTools": True}}, True),
        ({"_meta": {"fairlead/allTools": False}}, False),
        ({"x": "fairlead/allTools"}, False),
        ({"_meta": {"x": "fairlead/allTools"}}, False),
    ],
)
def test_a_request_for_all_tools_is_recognized_by_the_meta_of_its_params(
    params: Any, expected: bool
) -> None:
    assert wants_all(exchange("tools/list", params)) is expected


def test_the_log_level_is_read_from_params() -> None:
    assert level_of(exchange("logging/setLevel", {"level": "debug"})) == "debug"
    assert level_of(exchange("logging/setLevel")) == ""


def test_the_referenced_prompt_or_template_is_read_from_completion_params() -> None:
    prompt = reference_of(exchange("completion/complete", {"ref": {"type": "p", "name": "x"}}))
    assert (prompt.name, prompt.uri, json.loads(bytes(prompt.raw))) == (
        "x",
        None,
        {"type": "p", "name": "x"},
    )
    template = reference_of(exchange("completion/complete", {"ref": {"uri": "u"}}))
    assert (template.name, template.uri) == (None, "u")
    nothing = reference_of(exchange("completion/complete"))
    assert (nothing.name, nothing.uri, bytes(nothing.raw)) == (None, None, b"{}")


def listen(*uris: str) -> Any:
    return exchange("subscriptions/listen", {"notifications": {"resourceSubscriptions": [*uris]}})


def test_each_resource_of_a_subscription_is_returned_once() -> None:
    assert uris_of(listen("b", "a", "b")) == ["b", "a"]
    assert uris_of(exchange("subscriptions/listen")) == []
    assert uris_of(exchange("subscriptions/listen", {"notifications": {}})) == []


def test_the_number_of_resources_in_a_subscription_is_limited() -> None:
    many = [str(number) for number in range(SESSION_SUBSCRIPTIONS.value + 1)]
    assert uris_of(listen(*many)) == many[:-1]


def test_replacing_params_members_keeps_the_other_members() -> None:
    asked = exchange("tools/call", {"name": "a", "arguments": {"x": 1}})
    asked.alias = asked.displayed = "shown"
    renamed = with_members(asked, name="b")
    assert params_of(renamed) == {"name": "b", "arguments": {"x": 1}}
    assert renamed.head.name == "b"
    assert (renamed.alias, renamed.displayed) == (None, None)
    other = with_members(asked, more=1)
    assert (params_of(other)["more"], other.displayed, other.head.name) == (1, "shown", "a")
    assert params_of(asked) == {"name": "a", "arguments": {"x": 1}}
    assert params_of(with_members(exchange("ping"), a=1)) == {"a": 1}


def test_a_filtered_listen_request_keeps_only_the_given_resources() -> None:
    asked = exchange(
        "subscriptions/listen",
        {"notifications": {"resourceSubscriptions": ["a", "b"], "toolsListChanged": True}, "k": 1},
    )
    assert params_of(listen_request_for(asked, ["b"])) == {
        "notifications": {"resourceSubscriptions": ["b"], "toolsListChanged": True},
        "k": 1,
    }
    for params in (None, {}, {"notifications": 1}, {"notifications": {"toolsListChanged": True}}):
        same = exchange("subscriptions/listen", params)
        assert listen_request_for(same, ["b"]) is same


@pytest.mark.parametrize(
    ("read", "params"),
    [
        (cursor_of, {"cursor": 1}),
        (level_of, {"level": 1}),
        (reference_of, {"ref": {"name": 1}}),
        (uris_of, {"notifications": {"resourceSubscriptions": "a"}}),
        (wants_all, {"_meta": {"fairlead/allTools": 1}}),
    ],
)
def test_invalid_request_params_are_rejected(read: Callable[[Any], Any], params: Any) -> None:
    with pytest.raises(RpcError) as refused:
        read(exchange("x", params))
    assert refused.value.code == -32602
    assert refused.value.message.startswith("Invalid params: ")
    assert refused.value.data == {"source": "proxy"}
