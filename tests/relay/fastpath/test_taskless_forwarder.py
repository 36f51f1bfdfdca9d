"""Requests that are forwarded without a task: conditions, outcomes and cancellation."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw, structs

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ChannelClosed, RequestTimeout, RpcError
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    InterceptorBase,
    Outcome,
    Proceed,
    SyncInterceptor,
)
from fairlead.protocol.envelope import SessionState
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.relay.fastpath.taskless_forwarder import TasklessForwarder
from fairlead.wire import Request
from tests.support.single_exchange import exchange

ASKED = b'{"sampling":{}}'


class FakeOutbound:
    """Fake for outbound requests, which are recorded and settled by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, dict[str, Any]]] = []
        self.settle: Callable[[Any], None] = lambda outcome: None
        self.cancelled: list[tuple[Any, str]] = []
        self.error: Exception | None = None

    def forward_nowait(self, method: str, fill: Any, settled: Any, **about: Any) -> int:
        if self.error is not None:
            raise self.error
        self.sent.append((method, fill, about))
        self.settle = settled
        return 70 + len(self.sent)

    def cancel_forwarded(self, number: Any, reason: str) -> None:
        self.cancelled.append((number, reason))


class FakePassage:
    """Fake for notifications that interceptors are processing."""

    def __init__(self) -> None:
        self.busy = False
        self.free = asyncio.Event()
        self.put_in: list[Any] = []

    async def passed(self) -> None:
        await self.free.wait()
        self.busy = False

    def put(self, *of: Any) -> None:
        self.put_in.append(of)


class FakeConnection:
    """Fake connection to a server of one era."""

    def __init__(self, *, stateless: bool = True) -> None:
        self.agreement: Any = SimpleNamespace(revision=NEWEST if stateless else NEWEST_HANDSHAKE)
        self.outbound = FakeOutbound()
        self.channel = SimpleNamespace(carries_headers=False)
        self.conversation = SimpleNamespace(state=SessionState.ACTIVE)
        self.state = SimpleNamespace(open=True)
        self.congested = False
        self.peer = self
        self.ending = False
        self.param_headers: Any = None
        self.correlates_calls = False
        self.calls: dict[Any, Any] = {}
        self.passage = FakePassage()
        self.used = 0.0
        self.called = False
        self.given_up = 0

    def now(self) -> float:
        return 5.0

    def on_unanswered(self) -> None:
        self.given_up += 1


class FakeSession:
    """Fake connection of a client that records responses."""

    def __init__(self, connection: Any = None) -> None:
        self.connection = connection
        self.joining = 0
        self.channel = SimpleNamespace(congested=False)
        self.passage = FakePassage()
        self.peer = self.delegated = self
        self.answers: list[tuple[Any, Any]] = []
        self.again: list[Any] = []
        self.ordered = 0
        self.outbox = SimpleNamespace(busy=False, flushed=self._flushed)
        self.flushes = 0

    async def _flushed(self) -> None:
        self.flushes += 1
        self.outbox.busy = False

    def answer(self, taken: Any, request_id: Any, outcome: Any) -> None:
        self.answers.append((request_id, outcome))

    def undelegate(self, taken: Any, asked: Any) -> None:
        self.again.append(asked)

    def preserve_order(self) -> None:
        self.ordered += 1


class Place:
    def __init__(self, *interceptors: Any, stateless: bool = True) -> None:
        self.name = "red"
        self.settings = UpstreamSettings(call_timeout=3.0)
        self.connection = FakeConnection(stateless=stateless)
        self.session = FakeSession(None if stateless else self.connection)
        self.stateless_connection = self.connection if stateless else None
        self.bridged: Any = None
        self.usual: list[Exchange] = []
        parts: Any = (self, self)
        self.forwarder = TasklessForwarder(*parts, interceptors, self._usual)

    async def _usual(self, asked: Exchange) -> Answer:
        self.usual.append(asked)
        return b'{"usual":1}'

    def plain(self, asked: Exchange) -> Any:
        return self.bridged

    def plain_outcome(self, method: str, connection: Any, outcome: Any) -> Any:
        return Raw(b'{"bridged":1}') if isinstance(outcome, Raw) else outcome

    def take(self, asked: Exchange) -> Any:
        session: Any = self.session
        return self.forwarder.take(session, asked)

    @property
    def outbound(self) -> FakeOutbound:
        return self.connection.outbound


