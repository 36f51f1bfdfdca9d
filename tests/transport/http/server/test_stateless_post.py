"""Stateless POSTs, handled inline, in a task, or by a delegate."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import MCPServer
from fairlead.errors import (
    ConnectFailed,
    LocalProtocolError,
    RemoteProtocolError,
    RpcError,
    TransportError,
)
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import SessionState, TransportContext
from fairlead.protocol.revisions import Revision
from fairlead.transport.http.server.error_status import ErrorStatus, mapped_status
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.refusals import MessageRefusals, failure_of
from fairlead.transport.http.server.stateless_post import (
    StatelessPosts,
)
from fairlead.wire import Decoder, Notification, Request
from fairlead.wire.sse import HEARTBEAT
from tests.support.http_server import LIMIT, call, make_server, serving


@pytest.mark.parametrize("era", ["stateless", "session"])
async def test_a_handler_that_awaits_a_cancelled_future_causes_an_internal_error(era: str) -> None:
    async def waits(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other
        return await proceed(exchange)

    server = MCPServer(make_server().config, interceptors=[waits])
    async with asyncio.timeout(LIMIT), serving(server) as web:
        if era == "stateless":
            answer = await web.stateless("tools/call", {"name": "add", "arguments": {}})
        else:
            session = await web.initialize()
            answer = await session.post(call("add"))
        assert answer.status != 503  # 503 is the status during a shutdown
        assert answer.error == -32603
        again = await web.stateless("tools/list")
        assert again.status == 200


@pytest.mark.parametrize(
    ("error", "body"),
    [
        (RpcError(-1, "no", {"a": 1}), {"code": -1, "message": "no", "data": {"a": 1}}),
        (
            RpcError(-1, "no", raw=b'{"code":-1,"message":"no","more":2}'),
            {"code": -1, "message": "no", "more": 2},
        ),
        (LocalProtocolError("not now", code=-32600), {"code": -32600, "message": "not now"}),
        (RemoteProtocolError("odd", code=-32700), {"code": -32700, "message": "odd"}),
    ],
    ids=["data", "bytes", "local", "remote"],
)
def test_an_exception_becomes_an_error_response(
    error: RpcError | LocalProtocolError | RemoteProtocolError, body: dict[str, Any]
) -> None:
    made = failure_of(Request(7, "x"), error)
    assert (made.id, made.code, made.message) == (7, body["code"], body["message"])
    assert msgspec.json.decode(made.error) == body


# POSTs without a server


class RecordingCall:
    """An HTTP call that records which of its methods are called."""

    context = TransportContext(transport_type="http")

    def __init__(self) -> None:
        self.gone = False
        self.done: list[Any] = []
        self.left: Any = None
        self.beat: Any = None

    def answer_now(self, status: int, body: bytes) -> None:
        self.done.append((status, msgspec.json.decode(body)))

    async def answer(self, status: int, body: bytes) -> None:
        self.answer_now(status, body)

    async def open_stream(self) -> None:
        self.done.append("open")

    async def write(self, chunk: bytes) -> None:
        self.done.append(chunk)

    async def end(self) -> None:
        self.done.append("end")

    def watch(self, left: Any, beat: Any, every: float) -> None:
        self.done.append(f"watch {every:g}")
        self.left, self.beat = left, beat

    def unwatch(self) -> None:
        self.done.append("unwatch")


REQUEST = Request(7, "x", Raw(b"{}"))
OK = {"jsonrpc": "2.0", "id": 7, "result": {}}


def failed(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "error": {"code": code, "message": message}}


class Posts:
    """`StatelessPosts` with a handler that the test controls."""

    def __init__(self, handler: Any = None, **settings: Any) -> None:
        self.call: Any = RecordingCall()
        self.started: list[asyncio.Task[None]] = []
        http = HttpSettings(heartbeat=7.0)
        refusals, status = MessageRefusals(None), ErrorStatus(http, Decoder())
        self.posts = StatelessPosts(handler or self._refuse, http, refusals, status, **settings)

    async def _refuse(self, exchange: Exchange) -> Answer:
        raise AssertionError("not handled here")

    def begin(self, *, starts: bool = False, **options: Any) -> Any:
        """Begin a request and return the coroutine that completes it, if any."""
        caller = Caller(Revision.V2026_07_28, True, ANONYMOUS)
        head = read_params_head(REQUEST.params)
        start = self._start if starts else None
        return self.posts.begin(
            self.call, REQUEST, caller, head, lambda code: 400 - code, start, **options
        )

    def _start(self, work: Any) -> None:
        self.started.append(asyncio.ensure_future(work))


def inline(answer: Any) -> dict[str, Any]:
    def run(exchange: Exchange) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return {"inline": run, "inline_methods": {"x"}}


@pytest.mark.parametrize(
    ("answer", "done"),
    [
        (b"{}", (200, OK)),
        (RpcError(-1, "no"), (401, failed(-1, "no"))),
        (LocalProtocolError("not now", code=-2), (402, failed(-2, "not now"))),
        (ValueError("secret"), (400 + 32603, failed(-32603, "Internal error"))),
    ],
    ids=["result", "error", "refused", "failed"],
)
def test_inline_requests_are_answered_immediately(answer: Any, done: Any) -> None:
    one = Posts(**inline(answer))
    assert one.begin() is None
    assert one.call.done == [done]


@pytest.mark.parametrize(
    "settings",
    [{}, {"inline_methods": {"x"}}, {**inline(b"{}"), "inline_methods": {"y"}}, inline(None)],
    ids=["nothing", "no handler", "another method", "no response"],
)
async def test_requests_that_cannot_be_answered_inline_are_handled_in_a_task(
    settings: dict[str, Any],
) -> None:
    async def handle(exchange: Exchange) -> Answer:
        return None if settings else b'{"a":1}'

    one = Posts(handle, **settings)
    await one.begin()
    result = {} if settings else {"a": 1}
    assert one.call.done == ["watch 7", "unwatch", (200, {**OK, "result": result})]


@pytest.mark.parametrize(
    ("problem", "done"),
    [
        (RpcError(-1, "no"), (401, failed(-1, "no"))),
        (RemoteProtocolError("odd", code=-3), (403, failed(-3, "odd"))),
        (ValueError("secret"), (400 + 32603, failed(-32603, "Internal error"))),
    ],
    ids=["error", "odd", "failed"],
)
async def test_an_exception_in_the_handler_is_answered_with_a_status(
    problem: Exception, done: Any
) -> None:
    async def handle(exchange: Exchange) -> Answer:
        raise problem

    one = Posts(handle)
    await one.begin()
    assert one.call.done == ["watch 7", "unwatch", done]


async def test_a_notification_before_the_response_makes_it_a_stream() -> None:
    async def handle(exchange: Exchange) -> Answer:
        edge: Any = exchange.edge
        assert edge.session.state is SessionState.ACTIVE
        await edge.notify_caller(exchange, Notification("n"))
        await one.call.beat()
        with pytest.raises(LocalProtocolError, match="^roots/list cannot be sent: ") as refused:
            await edge.request_caller(exchange, "roots/list", None)
        assert refused.value.code == -32601
        raise RpcError(-1, "no")

    one = Posts(handle)
    await one.begin()
    note = b'data: {"jsonrpc":"2.0","method":"n"}\n\n'
    opened, first, beat, unwatched, last, ended = one.call.done[1:]
    assert (opened, first, beat, unwatched, ended) == ("open", note, HEARTBEAT, "unwatch", "end")
    assert msgspec.json.decode(last.removeprefix(b"data: ")) == failed(-1, "no")


async def test_a_response_may_have_extra_members() -> None:
    async def handle(exchange: Exchange) -> Answer:
        edge: Any = exchange.edge
        edge.add_extra_members(7, {"more": Raw(b"1")})
        return b"{}"

    one = Posts(handle)
    await one.begin()
    assert one.call.done[-1] == (200, {**OK, "more": 1})


@pytest.mark.parametrize(
    ("outcome", "event"),
    [(b"{}", b"complete"), (RpcError(-1, "no"), b"error")],
    ids=["result", "error"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_response_in_the_fragment_dialect_is_always_a_stream(
    outcome: Any, event: bytes, at_once: bool
) -> None:
    async def handle(exchange: Exchange) -> Answer:
        edge: Any = exchange.edge
        await edge.fragment(exchange, Raw(b"[1]"))
        if isinstance(outcome, Exception):
            raise outcome
        return bytes(outcome)

    one = Posts(handle, **(inline(outcome) if at_once else {}))
    await one.begin(fragments=True)
    *before, last, ended = [item for item in one.call.done if "watch" not in str(item)]
    part = b'event: result\ndata: {"content":[1]}\n\n'
    assert before == (["open"] if at_once else ["open", part])
    assert last.startswith(b"event: %b\ndata: {" % event)
    assert ended == "end"


# Disconnects


async def test_a_disconnect_cancels_the_handler() -> None:
    entered, ends = asyncio.Event(), []

    async def handle(exchange: Exchange) -> Answer:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("ended")

    one = Posts(handle)
    working = asyncio.ensure_future(one.begin())
    await entered.wait()
    one.call.gone = True
    one.call.left()
    await working
    assert (ends, one.call.done) == (["ended"], ["watch 7", "unwatch"])
    assert not working.cancelled()


async def test_cancelling_the_task_of_a_request_propagates_to_its_caller() -> None:
    entered = asyncio.Event()

    async def handle(exchange: Exchange) -> Answer:
        entered.set()
        await asyncio.Event().wait()

    one = Posts(handle)
    working = asyncio.ensure_future(one.begin())
    await entered.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert one.call.done == ["watch 7", "unwatch"]


# Delegated requests


class Taker:
    """A delegate that takes requests over and completes them on request of the test."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.done: Any = None
        self.exchange: Any = None
        self.cancelled: list[str] = []

    def __call__(self, exchange: Exchange, done: Any) -> Any:
        self.exchange, self.done = exchange, done
        return self.cancelled.append if self.takes else None


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (b"{}", (200, OK)),
        (Raw(b"{}"), (200, OK)),
        (RpcError(-1, "no"), (401, failed(-1, "no"))),
        (TransportError("gone"), (400 + 32603, failed(-32603, "Internal error"))),
    ],
    ids=["bytes", "raw", "error", "gone"],
)
async def test_a_delegated_request_needs_no_task(outcome: Any, answer: Any) -> None:
    taker = Taker()
    one = Posts(take=taker)
    assert one.begin(starts=True) is None
    assert one.call.done == ["watch 7"]
    taker.done(outcome)
    assert one.call.done == ["watch 7", "unwatch", answer]
    assert (one.started, taker.cancelled) == ([], [])


