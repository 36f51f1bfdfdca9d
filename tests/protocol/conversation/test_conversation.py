import json
import re
import sys
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET, Raw

from fairlead.errors import LocalProtocolError, RemoteProtocolError
from fairlead.limits import DECLARATION_BYTES
from fairlead.protocol.caller import ANONYMOUS, Caller, Meta, ParamsHead
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.conversation.conversation_events import (
    ConversationEvent,
    NotificationReceived,
    ProgressReceived,
    RequestCancelled,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    UnmatchedMessage,
)
from fairlead.protocol.envelope import SessionContext, SessionState
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.wire import (
    Decoder,
    Failure,
    LineSplitter,
    Message,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    failure,
    to_json,
)
from tests.support.examples import examples

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
STATELESS_META: dict[str, Any] = {VERSION: NEWEST.value, CAPABILITIES: {}}

THEM = {"name": "them", "version": "1"}
US = Identity({"name": "us", "version": "2"}, {"tools": {}})


def raw(value: Any) -> Raw:
    return Raw(to_json(value))


def introduction(
    request_id: RequestId = 0, version: str = "2025-11-25", **capabilities: Any
) -> Request:
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": THEM}
    return Request(request_id, "initialize", raw(params))


def stateless(request_id: RequestId, method: str = "tools/list", **meta: Any) -> Request:
    return Request(request_id, method, raw({"_meta": {**STATELESS_META, **meta}}))


def cancellation(request_id: Any, **more: Any) -> Notification:
    return Notification("notifications/cancelled", raw({"requestId": request_id, **more}))


def progress(token: Any) -> Notification:
    return Notification("notifications/progress", raw({"progressToken": token, "progress": 1}))


INITIALIZED = Notification("notifications/initialized")


def server(version: str = "2025-11-25", **capabilities: Any) -> Conversation:
    """Return a server whose client has completed the handshake."""
    us = Conversation(ConversationRole.SERVER, US, principal=ANONYMOUS)
    assert isinstance(us.receive(introduction(0, version, **capabilities)), RequestReceived)
    assert us.mark_answered(0)
    assert us.receive(INITIALIZED) == NotificationReceived(INITIALIZED)
    assert us.state is SessionState.ACTIVE
    return us


def client(revision: Revision = NEWEST_HANDSHAKE) -> Conversation:
    """Return an active client that has sent no request."""
    us = Conversation(ConversationRole.CLIENT, US, principal=ANONYMOUS)
    us.set_agreement(Agreement(revision=revision))
    if revision.handshake:
        us.notification("notifications/initialized")
    assert us.state is SessionState.ACTIVE
    return us


def refusal(event: ConversationEvent) -> tuple[RequestId | None, int]:
    assert isinstance(event, RequestRejected)
    return event.answer.id, event.answer.code


def asked(event: ConversationEvent) -> Request:
    assert isinstance(event, RequestReceived)
    return event.message


def strayed(event: ConversationEvent) -> Message:
    assert isinstance(event, UnmatchedMessage)
    return event.message


# The handshake, at the server.


@pytest.mark.covers("PRO-01", "PRO-07")
def test_a_handshake_received_in_one_chunk_is_applied_line_by_line() -> None:
    us, decoder = Conversation(ConversationRole.SERVER, principal=ANONYMOUS), Decoder()
    call = Request(1, "tools/call", raw({"name": "echo"}))
    chunk = b"".join(encode(m) + b"\n" for m in (introduction(roots={}), INITIALIZED, call))
    events, states = [], []
    for line in LineSplitter().feed(chunk):
        assert isinstance(line, bytes)
        events.append(us.receive(decoder.decode(line)))  # type: ignore[arg-type]
        states.append(us.state)
    caller = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS, b'{"roots":{}}', to_json(THEM))
    assert events == [
        RequestReceived(introduction(roots={}), caller, ParamsHead()),
        NotificationReceived(INITIALIZED),
        RequestReceived(call, caller, ParamsHead(name="echo")),
    ]
    assert states == [SessionState.INITIALIZING, SessionState.ACTIVE, SessionState.ACTIVE]


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_server_agrees_to_the_requested_revision(revision: Revision) -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    event = us.receive(introduction(0, revision.value))
    assert isinstance(event, RequestReceived)
    assert event.caller.revision is revision
    assert us.agreement == Agreement(revision=revision)


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "1.0"])
def test_the_server_answers_unsupported_versions_with_its_newest_handshake_revision(
    version: str,
) -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    event = us.receive(introduction(0, version))
    assert isinstance(event, RequestReceived)
    assert event.caller.revision is NEWEST_HANDSHAKE


def test_requests_before_the_handshake_are_refused_with_a_list_of_supported_versions() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    event = us.receive(Request(1, "tools/list"))
    assert refusal(event) == (1, -32602)
    assert isinstance(event, RequestRejected)
    assert all(revision.value in event.answer.message for revision in Revision)
    assert us.state is SessionState.UNINITIALIZED
    assert not us.mark_answered(1)