def asked(method: str = "tools/call", params: Any = None, **about: Any) -> Exchange:
    return exchange(method, {"name": "x"} if params is None else params, **about)


@pytest.mark.parametrize(
    ("stateless", "method", "capabilities", "taken"),
    [
        (True, "tools/call", b"{}", True),
        (True, "tools/call", ASKED, True),
        (True, "x/y", b"{}", True),
        (True, "server/discover", b"{}", False),
        (True, "subscriptions/listen", b"{}", False),
        (False, "tools/call", b"{}", True),
        (False, "tools/call", ASKED, False),  # on a shared stream, the server may request input
        (False, "tools/list", ASKED, True),
        (False, "initialize", b"{}", False),
        (False, "logging/setLevel", b"{}", False),
        (False, "resources/subscribe", b"{}", False),
        (False, "resources/unsubscribe", b"{}", False),
    ],
)
async def test_requests_that_are_forwarded_unchanged_need_no_task(
    stateless: bool, method: str, capabilities: bytes, taken: bool
) -> None:
    place = Place(stateless=stateless)
    one = asked(method, stateless=stateless, capabilities=capabilities)
    assert (place.take(one) is not None) is taken
    assert [sent[0] for sent in place.outbound.sent] == ([method] if taken else [])


def change(place: Place, what: str) -> None:
    connection, session = place.connection, place.session
    match what:
        case "client congested":
            session.channel.congested = True
        case "server congested":
            connection.congested = True
        case "server gone":
            connection.state.open = False
        case "ending":
            connection.ending = True
        case "no agreement":
            connection.agreement = None
        case "other revision":
            connection.agreement = SimpleNamespace(revision=NEWEST_HANDSHAKE)
        case "initializing":
            connection.conversation.state = SessionState.INITIALIZING
        case "headers":
            connection.channel.carries_headers = True
        case "refused":
            connection.outbound.error = ChannelClosed("gone")
        case "no connection":
            place.stateless_connection = None


@pytest.mark.parametrize(
    "what",
    [
        *("client congested", "server congested", "server gone", "ending", "no agreement"),
        *("other revision", "initializing", "headers", "refused", "no connection"),
    ],
)
async def test_a_request_that_cannot_be_forwarded_immediately_needs_a_task(what: str) -> None:
    place = Place()
    change(place, what)
    assert place.take(asked()) is None
    assert (place.outbound.sent, place.connection.calls) == ([], {})


async def test_a_request_in_a_session_that_waits_for_a_connection_needs_a_task() -> None:
    place = Place(stateless=False)
    place.session.joining = 1
    assert place.take(asked(stateless=False)) is None
    place.session.joining = 0
    place.connection.correlates_calls = True
    assert place.take(asked(stateless=False, capabilities=ASKED)) is not None


async def test_a_tool_list_needs_a_task_if_headers_are_read_from_it() -> None:
    place = Place()
    place.connection.param_headers = object()
    assert place.take(asked("tools/list")) is None
    assert place.take(asked("prompts/list")) is not None


@pytest.mark.parametrize("stateless", [True, False])
async def test_a_call_without_a_task_marks_its_connection_as_used(stateless: bool) -> None:
    """A used connection is closed after `idle_close_used` seconds, not `idle_close`."""
    place = Place(stateless=stateless)
    place.take(asked(stateless=stateless))
    place.outbound.settle(Raw(b"{}"))
    assert place.connection.called


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Raw(b'{"n":1}'), b'{"n":1}'),
        (RpcError(5, "no"), "no"),
        (ChannelClosed("lost", delivered=True), "red"),
        (ChannelClosed("lost", delivered=False), None),
    ],
    ids=["result", "refused", "lost", "not sent"],
)
async def test_a_client_receives_the_outcome_of_a_call_once(
    outcome: Any, answer: Any, again: bool
) -> None:
    place = Place()
    one = asked()
    place.take(one)
    assert (list(place.connection.calls), place.connection.used) == ([71], 0.0)
    place.outbound.settle(outcome)
    if again:
        place.outbound.settle(Raw(b"{}"))
    assert (place.connection.calls, place.connection.used) == ({}, 5.0)
    if answer is None:
        assert (place.session.answers, place.session.again) == ([], [one])
        return
    ((request_id, got),) = place.session.answers
    assert request_id == 1
    assert (answer in got.message) if isinstance(got, RpcError) else bytes(got) == answer
    assert place.session.again == []