async def test_a_disconnect_cancels_a_delegated_request() -> None:
    taker = Taker()
    one = Posts(take=taker)
    one.begin(starts=True)
    one.call.left()
    assert taker.cancelled == ["the client disconnected"]


@pytest.mark.parametrize(("starts", "takes"), [(False, True), (True, False)])
async def test_a_request_that_is_not_delegated_is_handled_locally(
    starts: bool, takes: bool
) -> None:
    async def handle(exchange: Exchange) -> Answer:
        return b"{}"

    taker = Taker(takes=takes)
    one = Posts(handle, take=taker)
    await one.begin(starts=starts)
    assert (taker.exchange is not None) == starts
    assert one.call.done == ["watch 7", "unwatch", (200, OK)]


async def test_an_undelivered_delegated_request_is_handled_locally() -> None:
    async def handle(exchange: Exchange) -> Answer:
        assert exchange is taker.exchange
        return b"{}"

    taker = Taker()
    one = Posts(handle, take=taker)
    one.begin(starts=True)
    taker.done(ConnectFailed("nobody there"))
    (task,) = one.started
    await task
    assert one.call.done == ["watch 7", "unwatch", "watch 7", "unwatch", (200, OK)]


@pytest.mark.parametrize(
    ("outcome", "answer"), [(b"{}", OK), (RpcError(-1, "no"), failed(-1, "no"))], ids=["ok", "no"]
)
async def test_the_response_to_a_delegated_request_ends_its_open_stream(
    outcome: Any, answer: Any
) -> None:
    taker = Taker()
    one = Posts(take=taker)
    one.begin(starts=True)
    await one.call.beat()
    taker.done(outcome)
    (task,) = one.started
    await task
    watched, opened, beat, unwatched, last, ended = one.call.done
    assert (watched, opened, beat, unwatched, ended) == (
        *("watch 7", "open", HEARTBEAT, "unwatch", "end"),
    )
    assert msgspec.json.decode(last.removeprefix(b"data: ")) == answer


@pytest.mark.parametrize(
    ("code", "status"), [(-32601, 404), (-32603, 500), (-32602, 400), (-1, 500), (12345, 500)]
)
def test_every_error_code_has_a_mapped_status(code: int, status: int) -> None:
    assert mapped_status(code) == status