@pytest.mark.covers("PRO-01")
def test_a_ping_is_accepted_before_the_handshake() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    event = us.receive(Request("p", "ping"))
    assert event == RequestReceived(
        Request("p", "ping"), Caller(NEWEST_HANDSHAKE, False, ANONYMOUS), ParamsHead()
    )
    assert us.mark_answered("p")


def test_requests_without_a_handshake_are_served_with_the_assumed_revision() -> None:
    us = Conversation(ConversationRole.SERVER, assume=Revision.V2025_03_26, principal=ANONYMOUS)
    event = us.receive(Request(1, "tools/list"))
    assert event == RequestReceived(
        Request(1, "tools/list"), Caller(Revision.V2025_03_26, False, ANONYMOUS), ParamsHead()
    )
    assert asked(us.receive(introduction(2, "2024-11-05"))) == introduction(2, "2024-11-05")
    assert us.agreement == Agreement(revision=Revision.V2024_11_05)


def test_requests_between_initialize_and_initialized_are_served() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    us.receive(introduction())
    assert asked(us.receive(Request(1, "tools/list"))) == Request(1, "tools/list")
    assert us.state is SessionState.INITIALIZING


@pytest.mark.parametrize(
    "params",
    [
        UNSET,
        Raw(b"{}"),
        Raw(b'{"protocolVersion":5}'),
        Raw(b'{"protocolVersion":null,"capabilities":{}}'),
    ],
)
def test_a_malformed_initialize_is_rejected_and_may_be_sent_again(params: Any) -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    assert refusal(us.receive(Request(1, "initialize", params))) == (1, -32602)
    assert us.state is SessionState.UNINITIALIZED
    assert asked(us.receive(introduction(1))) == introduction(1)


def test_a_second_initialize_is_rejected_and_has_no_effect() -> None:
    us = server("2025-06-18", roots={})
    before = us.session
    assert refusal(us.receive(introduction(5, "2024-11-05"))) == (5, -32600)
    assert us.session == before
    assert not us.mark_answered(5)


def test_initialized_without_initialize_does_not_activate_the_session() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    assert us.receive(INITIALIZED) == NotificationReceived(INITIALIZED)
    assert us.state is SessionState.UNINITIALIZED


# The handshake, at the client.


@pytest.mark.covers("PRO-01")
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "resources/read", "x/y"])
def test_a_client_sends_only_handshake_requests_before_the_handshake(method: str) -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    with pytest.raises(LocalProtocolError) as caught:
        us.request(method)
    assert caught.value.code == -32600
    opening = [us.request(m).method for m in ("server/discover", "initialize", "ping")]
    assert opening == ["server/discover", "initialize", "ping"]
    us.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    with pytest.raises(LocalProtocolError):
        us.request(method)
    us.notification("notifications/initialized")
    assert us.request(method) == Request(4, method)


def test_an_ungated_client_may_send_any_request_before_the_handshake() -> None:
    us = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    assert us.request("tools/list") == Request(1, "tools/list")


@pytest.mark.covers("PRO-01", "PRO-07")
def test_a_client_becomes_active_when_it_sends_initialized() -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    request = us.request("initialize", {"protocolVersion": "2025-11-25"})
    assert us.state is SessionState.UNINITIALIZED
    assert us.receive(Success(request.id, Raw(b"{}"))) == ResponseReceived(Success(1, Raw(b"{}")))
    us.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    assert us.state is SessionState.INITIALIZING
    assert us.notification("notifications/initialized") == INITIALIZED
    assert us.state is SessionState.ACTIVE


@pytest.mark.covers("PRO-07")
def test_a_stateless_agreement_activates_the_client() -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    us.set_agreement(Agreement(revision=NEWEST))
    assert us.state is SessionState.ACTIVE
    assert us.stateless


@pytest.mark.covers("PRO-07")
def test_initialized_activates_only_clients_that_are_ungated_or_in_a_handshake() -> None:
    early, ours = (
        Conversation(ConversationRole.CLIENT, principal=ANONYMOUS),
        Conversation(ConversationRole.SERVER, principal=ANONYMOUS),
    )
    early.notification("notifications/initialized")
    ours.notification("notifications/initialized")
    assert (early.state, ours.state) == (SessionState.UNINITIALIZED,) * 2
    by_hand = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    by_hand.notification("notifications/initialized")
    assert by_hand.state is SessionState.ACTIVE


def test_a_server_may_ping_during_initialize_and_right_after_its_response() -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    ping = Request("p", "ping")
    assert strayed(us.receive(ping)) == ping  # the client has not sent a request yet
    initialize = us.request("initialize")
    assert us.receive(ping) == RequestReceived(
        ping, Caller(NEWEST_HANDSHAKE, False, ANONYMOUS), ParamsHead()
    )
    assert us.mark_answered("p")
    assert isinstance(us.receive(Success(initialize.id, Raw(b"{}"))), ResponseReceived)
    # The client has not processed the response to initialize yet.
    assert asked(us.receive(ping)) == ping
    assert strayed(us.receive(Request("r", "roots/list"))) == Request("r", "roots/list")


