"""Notifications that are forwarded to a client while its request is processed."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType, structs

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import ANONYMOUS, SUBSCRIPTION_KEY, Caller, read_params_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.upstream.connection.relayed_call import (
    LEVELS,
    RelayedCall,
    RelayedParams,
    may_notify,
    params_as_decoded,
    params_of,
    with_progress_token,
    with_subscription_id,
)
from fairlead.wire import Notification, Request
from tests.support.single_exchange import exchange


class Edge(NullReplyPath):
    """A reply path that records notifications, and can block them."""

    def __init__(self) -> None:
        super().__init__(ANONYMOUS)
        self.told: list[tuple[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        await self.open.wait()
        params = notification.params
        self.told.append(
            (notification.method, json.loads(bytes(params)) if isinstance(params, Raw) else None)
        )


def call(
    params: Any = None, method: str = "tools/call", **about: Any
) -> tuple[RelayedCall, Edge, Exchange]:
    rising = about.pop("rising", False)
    asked = exchange(method, params or {}, **about)
    asked.edge = edge = Edge()
    return RelayedCall(asked, None, rising=rising), edge, asked


def note(method: str = "notifications/x", params: Any = None) -> Notification:
    return Notification(method, UNSET if params is None else Raw(json.dumps(params).encode()))


async def test_notifications_are_sent_in_order_before_the_response() -> None:
    one, edge, _ = call()
    edge.open.clear()
    for n in range(3):
        one.tell(note(params={"n": n}))
    waiting = asyncio.create_task(one.flushed())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    edge.open.set()
    async with asyncio.timeout(5):
        await waiting
    assert edge.told == [("notifications/x", {"n": n}) for n in range(3)]


@pytest.mark.parametrize(
    ("stateless", "params", "told"),
    [
        (True, {"progress": 1, "message": "m"}, {"progress": 1, "message": "m"}),
        (False, {"progress": 1, "message": "m"}, {"progress": 1}),
        (False, {"progress": 1}, {"progress": 1}),
        (False, None, None),
        (True, None, None),
    ],
)
async def test_notifications_are_converted_to_the_revision_of_the_client(
    stateless: bool, params: Any, told: Any
) -> None:
    one, edge, request = call(stateless=stateless)
    if not stateless:
        request.caller = structs.replace(request.caller, revision=Revision.V2024_11_05)
    one.tell(note("notifications/progress", params))
    await one.flushed()
    assert edge.told == [("notifications/progress", told)]


async def test_flushing_without_notifications_returns_at_once() -> None:
    one, edge, _ = call()
    await one.flushed()
    assert one.outbox is None
    assert edge.told == []


@pytest.mark.parametrize(("heard", "told"), [(True, 1), (False, 0)])
async def test_notifications_are_dropped_while_the_client_has_no_pending_request(
    heard: bool, told: int
) -> None:
    one, edge, _ = call()

    class Rounds:
        async def ask(self, exchange: Exchange) -> Raw:
            raise AssertionError

    rounds: Any = Rounds()
    rounds.heard = heard
    one.parking = rounds
    one.tell(note())
    await one.flushed()
    assert len(edge.told) == told


@pytest.mark.parametrize(
    ("method", "params", "permitted", "expected"),
    [
        ("notifications/resources/updated", {"uri": "a:1"}, {"a:1"}, True),
        ("notifications/resources/updated", {"uri": "a:1"}, {"a:2"}, False),
        ("notifications/resources/updated", {"uri": 5}, {"a:1"}, False),
        ("notifications/resources/updated", None, {"a:1"}, False),
        ("notifications/resources/list_changed", {"uri": "a:1"}, set(), True),
        ("notifications/message", None, set(), True),
    ],
)
async def test_updates_of_a_resource_are_sent_only_if_the_client_may_read_it(
    method: str, params: Any, permitted: set[str], expected: bool
) -> None:
    told = note(method, params)
    assert may_notify(told, permitted.__contains__) is expected
    one, edge, asked = call()
    asked.permits = permitted.__contains__
    one.tell(told)
    await one.flushed()
    assert bool(edge.told) is expected
    asked.permits = None
    one.tell(told)
    await one.flushed()
    assert edge.told


async def test_forwarded_progress_has_the_token_of_the_client() -> None:
    one, edge, _ = call({"_meta": {"progressToken": "mine"}})
    one.progressed(note("notifications/progress", {"progressToken": 7, "progress": 1}))
    await one.flushed()
    assert edge.told == [("notifications/progress", {"progressToken": "mine", "progress": 1})]
    other, edge, _ = call({})
    other.progressed(note("notifications/progress", {"progressToken": 7, "progress": 1}))
    await other.flushed()
    assert edge.told == []


@pytest.mark.parametrize(
    ("rising", "told"),
    [(True, [-5, 1, 2, "odd", 3]), (False, [-5, 1, 1, 2, 0.5, "odd", 3])],
)
async def test_progress_that_does_not_increase_is_dropped_after_a_repeated_request(
    rising: bool, told: list[Any]
) -> None:
    one, edge, _ = call({"_meta": {"progressToken": 1}}, rising=rising)
    for value in (-5, 1, 1, 2, 0.5, "odd", 3):
        one.progressed(note("notifications/progress", {"progress": value}))
    one.progressed(note("notifications/progress"))
    await one.flushed()
    assert [params["progress"] for _, params in edge.told if params] == told
    assert edge.told[-1] == ("notifications/progress", None)


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        (None, []),
        ("debug", LEVELS),
        ("warning", LEVELS[LEVELS.index("warning") :]),
        ("emergency", ["emergency"]),
        ("odd", LEVELS),
    ],
)
def test_a_stateless_caller_gets_logs_of_the_requested_level(
    level: str | None, wanted: list[str]
) -> None:
    one, _, asked = call()
    known = asked.caller
    asked.caller = Caller(
        known.revision,
        known.stateless,
        known.principal,
        known.capabilities,
        known.info,
        log_level=level,
    )
    assert [name for rank, name in enumerate(LEVELS) if one.wants_log(rank)] == list(wanted)


@pytest.mark.parametrize(
    ("method", "expected"), [("tools/call", True), ("prompts/get", True), ("tools/list", False)]
)
def test_a_server_may_request_input_during_calls_and_prompts_if_the_client_is_reachable(
    method: str, expected: bool
) -> None:
    one, _, _ = call(method=method)
    assert not one.may_be_asked
    rounds: Any = object()
    one.parking = rounds
    assert one.may_be_asked is expected


async def test_a_call_continues_on_the_reply_path_of_the_next_client_request() -> None:
    one, first, _ = call({"_meta": {"progressToken": "a"}})
    one.tell(note())
    await one.flushed()
    _, second, again = call({"_meta": {"progressToken": "b"}})
    one.moved_to(again)
    one.progressed(note("notifications/progress", {"progress": 1}))
    await one.flushed()
    assert len(first.told) == 1
    assert second.told == [("notifications/progress", {"progress": 1, "progressToken": "b"})]


@pytest.mark.parametrize(
    ("rising", "told"),
    [(None, [None, 0.5, 0.5, 0.2, 1]), (True, [None, 0.5, 1])],
    ids=["as it comes", "only more"],
)
async def test_progress_that_does_not_increase_is_dropped_on_request(
    rising: bool | None, told: list[Any]
) -> None:
    asked = exchange("tools/call", {"name": "x", "_meta": {"progressToken": "t"}})
    asked.edge = edge = Edge()
    one = RelayedCall(asked, None) if rising is None else RelayedCall(asked, None, rising=rising)
    for progress in (None, 0.5, 0.5, 0.2, 1):
        more = {} if progress is None else {"progress": progress}
        one.progressed(note("notifications/progress", {"progressToken": 9, **more}))
    await one.flushed()
    assert [params.get("progress") for _, params in edge.told] == told
    assert {params["progressToken"] for _, params in edge.told} == {"t"}


Members = list[tuple[str, Any]]

names = st.sampled_from(["name", "arguments", "uri", "", "other", "_meta", "näme"])
texts = st.sampled_from(["", "echo", "ä", '"', "\\", "arguments", "x" * 20])
values = st.one_of(texts, st.dictionaries(texts, texts, max_size=2), st.none(), st.integers(0, 9))
members = st.lists(st.tuples(names, values), max_size=4)


def spelled(members: Members, space: str, *, ascii: bool) -> bytes:
    """Encode members as a JSON object, in which names may occur more than once."""
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
def test_each_duplicate_member_is_sent_once_with_the_value_that_was_read(
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


@pytest.mark.parametrize("meta", ["", ',"_meta":{}'])
def test_a_member_that_differs_from_another_in_case_only_is_not_sent(meta: str) -> None:
    exchange = exchanged(b'{"name":"echo","Name":"rm","more":1,"URI":""%b}' % meta.encode())
    sent = params_of(exchange).fill(5) if meta else params_as_decoded(exchange)
    expected = {"name": "echo", "more": 1, **({"_meta": {}} if meta else {})}
    assert json.loads(bytes(sent or b"")) == expected


def test_members_whose_names_differ_only_in_case_are_not_sent() -> None:
    exchange = exchanged(b'{"Name":"rm"}')
    assert params_as_decoded(exchange) is None
    assert bytes(params_of(exchange).fill(5)) == b"{}"


def test_params_of_methods_outside_the_protocol_keep_all_members() -> None:
    exchange = exchanged(b'{"Name":"rm"}')
    message = structs.replace(exchange.message, method="custom/method")
    exchange = structs.replace(exchange, message=message)
    assert bytes(params_of(exchange).fill(5)) == b'{"Name":"rm"}'


def test_params_that_cannot_contain_duplicates_are_not_encoded_again() -> None:
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


def test_members_of_meta_are_added_and_removed_in_forwarded_params() -> None:
    given = passing({"_meta": {"a": 1, "b": 2, "progressToken": 3}})
    given.without(("a", "c"))
    given.stamp({"d": Raw(b"4")})
    assert filled(given) == {"_meta": {"b": 2, "d": 4, "progressToken": 5}}
    bare = passing({"x": 1})
    bare.without(("a",))
    assert filled(bare) == {"x": 1}
    bare.stamp({"d": Raw(b"4")})
    assert filled(bare) == {"x": 1, "_meta": {"d": 4}}


def test_params_that_cannot_be_decoded_are_rejected() -> None:
    given = RelayedParams(Raw(b"[1]"))
    given.replace("name", "x")
    with pytest.raises(RpcError, match="nested too deeply to be read") as refused:
        given.fill(5)
    assert (refused.value.code, refused.value.data) == (-32602, {"source": "proxy"})


@pytest.mark.parametrize(("alias", "name"), [(None, "git_log"), ("log", "log")])
def test_the_target_of_a_request_is_sent_under_the_name_the_server_uses(
    alias: str | None, name: str
) -> None:
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
