"""Delivery of single messages: related requests, and events that cannot be read."""

from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RemoteProtocolError, TransportError
from fairlead.protocol.caller import read_params_head
from fairlead.transport.channel import RequestLost
from fairlead.transport.http.client.message_receiver import MessageReceiver
from fairlead.transport.http.client.post_response_stream import PendingPost
from fairlead.wire import Notification, Request, Success, failure
from fairlead.wire.sse import Event, EventTooLong

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
QUESTION = b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}'


class Receiving:
    """A receiver with one pending request."""

    def __init__(self, *, begun: bool = True) -> None:
        self.heard: list[Any] = []
        self.related: list[Any] = []
        self.succeeded: list[tuple[PendingPost, Success]] = []
        self.receiver = MessageReceiver(
            succeeded=lambda *both: self.succeeded.append(both),
            on_fragment=lambda *_: None,
            limit=1000,
        )
        self.posted = self.post(1)
        if begun:
            self.receiver.begin(self.hear)

    def hear(self, item: Any) -> None:
        self.heard.append(item)
        self.related.append(self.receiver.related_request_id)

    def post(self, number: int) -> PendingPost:
        request = Request(number, "tools/call", Raw(b"{}"))
        posted = PendingPost(request, read_params_head(request.params))
        self.receiver.pending[number] = posted
        return posted


def test_messages_received_before_run_are_delivered_once_and_in_order() -> None:
    one = Receiving(begun=False)
    notes = [Notification(f"notifications/{number}") for number in range(3)]
    for note in notes:
        one.receiver.hand_over(note)
    assert one.heard == []
    one.receiver.begin(one.hear)
    assert one.heard == notes
    one.receiver.begin(one.hear)
    one.receiver.hand_over(notes[0])
    assert one.heard == [*notes, notes[0]]


def test_a_response_settles_its_request_before_it_is_delivered() -> None:
    one = Receiving()
    other = one.post(2)
    one.receiver.receive_event(Event(event="message", data=ANSWER), one.posted)
    answer = Success(1, Raw(b"{}"))
    assert one.heard == [answer]
    assert one.succeeded == [(one.posted, answer)]
    assert (one.posted.answered, other.answered) == (True, False)
    assert one.receiver.pending == {2: other}
    one.receiver.receive(answer)
    assert len(one.succeeded) == 1
    one.receiver.receive(failure(2, -1, "no"))
    assert other.answered
    assert len(one.succeeded) == 1
    one.receiver.receive(failure(None, -1, "no"))
    assert len(one.heard) == 4


def test_responses_in_a_batch_settle_their_requests() -> None:
    one = Receiving()
    other = one.post(2)
    batch = b'[%b,%b,{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}]'
    one.receiver.receive_event(Event(event="message", data=batch % (ANSWER, QUESTION)))
    assert (one.posted.answered, other.answered) == (True, True)
    assert len(one.heard) == 1
    assert len(one.succeeded) == 1


def test_a_server_request_belongs_to_the_request_on_whose_stream_it_arrives() -> None:
    one = Receiving()
    one.receiver.receive_event(Event(event="message", data=QUESTION), one.posted)
    one.receiver.receive_event(Event(event="message", data=QUESTION))
    one.receiver.receive_event(
        Event(event="message", data=b'{"jsonrpc":"2.0","method":"notifications/x"}'), one.posted
    )
    assert one.posted.questions == ["q"]
    assert one.related == [1, None, 1]
    assert one.receiver.related_request_id is None


@pytest.mark.parametrize(
    "event",
    [Event(event="message", data=b""), Event(event="strange", data=ANSWER)],
    ids=["empty", "strange"],
)
def test_events_without_data_and_of_unknown_types_are_ignored(event: Event) -> None:
    one = Receiving()
    one.receiver.receive_event(event, one.posted)
    one.receiver.receive_event(event)
    assert one.heard == []


@pytest.mark.parametrize(
    ("event", "why", "size", "excerpt"),
    [
        (Event(event="message", data=b"x" * 300), "JSON", 300, repr(b"x" * 200)),
        (EventTooLong(2000), "An event of 2000 bytes is over the limit of 1000", 0, ""),
    ],
    ids=["no message", "too long"],
)
def test_an_unreadable_event_fails_its_request_or_is_reported(
    event: Event | EventTooLong, why: str, size: int, excerpt: str
) -> None:
    one = Receiving()
    with pytest.raises(RemoteProtocolError, match=why):
        one.receiver.receive_event(event, one.posted)
    assert one.heard == []
    assert one.receiver.related_request_id is None
    one.receiver.receive_event(event)
    one.posted.answered = True
    one.receiver.receive_event(event, one.posted)
    assert len(one.heard) == 2
    for error in one.heard:
        assert isinstance(error, RemoteProtocolError)
        if size:
            assert (error.size, error.excerpt, error.frame) == (size, excerpt, b"x" * 300)


def test_a_lost_request_is_reported_once_and_only_if_it_is_pending() -> None:
    one, error = Receiving(), TransportError("gone")
    again = one.post(1)
    one.receiver.lose(one.posted, error)
    assert one.heard == []
    one.receiver.lose(again, error)
    one.receiver.lose(again, error)
    assert one.heard == [RequestLost(1, error)]
    assert one.receiver.pending == {}