# Requests from the peer.


@pytest.mark.covers("RPC-09", "RPC-10")
def test_the_id_of_a_pending_request_cannot_be_reused() -> None:
    us = server()
    assert asked(us.receive(Request(1, "ping"))).id == 1
    assert refusal(us.receive(Request(1, "tools/list"))) == (1, -32600)
    assert asked(us.receive(Request("1", "ping"))).id == "1"
    assert us.mark_answered(1)
    assert not us.mark_answered(1)
    assert us.mark_answered("1")
    assert asked(us.receive(Request(1, "ping"))).id == 1


@pytest.mark.covers("PRO-18")
def test_equal_ids_of_both_sides_do_not_collide() -> None:
    us = server(roots={})
    ours = us.request("roots/list")
    assert ours.id == 1
    assert asked(us.receive(Request(1, "tools/call"))).id == 1
    assert us.receive(Success(1, Raw(b"{}"))) == ResponseReceived(Success(1, Raw(b"{}")))
    assert us.mark_answered(1)


@pytest.mark.covers("PRO-18")
def test_pending_requests_in_both_directions_may_end_in_any_order() -> None:
    us = server(roots={})
    ours = [us.request("roots/list").id for _ in range(5)]
    theirs = [asked(us.receive(Request(n, "tools/list"))).id for n in range(1, 6)]
    assert ours == theirs == [1, 2, 3, 4, 5]
    for n in (3, 1, 5, 2, 4):
        assert us.receive(Success(n, Raw(b"{}"))) == ResponseReceived(Success(n, Raw(b"{}")))
        assert us.mark_answered(n)
    assert us.closed() == ()


def test_a_deeply_nested_request_is_accepted_from_a_deeper_stack() -> None:
    us, decoder = server(), Decoder()

    def deeper(frames: int, message: Message) -> ConversationEvent:
        return us.receive(message) if frames == 0 else deeper(frames - 1, message)

    read = 0
    for levels in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        deep = b"[" * levels + b"]" * levels
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{"a":%b}}' % (levels, deep)
        try:
            message = decoder.decode(frame)
        except RemoteProtocolError:
            break
        read += 1
        assert asked(deeper(20, message)).id == levels  # type: ignore[arg-type]
    assert read


# Both eras on one connection.


@pytest.mark.covers("PRO-20")
def test_a_stateless_request_neither_needs_nor_performs_a_handshake() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    request = stateless(1, progressToken="t")
    meta = Meta("t", NEWEST.value, Raw(b"{}"))
    assert us.receive(request) == RequestReceived(
        request, Caller(NEWEST, True, ANONYMOUS), ParamsHead(meta)
    )
    assert (us.state, us.peer) == (SessionState.UNINITIALIZED, None)
    assert refusal(us.receive(Request(2, "tools/list"))) == (2, -32602)


@pytest.mark.covers("PRO-20")
def test_requests_of_both_eras_may_alternate() -> None:
    us = server("2025-06-18")
    eras = []
    for request in (stateless(1), Request(2, "tools/list"), stateless(3), Request(4, "ping")):
        event = us.receive(request)
        assert isinstance(event, RequestReceived)
        eras.append((event.caller.revision, event.caller.stateless))
    old, new = (Revision.V2025_06_18, False), (NEWEST, True)
    assert eras == [new, old, new, old]
    assert us.session.protocol_version == "2025-06-18"


@pytest.mark.covers("PRO-20", "RPC-11")
def test_a_stateless_request_with_incomplete_metadata_is_refused() -> None:
    us = server()
    half = Request(1, "tools/list", raw({"_meta": {VERSION: "2026-07-28"}}))
    assert refusal(us.receive(half)) == (1, -32602)
    old = us.receive(stateless(2, **{VERSION: "2025-11-25"}))
    assert refusal(old) == (2, -32022)
    assert isinstance(old, RequestRejected)
    data = json.loads(bytes(old.answer.error))["data"]
    assert data["requested"] == "2025-11-25"
    assert NEWEST.value in data["supported"]
    assert not us.mark_answered(1)
    assert not us.mark_answered(2)


def test_initialize_with_stateless_metadata_performs_no_handshake() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    event = us.receive(stateless(1, "initialize"))
    assert isinstance(event, RequestReceived)
    assert event.caller.stateless
    assert us.state is SessionState.UNINITIALIZED


def test_a_stateless_request_with_the_id_of_initialize_can_be_cancelled() -> None:
    us = server()
    assert asked(us.receive(stateless(0))).id == 0
    assert us.receive(cancellation(0)) == RequestCancelled(0, "", cancellation(0))


# Requests sent by this side.


