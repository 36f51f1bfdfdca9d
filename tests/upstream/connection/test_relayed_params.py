"""Params of forwarded requests: the server receives the values that interceptors have read."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import SUBSCRIPTION_KEY, Caller, read_params_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.protocol.revisions import NEWEST
from fairlead.upstream.connection.relayed_params import (
    RelayedParams,
    params_as_decoded,
    params_of,
    with_progress_token,
    with_subscription_id,
)
from fairlead.wire import Notification, Request

Members = list[tuple[str, Any]]

names = st.sampled_from(["name", "arguments", "uri", "", "other", "_meta", "näme"])
texts = st.sampled_from(["", "echo", "ä", '"', "\\", "arguments", "x" * 20])
values = st.one_of(texts, st.dictionaries(texts, texts, max_size=2), st.none(), st.integers(0, 9))
members = st.lists(st.tuples(names, values), max_size=4)


def spelled(members: Members, space: str, *, ascii: bool) -> bytes:
    """Encode an object in which names may occur more than once."""
    parts = (
        f"{json.dumps(name, ensure_ascii=ascii)}:{space}"
        + json.dumps(held, ensure_ascii=ascii, separators=(",", ":"))
        for name, held in members
    )
    return f"{{{','.join(parts)}{space}}}".encode()


def exchanged(params: bytes) -> Exchange:
    message = Request(1, "tools/call", Raw(params))
    context = TransportContext(transport_type="memory")
    head, direction = read_params_head(message.params), Direction.CLIENT_TO_SERVER
    return Exchange(
        message,
        Caller(NEWEST, False, ANONYMOUS),
        head,
        direction,
        context,
        NullReplyPath(ANONYMOUS),
    )


@given(members, st.sampled_from(["", " "]), st.booleans())
@example([("name", "echo"), ("arguments", {"a": "1"})], "", True)
@example([("arguments", {}), ("name", "echo")], "", True)
@example([("name", "rm"), ("name", "echo"), ("arguments", {})], "", True)
@example([("name", "echo"), ("arguments", {"a": "1"}), ("arguments", {})], "", True)
@example([("name", "ä"), ("arguments", {})], "", True)
def test_every_name_is_sent_once_with_the_value_that_was_read(
    members: Members, space: str, ascii: bool
) -> None:
    params = spelled(members, space, ascii=ascii)
    sent = params_as_decoded(exchanged(params))
    read = dict(members)
    if not read or "_meta" in read:
        assert sent is None
        return
    assert sent is not None
    pairs = json.loads(bytes(sent), object_pairs_hook=list)
    assert len(pairs) == len(dict(pairs))
    assert json.loads(bytes(sent)) == read


def test_params_without_room_for_duplicates_are_not_encoded_again() -> None:
    params = b'{"name":"echo","arguments":{"text":"x"}}'
    exchange = exchanged(params)
    assert params_as_decoded(exchange) is exchange.message.params


# Params that are forwarded to another connection


def filled(given: RelayedParams, request_id: int | str = 5) -> Any:
    params = given.fill(request_id)
    return None if isinstance(params, UnsetType) else json.loads(bytes(params))


def passing(params: Any) -> RelayedParams:
    return RelayedParams(UNSET if params is None else Raw(json.dumps(params).encode()))


@pytest.mark.parametrize(
    ("params", "tracked", "sent"),
    [
        (None, False, None),
        ({}, False, {}),
        ({"a": 1}, False, {"a": 1}),
        ({"_meta": {"k": 1}}, False, {"_meta": {"k": 1}}),
        ({"_meta": {"progressToken": "t"}}, True, {"_meta": {"progressToken": 5}}),
        ({"a": 1, "_meta": {"progressToken": 7, "k": 1}}, True, None),
        ({"_meta": 7}, False, {"_meta": 7}),
    ],
)
def test_the_progress_token_of_a_forwarded_request_is_its_new_id(
    params: Any, tracked: bool, sent: Any
) -> None:
    given = passing(params)
    assert given.tracked is tracked
    if params and "a" in params and tracked:
        sent = {"a": 1, "_meta": {"k": 1, "progressToken": 5}}
    assert filled(given) == sent


def test_a_request_id_may_be_a_string() -> None:
    tracked = {"_meta": {"progressToken": 1}}
    assert filled(passing(tracked), "ü-1") == {"_meta": {"progressToken": "ü-1"}}


def test_members_of_meta_are_added_and_removed() -> None:
    given = passing({"_meta": {"a": 1, "b": 2, "progressToken": 3}})
    given.without(("a", "c"))
    given.stamp({"d": Raw(b"4")})
    assert filled(given) == {"_meta": {"b": 2, "d": 4, "progressToken": 5}}
    bare = passing({"x": 1})
    bare.without(("a",))
    assert filled(bare) == {"x": 1}
    bare.stamp({"d": Raw(b"4")})
    assert filled(bare) == {"x": 1, "_meta": {"d": 4}}


def test_params_that_cannot_be_read_are_refused() -> None:
    given = RelayedParams(Raw(b"[1]"))
    given.replace("name", "x")
    with pytest.raises(RpcError, match="nested too deeply to be read") as refused:
        given.fill(5)
    assert (refused.value.code, refused.value.data) == (-32602, {"source": "proxy"})


@pytest.mark.parametrize(("alias", "name"), [(None, "git_log"), ("log", "log")])
def test_the_target_is_sent_under_the_servers_own_name(alias: str | None, name: str) -> None:
    asked = exchanged(b'{"name":"git_log","x":1}')
    asked.alias = alias
    assert filled(params_of(asked)) == {"name": name, "x": 1}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"progressToken": 5, "progress": 1}, {"progressToken": "t", "progress": 1}),
        (None, None),
        ([1], [1]),
    ],
)
def test_progress_is_forwarded_with_the_token_of_the_caller(params: Any, told: Any) -> None:
    raw = UNSET if params is None else Raw(json.dumps(params).encode())
    note = Notification("notifications/progress", raw, {"x": Raw(b"1")})
    found = with_progress_token(note, "t")
    plain = None if isinstance(found.params, UnsetType) else json.loads(bytes(found.params))
    assert (found.method, plain, found.extra) == (note.method, told, note.extra)


ID = SUBSCRIPTION_KEY


@pytest.mark.parametrize(
    ("params", "subscription", "told"),
    [
        ({"uri": "a", "_meta": {ID: 5, "k": 1}}, 7, {"uri": "a", "_meta": {ID: 7, "k": 1}}),
        ({"uri": "a", "_meta": {ID: 5, "k": 1}}, None, {"uri": "a", "_meta": {"k": 1}}),
        ({"uri": "a", "_meta": {ID: 5}}, None, {"uri": "a"}),
        ({"_meta": {ID: 5}}, None, None),
        ({"_meta": {"k": 1}}, 7, {"_meta": {"k": 1}}),
        ({"uri": "a"}, 7, {"uri": "a"}),
        (None, 7, None),
    ],
)
def test_notifications_are_forwarded_with_the_subscription_id_of_the_client(
    params: Any, subscription: int | None, told: Any
) -> None:
    raw = UNSET if params is None else Raw(json.dumps(params).encode())
    note = Notification("notifications/resources/updated", raw, {"x": Raw(b"1")})
    found = with_subscription_id(note, subscription)
    plain = None if isinstance(found.params, UnsetType) else json.loads(bytes(found.params))
    assert (found.method, plain, found.extra) == (note.method, told, note.extra)