@pytest.mark.parametrize(
    ("outcome", "given_up"), [(RequestTimeout(3.0, "x"), 1), (Raw(b"{}"), 0), (RpcError(1, ""), 0)]
)
async def test_a_timeout_is_reported_to_the_connection(outcome: Any, given_up: int) -> None:
    place = Place()
    place.take(asked())
    place.outbound.settle(outcome)
    assert place.connection.given_up == given_up


async def test_a_call_is_sent_with_a_timeout_and_a_total_time_limit() -> None:
    place = Place()
    place.take(asked())
    _, _, about = place.outbound.sent[0]
    assert (about["timeout"], about["max_total"], about["overhear"]) == (3.0, 72.0, None)


async def test_progress_is_forwarded_with_the_token_of_the_client() -> None:
    place = Place()
    place.take(asked(params={"name": "x", "_meta": {"progressToken": "mine"}}))
    _, fill, about = place.outbound.sent[0]
    assert json.loads(bytes(fill(71)))["_meta"]["progressToken"] == 71
    about["overhear"]("note")
    ((note, peer, _, related),) = place.connection.passage.put_in
    assert (note, peer, related) == ("note", place.connection, 71)


async def test_a_cancelled_call_delivers_no_outcome() -> None:
    place = Place()
    taken = place.take(asked())
    taken.cancel("enough")
    assert place.outbound.cancelled == [(71, "enough")]
    assert (place.connection.calls, place.connection.used, place.connection.given_up) == (
        {},
        5.0,
        1,
    )
    place.outbound.settle(Raw(b"{}"))
    taken.cancel("again")
    assert (place.session.answers, len(place.outbound.cancelled)) == ([], 1)


@pytest.mark.parametrize("what", ["client reads slowly", "interceptor waits"])
async def test_notifications_are_sent_before_the_response(what: str) -> None:
    place = Place()
    place.take(asked())
    if what == "client reads slowly":
        place.session.outbox.busy = True
        place.connection.passage.free.set()
    else:
        place.connection.passage.busy = True
    place.outbound.settle(Raw(b"{}"))
    assert (place.session.answers, list(place.connection.calls)) == ([], [71])
    assert len(place.forwarder._flushing) == 1  # the forwarder keeps a reference to the task
    if what == "interceptor waits":
        for _ in range(3):
            await asyncio.sleep(0)
        assert place.session.answers == []
    place.connection.passage.free.set()
    async with asyncio.timeout(5):
        while not place.session.answers:
            await asyncio.sleep(0)
    assert place.connection.calls == {}
    assert place.session.flushes == (what == "client reads slowly")
    await asyncio.sleep(0)
    assert place.forwarder._flushing == set()


# Requests outside of sessions


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Raw(b'{"n":1}'), b'{"n":1}'),
        (RpcError(5, "no"), RpcError),
        (ChannelClosed("lost", delivered=True), RpcError),
        # The caller may repeat the request.
        (ChannelClosed("lost", delivered=False), ChannelClosed),
    ],
    ids=["result", "refused", "lost", "not sent"],
)
async def test_a_request_outside_of_a_session_is_answered(outcome: Any, answer: Any) -> None:
    place, got = Place(), []
    cancel = place.forwarder.delegate_post(asked(), got.append)
    assert cancel is not None
    place.outbound.settle(outcome)
    (one,) = got
    assert isinstance(one, answer) if isinstance(answer, type) else bytes(one) == answer