@pytest.mark.covers("RPC-09")
def test_request_ids_are_integers_from_1_and_never_reused() -> None:
    us = client()
    first = us.request("tools/list")
    us.receive(Success(first.id, Raw(b"{}")))
    second = us.request("tools/list")
    us.abandon(second.id, "bored")
    with pytest.raises(TypeError):
        us.request("tools/call", {"name": object()})
    third = us.request("tools/list")
    assert (first.id, second.id) == (1, 2)
    assert third.id in (3, 4)


@pytest.mark.covers("RPC-09")
def test_string_ids_consist_of_a_random_part_a_time_and_a_number() -> None:
    ones = [
        Conversation(ConversationRole.CLIENT, id_format="string", principal=ANONYMOUS)
        for _ in range(2)
    ]
    ids = [us.request("ping").id for us in ones for _ in range(50)]
    assert len(set(ids)) == 100
    assert all(isinstance(id_, str) for id_ in ids)
    assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]+-[0-9]+", str(id_)) for id_ in ids)


def test_a_request_that_cannot_be_encoded_is_not_pending() -> None:
    us = client()
    with pytest.raises(TypeError):
        us.request("tools/call", {"name": object()})
    with pytest.raises(LocalProtocolError):
        us.request("tools/call", {"_meta": 5}, track=True)
    assert us.closed() == ()


@pytest.mark.covers("PRO-20")
def test_requests_contain_the_metadata_of_their_era() -> None:
    stamp = {**STATELESS_META, CAPABILITIES: {"tools": {}}}
    stamp["io.modelcontextprotocol/clientInfo"] = {"name": "us", "version": "2"}

    def sent(us: Conversation, method: str, **options: Any) -> Any:
        params = us.request(method, {"a": 1}, **options).params
        assert isinstance(params, Raw)
        return json.loads(bytes(params))

    assert sent(client(NEWEST), "tools/call") == {"a": 1, "_meta": stamp}
    assert sent(client(NEWEST), "tools/call", track=True) == {
        "a": 1,
        "_meta": {"progressToken": 1, **stamp},
    }
    assert sent(
        Conversation(ConversationRole.CLIENT, US, principal=ANONYMOUS), "server/discover"
    ) == {
        "a": 1,
        "_meta": stamp,
    }
    assert sent(Conversation(ConversationRole.CLIENT, US, principal=ANONYMOUS), "initialize") == {
        "a": 1
    }
    assert sent(client(), "tools/call") == {"a": 1}
    assert sent(client(), "tools/call", track=True) == {"a": 1, "_meta": {"progressToken": 1}}


def test_a_server_sends_only_requests_that_its_client_declared() -> None:
    us = server(roots={}, elicitation={})
    assert us.request("roots/list") == Request(1, "roots/list")
    assert us.request("elicitation/create") == Request(2, "elicitation/create")
    assert us.request("ping") == Request(3, "ping")
    assert us.request("x/own") == Request(4, "x/own")
    with pytest.raises(LocalProtocolError, match=r"sampling.*them did not declare") as caught:
        us.request("sampling/createMessage")
    assert caught.value.code == -32601


def test_a_server_sends_only_requests_that_exist_in_the_revision() -> None:
    us = server("2025-03-26", elicitation={})
    with pytest.raises(LocalProtocolError, match="not part of 2025-03-26") as caught:
        us.request("elicitation/create")
    assert caught.value.code == -32601


def test_a_server_sends_no_requests_before_the_handshake() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    us.receive(stateless(1))
    for method in ("roots/list", "ping"):
        with pytest.raises(LocalProtocolError) as caught:
            us.request(method)
        assert caught.value.code == -32601
    us.receive(introduction(2, roots={}))
    assert us.request("ping") == Request(1, "ping")
    with pytest.raises(LocalProtocolError):
        us.request("roots/list")  # not before `initialized`


# Responses.


@pytest.mark.covers("RPC-12")
def test_a_second_response_to_a_request_is_unmatched() -> None:
    us = client()
    answer = Success(us.request("tools/list").id, Raw(b"{}"))
    assert us.receive(answer) == ResponseReceived(answer)
    assert strayed(us.receive(answer)) == answer
    assert strayed(us.receive(failure(answer.id, -1, "late"))) == failure(answer.id, -1, "late")


@pytest.mark.covers("RPC-10", "RPC-12")
@pytest.mark.parametrize("request_id", ["1", 0, 2, -1, "", 10**30])
def test_a_response_with_an_unknown_id_is_unmatched(request_id: RequestId) -> None:
    us = client()
    assert us.request("tools/list").id == 1
    answer = Success(request_id, Raw(b"{}"))
    assert strayed(us.receive(answer)) == answer
    assert us.receive(Success(1, Raw(b"{}"))) == ResponseReceived(Success(1, Raw(b"{}")))


@pytest.mark.covers("RPC-12")
def test_a_response_to_an_abandoned_request_is_unmatched() -> None:
    us = client()
    request = us.request("tools/call")
    assert us.abandon(request.id, "timeout") == Notification(
        "notifications/cancelled", raw({"requestId": 1, "reason": "timeout"})
    )
    assert us.abandon(request.id, "timeout") is None
    assert isinstance(us.receive(Success(request.id, Raw(b"{}"))), UnmatchedMessage)


@pytest.mark.parametrize("absent", [True, False])
def test_an_error_without_an_id_is_unmatched(absent: bool) -> None:
    us = client()
    us.request("tools/list")
    answer = failure(None, -32700, "?", absent_id=absent)
    assert strayed(us.receive(answer)) == answer
    assert us.closed() == (1,)


@pytest.mark.parametrize("method", ["tools/call", "resources/read", "tasks/cancel", "ping"])
def test_a_request_without_an_id_is_unmatched(method: str) -> None:
    message = Notification(method, raw({"name": "erase"}))
    for us in (server(), client(), Conversation(ConversationRole.SERVER, principal=ANONYMOUS)):
        assert strayed(us.receive(message)) == message


# Cancellation.


def test_a_request_that_the_peer_cancelled_gets_no_response() -> None:
    us = server()
    us.receive(Request(1, "tools/call"))
    bored = cancellation(1, reason="bored")
    assert us.receive(bored) == RequestCancelled(1, "bored", bored)
    assert not us.mark_answered(1)
    assert isinstance(us.receive(cancellation(1)), UnmatchedMessage)


def test_cancellations_of_unknown_or_completed_requests_are_unmatched() -> None:
    us = server()
    us.receive(Request(1, "tools/call"))
    us.receive(Request(2, "tools/call"))
    assert us.mark_answered(2)
    for request_id in (2, 3, "1", None, 1.0, True, [1], {}):
        message = cancellation(request_id)
        assert strayed(us.receive(message)) == message
    assert us.mark_answered(1)


@pytest.mark.parametrize("params", [UNSET, Raw(b"{}"), Raw(b'{"requestId":1,"reason":5}')])
def test_malformed_cancellations_are_unmatched(params: Any) -> None:
    us = server()
    us.receive(Request(1, "tools/call"))
    message = Notification("notifications/cancelled", params)
    assert strayed(us.receive(message)) == message
    assert us.mark_answered(1)


def test_an_initialize_request_cannot_be_cancelled() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    us.receive(introduction(0))
    assert isinstance(us.receive(cancellation(0)), UnmatchedMessage)
    assert us.mark_answered(0)
    them = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    assert them.abandon(them.request("initialize").id, "timeout") is None
    assert them.closed() == ()


@pytest.mark.covers("PRO-18")
def test_a_client_accepts_the_cancellation_of_a_request_with_the_id_of_initialize() -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    assert us.request("initialize").id == 1
    us.receive(Success(1, Raw(b"{}")))
    us.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    us.notification("notifications/initialized")
    assert asked(us.receive(Request(1, "sampling/createMessage"))).id == 1
    assert us.receive(cancellation(1)) == RequestCancelled(1, "", cancellation(1))


@pytest.mark.covers("PRO-18")
def test_a_server_may_cancel_its_own_request_with_the_id_of_initialize() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    us.receive(introduction(1, roots={}))
    us.mark_answered(1)
    us.receive(INITIALIZED)
    assert us.request("roots/list").id == 1
    assert us.abandon(1, "timeout") == Notification(
        "notifications/cancelled", raw({"requestId": 1, "reason": "timeout"})
    )


@pytest.mark.covers("PRO-18")
def test_a_late_cancellation_does_not_affect_a_request_of_this_side_with_the_same_id() -> None:
    us = server(roots={})
    assert us.request("roots/list").id == 1
    assert strayed(us.receive(cancellation(1))) == cancellation(1)
    assert isinstance(us.receive(Success(1, Raw(b"{}"))), ResponseReceived)


def test_a_stateless_server_ends_a_subscription_by_cancelling_it() -> None:
    us = client(NEWEST)
    listen = us.request("subscriptions/listen")
    assert us.receive(cancellation(listen.id)) == NotificationReceived(cancellation(listen.id))
    assert isinstance(us.receive(cancellation(99)), UnmatchedMessage)


# Progress.


@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
def test_progress_is_matched_with_a_pending_request(revision: Revision) -> None:
    us = client(revision)
    request = us.request("tools/call", track=True)
    assert us.receive(progress(1)) == ProgressReceived(1, progress(1))
    for token in (2, "1", None, 1.0, True, [1]):
        assert strayed(us.receive(progress(token))) == progress(token)
    us.receive(Success(request.id, Raw(b"{}")))
    assert isinstance(us.receive(progress(1)), UnmatchedMessage)


def test_a_server_accepts_progress_for_its_requests() -> None:
    us = server(sampling={})
    us.request("sampling/createMessage", track=True)
    assert us.receive(progress(1)) == ProgressReceived(1, progress(1))


def test_progress_without_params_is_unmatched() -> None:
    us = client()
    us.request("tools/call", track=True)
    message = Notification("notifications/progress")
    assert strayed(us.receive(message)) == message