async def test_a_request_outside_of_a_session_can_be_cancelled() -> None:
    place, got = Place(), []
    cancel = place.forwarder.delegate_post(asked(), got.append)
    assert cancel is not None
    cancel("enough")
    place.outbound.settle(Raw(b"{}"))
    assert (got, place.outbound.cancelled) == ([], [(71, "enough")])


async def test_a_request_is_converted_for_a_server_of_the_other_era() -> None:
    place, got = Place(), []
    place.stateless_connection = None
    params = SimpleNamespace(fill=lambda number: Raw(b"{}"), tracked=False)
    place.bridged = place.connection, params
    assert place.forwarder.delegate_post(asked(), got.append) is not None
    assert place.outbound.sent[0][1] is params.fill
    place.outbound.settle(Raw(b"{}"))
    assert [bytes(one) for one in got] == [b'{"bridged":1}']


async def test_a_renamed_tool_is_called_by_the_name_that_the_server_uses() -> None:
    place = Place()
    one = asked(params={"name": "red_x"})
    assert one.alias is None
    place.take(one)
    assert place.outbound.sent[0][1] is one.message.params
    other = asked(params={"name": "red_x"})
    other.alias = "x"
    place.take(other)
    assert json.loads(bytes(place.outbound.sent[1][1](72))) == {"name": "x"}


async def test_a_caller_that_cancels_during_a_flush_receives_no_outcome() -> None:
    place, got = Place(), []
    cancel = place.forwarder.delegate_post(asked(), got.append)
    assert cancel is not None
    place.connection.passage.busy = True
    place.outbound.settle(Raw(b"{}"))
    cancel("enough")
    place.connection.passage.free.set()
    async with asyncio.timeout(5):
        while place.forwarder._flushing:
            await asyncio.sleep(0)
    assert (got, place.outbound.cancelled, place.connection.calls) == ([], [], {})


# With interceptors