# Direction.

TO_SERVER = ["notifications/roots/list_changed"]
TO_CLIENT = [
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
    "notifications/tools/list_changed",
    "notifications/message",
]


@pytest.mark.covers("PRO-15", "PRO-17")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_notification_in_the_wrong_direction_is_unmatched(revision: Revision) -> None:
    at_server, at_client = server(revision.value), client(revision)
    for method in TO_CLIENT:
        message = Notification(method)
        assert at_client.receive(message) == NotificationReceived(message)
        assert strayed(at_server.receive(message)) == message
    for method in TO_SERVER:
        message = Notification(method)
        assert at_server.receive(message) == NotificationReceived(message)
        assert strayed(at_client.receive(message)) == message
    assert strayed(at_client.receive(INITIALIZED)) == INITIALIZED


@pytest.mark.covers("PRO-15", "PRO-17")
def test_the_direction_of_notifications_is_checked_without_a_handshake() -> None:
    at_server, at_client = (
        Conversation(ConversationRole.SERVER, principal=ANONYMOUS),
        client(NEWEST),
    )
    for method in TO_CLIENT:
        message = Notification(method)
        assert strayed(at_server.receive(message)) == message
        assert at_client.receive(message) == NotificationReceived(message)


@pytest.mark.covers("PRO-10", "PRO-15")
def test_unknown_notifications_are_accepted_in_both_directions() -> None:
    message = Notification("notifications/mine", raw({"a": 1}))
    sides = (
        Conversation(ConversationRole.SERVER, principal=ANONYMOUS),
        Conversation(ConversationRole.CLIENT, principal=ANONYMOUS),
        server(),
        client(),
    )
    for us in (*sides, client(NEWEST)):
        assert us.receive(message) == NotificationReceived(message)
        assert us.notification("notifications/mine", {"a": 1}) == message


@pytest.mark.covers("PRO-10", "PRO-11")
def test_requests_and_notifications_are_accepted_in_both_directions() -> None:
    us, them = server(roots={}), client()
    assert asked(us.receive(them.request("tools/list"))) == Request(1, "tools/list")
    assert asked(them.receive(us.request("roots/list"))) == Request(1, "roots/list")
    for side in (us, them):
        assert side.mark_answered(1)
        answer = Success(1, Raw(b"{}"))
        assert side.receive(answer) == ResponseReceived(answer)
        message = Notification("notifications/mine")
        assert side.receive(message) == NotificationReceived(message)


def test_a_client_accepts_requests_only_in_the_handshake_era() -> None:
    ping = Request(1, "ping")
    assert asked(client().receive(ping)) == ping
    us = client(NEWEST)
    assert strayed(us.receive(ping)) == ping
    us.closing()
    assert strayed(us.receive(ping)) == ping
    us.closed()
    assert strayed(us.receive(ping)) == ping
    assert not us.mark_answered(1)


def test_an_ungated_client_accepts_server_requests_after_initialize() -> None:
    us = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    question = Request("q", "sampling/createMessage")
    assert strayed(us.receive(question)) == question
    us.request("initialize")
    assert asked(us.receive(question)) == question


# Closing a conversation.


@pytest.mark.covers("PRO-07")
@pytest.mark.parametrize("make", [server, client, lambda: client(NEWEST)])
def test_closing_rejects_new_requests_and_ends_pending_requests(make: Any) -> None:
    us = make()
    ours = us.request("ping")
    us.closing()
    assert us.state is SessionState.CLOSING
    with pytest.raises(LocalProtocolError, match="Transport not connected"):
        us.request("ping")
    if not us.stateless:
        assert refusal(us.receive(Request(7, "ping"))) == (7, -32600)
    answer = Success(ours.id, Raw(b"{}"))
    assert us.receive(answer) == ResponseReceived(answer)
    assert us.closed() == ()
    assert us.state is SessionState.CLOSED


def test_a_request_received_before_closing_may_still_be_answered() -> None:
    us = server()
    us.receive(Request(1, "tools/call"))
    us.closing()
    assert us.mark_answered(1)


def test_closing_a_conversation_returns_its_pending_requests() -> None:
    us = client()
    first, second = us.request("tools/list"), us.request("tools/call")
    us.receive(Request(1, "ping"))
    us.receive(Success(first.id, Raw(b"{}")))
    assert us.closed() == (second.id,)
    assert us.closed() == ()
    assert not us.mark_answered(1)
    assert isinstance(us.receive(Success(second.id, Raw(b"{}"))), UnmatchedMessage)
    assert us.abandon(second.id, "late") is None


@pytest.mark.covers("PRO-07")
@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
def test_a_closed_conversation_cannot_be_reopened(revision: Revision) -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    us.request("initialize")
    us.closed()
    us.closing()
    # a response that is processed after the connection was closed
    us.set_agreement(Agreement(revision=revision))
    us.notification("notifications/initialized")
    assert us.state is SessionState.CLOSED
    them = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    them.receive(introduction())
    them.closing()
    them.receive(INITIALIZED)
    assert them.state is SessionState.CLOSING


# State.


@pytest.mark.covers("PRO-14")
def test_the_session_attribute_of_a_server_is_a_snapshot() -> None:
    us = Conversation(ConversationRole.SERVER, US, session_id="s", principal=ANONYMOUS)
    ours: Any = {
        "server_info": {"name": "us", "version": "2"},
        "server_capabilities": {"tools": {}},
    }
    before = SessionContext(state=SessionState.UNINITIALIZED, session_id="s", **ours)
    assert us.session == before
    us.receive(introduction(0, "2025-06-18", roots={}))
    assert us.session == SessionContext(
        state=SessionState.INITIALIZING,
        session_id="s",
        protocol_version="2025-06-18",
        client_info=THEM,
        client_capabilities={"roots": {}},
        **ours,
    )


@pytest.mark.covers("PRO-14")
def test_the_session_attribute_of_a_client_is_a_snapshot() -> None:
    us = Conversation(ConversationRole.CLIENT, US, principal=ANONYMOUS)
    agreement = Agreement(
        revision=NEWEST,
        capabilities=b'{"prompts":{}}',
        server_info=b'{"name":"them","version":"1"}',
        instructions="Be kind.",
    )
    us.set_agreement(agreement)
    assert us.agreement == agreement
    assert us.peer == Caller(
        NEWEST, True, ANONYMOUS, b'{"prompts":{}}', b'{"name":"them","version":"1"}'
    )
    assert us.session == SessionContext(
        state=SessionState.ACTIVE,
        protocol_version="2026-07-28",
        client_info={"name": "us", "version": "2"},
        client_capabilities={"tools": {}},
        server_info=THEM,
        server_capabilities={"prompts": {}},
        instructions="Be kind.",
    )


@pytest.mark.parametrize("odd", [b"null", b"5", b"[" * 100_000, b'{"n":' + b"9" * 5000 + b"}"])
def test_a_session_omits_capabilities_and_server_info_that_cannot_be_decoded(odd: bytes) -> None:
    us = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    us.set_agreement(Agreement(revision=NEWEST, capabilities=odd, server_info=odd))
    assert (us.session.server_info, us.session.server_capabilities) == (None, None)


@pytest.mark.covers("RPC-13")
def test_a_server_accepts_batches_in_one_revision_and_a_client_in_every_revision() -> None:
    taking = [revision for revision in HANDSHAKE if server(revision.value).accepts_batches]
    assert taking == [Revision.V2025_03_26]
    assert not Conversation(ConversationRole.SERVER, principal=ANONYMOUS).accepts_batches
    assert Conversation(
        ConversationRole.SERVER, assume=Revision.V2025_03_26, principal=ANONYMOUS
    ).accepts_batches
    assert all(client(revision).accepts_batches for revision in Revision)
    assert Conversation(ConversationRole.CLIENT, principal=ANONYMOUS).accepts_batches


def test_the_id_in_the_error_for_an_unreadable_request_depends_on_the_era() -> None:
    us = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    assert us.null_error_id  # JSON-RPC requires null while the era is unknown
    us.receive(stateless(1))
    assert not us.null_error_id
    us.receive(introduction(2))
    assert us.null_error_id
    us.receive(stateless(3))
    assert us.null_error_id
    assert [client(revision).null_error_id for revision in Revision] == [True] * 4 + [False]


# Arbitrary messages in any order.

IDS: st.SearchStrategy[RequestId] = st.sampled_from([0, 1, 2, 3, "1", ""])
METHODS = st.sampled_from(
    ["initialize", "ping", "tools/call", "server/discover", "roots/list", "x", "notifications/x"]
)
PARAMS = st.sampled_from(
    [
        UNSET,
        Raw(b"{}"),
        introduction(0, "2025-03-26", roots={}).params,
        introduction(0, "2099-01-01").params,
        raw({"_meta": STATELESS_META, "name": 5}),
        raw({"_meta": {VERSION: "2025-11-25", CAPABILITIES: {}}}),
        raw({"_meta": {VERSION: 5}}),
        raw({"_meta": None}),
    ]
)
NOTES = st.sampled_from(
    [
        INITIALIZED,
        Notification("notifications/message"),
        Notification("notifications/roots/list_changed"),
        Notification("notifications/x", Raw(b'{"a":1}')),
        Notification("notifications/cancelled", Raw(b'{"requestId":[]}')),
        Notification("notifications/progress"),
    ]
)