class Half(SyncInterceptor):
    """Interceptor that logs requests and outcomes."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        self.log.append(f"{self.name} in")
        if self.error is not None:
            raise self.error
        return exchange, self._after

    def _after(self, outcome: Outcome) -> Outcome:
        kind = type(outcome).__name__
        self.log.append(f"{self.name} out: {kind}")
        return outcome


async def pausing(exchange: Exchange, proceed: Proceed) -> Answer:
    await asyncio.sleep(0)
    return await proceed(exchange)


async def answered(place: Place) -> Any:
    async with asyncio.timeout(5):
        while not place.session.answers:
            await asyncio.sleep(0)
    return place.session.answers[0][1]


async def test_synchronous_interceptors_are_called_without_a_task() -> None:
    log: list[str] = []
    place = Place(Half("a", log), Half("b", log))
    place.take(asked())
    place.outbound.settle(Raw(b'{"n":1}'))
    assert place.session.answers == [(1, b'{"n":1}')]
    assert log == ["a in", "b in", "b out: bytes", "a out: bytes"]
    assert place.usual == []


async def test_a_request_that_a_synchronous_interceptor_refuses_is_not_sent() -> None:
    log: list[str] = []
    place = Place(Half("a", log), Half("b", log, RpcError(5, "no")))
    assert place.take(asked()) is not None
    assert place.session.answers == []  # the error is delivered after `take` returns
    got = await answered(place)
    assert got.message == "no"
    assert log == ["a in", "b in", "a out: RpcError"]
    assert place.outbound.sent == []


async def test_a_cancelled_request_gets_no_error_from_an_interceptor() -> None:
    place = Place(Half("a", [], RpcError(5, "no")))
    place.take(asked()).cancel("enough")
    for _ in range(3):
        await asyncio.sleep(0)
    assert place.session.answers == []


@pytest.mark.parametrize(("number", "forwarded"), [(1, True), (2, False)])
async def test_a_request_whose_id_an_interceptor_changes_needs_a_task(
    number: int, forwarded: bool
) -> None:
    class Changing(SyncInterceptor):
        def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
            changed = Request(number, "x/y", Raw(b'{"changed":1}'))
            return structs.replace(exchange, message=changed), None

    place = Place(Changing())
    place.take(asked())
    assert [method for method, *_ in place.outbound.sent] == (["x/y"] if forwarded else [])
    if not forwarded:
        assert bytes(await answered(place)) == b'{"usual":1}'
        assert [one.method for one in place.usual] == ["x/y"]


async def test_a_request_that_cannot_be_forwarded_continues_in_a_task_in_order() -> None:
    log: list[str] = []
    place = Place(Half("a", log))
    place.connection.state.open = False
    assert place.take(asked()) is not None
    assert place.session.ordered == 1
    assert bytes(await answered(place)) == b'{"usual":1}'
    assert log == ["a in", "a out: bytes"]
    assert len(place.usual) == 1


async def test_an_async_interceptor_needs_a_task_unless_it_passes_the_request() -> None:
    log: list[str] = []

    class Looking:
        def passes(self, exchange: Exchange) -> bool:
            return exchange.method != "tools/call"

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            log.append("looked")
            return await proceed(exchange)

    place = Place(Half("a", log), Looking())
    place.take(asked("x/y"))
    assert len(place.outbound.sent) == 1
    place.take(asked())
    assert bytes(await answered(place)) == b'{"usual":1}'
    assert log == ["a in", "a in", "looked", "a out: bytes"]
    assert Place(pausing).take(asked()) is None


@pytest.mark.parametrize(("method", "forwarded"), [("x/y", True), ("tools/call", False)])
async def test_a_stateless_request_needs_no_task_if_no_interceptor_handles_it(
    method: str, forwarded: bool
) -> None:
    class Looking(InterceptorBase):
        def passes(self, exchange: Exchange) -> bool:
            return exchange.method != "tools/call"

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return await proceed(exchange)

    place, got = Place(Looking()), []
    cancel = place.forwarder.delegate_post(asked(method), got.append)
    assert (cancel is not None) is forwarded
    assert len(place.outbound.sent) == forwarded
    assert (place.take(asked(method)) is not None) is forwarded


async def test_repeating_a_request_does_not_repeat_the_synchronous_interceptors() -> None:
    log: list[str] = []
    place = Place(Half("a", log))
    place.take(asked())
    place.outbound.settle(ChannelClosed("lost", delivered=False))
    assert bytes(await answered(place)) == b'{"usual":1}'
    assert log == ["a in", "a out: bytes"]


async def test_synchronous_interceptors_receive_the_cancellation() -> None:
    log: list[str] = []
    place = Place(Half("a", log))
    place.take(asked()).cancel("enough")
    assert log == ["a in", "a out: CancelledError"]
    again = Place(Half("a", log))
    taken = again.take(asked())
    again.outbound.settle(ChannelClosed("lost", delivered=False))
    taken.cancel("enough")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert again.session.answers == []
    assert log[2:] == ["a in", "a out: CancelledError"]


@pytest.mark.parametrize("whose", ["client", "server"])
async def test_a_request_waits_until_interceptors_have_handled_earlier_notifications(
    whose: str,
) -> None:
    place = Place(Half("a", []))
    passage = place.session.passage if whose == "client" else place.connection.passage
    passage.busy = True
    assert place.take(asked()) is None
    passage.busy = False
    assert place.take(asked()) is not None
    assert place.take(asked("server/discover")) is None
    bare = Place()
    bare.connection.passage.busy = True
    # Without interceptors, requests do not wait for notifications.
    assert bare.take(asked()) is not None


async def test_synchronous_interceptors_are_called_for_a_request_outside_of_a_session() -> None:
    log: list[str] = []
    place, got = Place(Half("a", log)), []
    cancel = place.forwarder.delegate_post(asked(), got.append)
    assert cancel is not None
    place.outbound.settle(RpcError(5, "no"))
    assert [one.message for one in got] == ["no"]
    assert log == ["a in", "a out: RpcError"]
    place.connection.passage.busy = True
    assert place.forwarder.delegate_post(asked(), got.append) is None
    place.connection.passage.busy = False
    assert place.forwarder.delegate_post(asked("server/discover"), got.append) is None
    place.connection.state.open = False
    assert place.forwarder.delegate_post(asked(), got.append) is not None
    async with asyncio.timeout(5):
        while len(got) < 2:
            await asyncio.sleep(0)
    assert bytes(got[1]) == b'{"usual":1}'