class Talk(RuleBasedStateMachine):
    """State machine test: a peer sends arbitrary messages; a simple model predicts the state."""

    @initialize(role=st.sampled_from(ConversationRole), gated=st.booleans(), strings=st.booleans())
    def begin(self, role: ConversationRole, gated: bool, strings: bool) -> None:
        format_: Any = "string" if strings else "integer"
        self.us = Conversation(role, US, gated=gated, id_format=format_, principal=ANONYMOUS)
        self.waiting: set[RequestId] = set()  # sent requests that have no outcome yet
        self.used: set[RequestId] = set()  # all sent requests
        self.owed: set[RequestId] = set()  # requests from the peer that have no response yet

    def receive(self, message: Message) -> None:
        event = self.us.receive(message)
        match event:
            case RequestReceived():
                assert event.message == message
                assert event.message.id not in self.owed
                assert not self.over
                self.owed.add(event.message.id)
            case RequestRejected():
                assert isinstance(message, Request)
                assert event.answer.id == message.id
                assert isinstance(event.answer, Failure)
            case RequestCancelled():
                assert event.request_id in self.owed
                self.owed.discard(event.request_id)
            case ResponseReceived():
                assert event.message == message
                assert event.message.id in self.waiting
                self.waiting.discard(event.message.id)
            case ProgressReceived():
                assert event.request_id in self.waiting
            case NotificationReceived() | UnmatchedMessage():
                assert event.message == message

    @property
    def over(self) -> bool:
        return self.us.state in (SessionState.CLOSING, SessionState.CLOSED)

    @rule(request_id=IDS, method=METHODS, params=PARAMS)
    def they_ask(self, request_id: RequestId, method: str, params: Any) -> None:
        self.receive(Request(request_id, method, params))

    @rule(message=NOTES)
    def they_tell(self, message: Notification) -> None:
        self.receive(message)

    @rule(data=st.data(), failed=st.booleans())
    def they_answer(self, data: st.DataObject, failed: bool) -> None:
        request_id = data.draw(self.some_id())
        self.receive(failure(request_id, -1, "no") if failed else Success(request_id, Raw(b"{}")))

    @rule()
    def they_answer_nobody(self) -> None:
        self.receive(failure(None, -32700, "?"))

    @rule(data=st.data())
    def they_cancel(self, data: st.DataObject) -> None:
        self.receive(cancellation(data.draw(self.some_id())))

    @rule(data=st.data())
    def they_progress(self, data: st.DataObject) -> None:
        self.receive(progress(data.draw(self.some_id())))

    @rule(method=METHODS, track=st.booleans())
    def we_ask(self, method: str, track: bool) -> None:
        try:
            request = self.us.request(method, track=track)
        except LocalProtocolError:
            return
        assert not self.over
        assert request.id not in self.used
        self.used.add(request.id)
        self.waiting.add(request.id)

    @rule(data=st.data())
    def we_give_up(self, data: st.DataObject) -> None:
        request_id = data.draw(self.some_id())
        told = self.us.abandon(request_id, "timeout")
        assert told is None or request_id in self.waiting
        self.waiting.discard(request_id)

    @rule(data=st.data())
    def we_answer(self, data: st.DataObject) -> None:
        request_id = data.draw(self.some_id())
        assert self.us.mark_answered(request_id) == (request_id in self.owed)
        assert not self.us.mark_answered(request_id)
        self.owed.discard(request_id)

    @precondition(lambda self: self.us.role is ConversationRole.CLIENT)
    @rule(revision=st.sampled_from(Revision))
    def we_agree(self, revision: Revision) -> None:
        self.us.set_agreement(Agreement(revision=revision))

    @rule(method=st.sampled_from(["notifications/initialized", "notifications/x"]))
    def we_tell(self, method: str) -> None:
        assert self.us.notification(method) == Notification(method)

    @precondition(lambda self: not self.over)
    @rule(often=st.integers(0, 5))
    def we_close(self, often: int) -> None:
        if often == 0:
            self.us.closing()

    @precondition(lambda self: self.over)
    @rule()
    def it_ends(self) -> None:
        assert set(self.us.closed()) == self.waiting
        self.waiting.clear()
        self.owed.clear()

    @invariant()
    def it_can_be_looked_at(self) -> None:
        assert self.us.session.state is self.us.state
        assert isinstance(self.us.null_error_id, bool)
        assert isinstance(self.us.accepts_batches, bool)

    def some_id(self) -> st.SearchStrategy[RequestId]:
        known = sorted(self.used | self.owed, key=repr)
        return st.sampled_from(known) | IDS if known else IDS


TestTalk = pytest.mark.covers("RPC-12", "PRO-18")(Talk.TestCase)
TestTalk.settings = settings(deadline=None, max_examples=examples(80), stateful_step_count=40)


def test_a_client_whose_capabilities_are_too_large_is_rejected() -> None:
    server = Conversation(ConversationRole.SERVER, principal=ANONYMOUS)
    large = "x" * DECLARATION_BYTES.value
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"experimental": {"a": large}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    event = server.receive(Request(1, "initialize", Raw(to_json(hello))))
    assert isinstance(event, RequestRejected)
    assert event.answer.code == -32602
    assert event.answer.message.startswith("capabilities and clientInfo have more than")
    assert server.agreement is None
