"""Tests of requests that a context sends to the client and to its own server."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from fairlead import RpcError
from fairlead.errors import CannotAsk, LocalProtocolError
from fairlead.interceptor import Answer, Exchange
from fairlead.interceptor.exchange import ReplyPathBase
from fairlead.protocol.envelope import SessionContext, SessionState
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.server.context.context import Context, InputRoundEnded
from fairlead.wire import Notification
from tests.support.single_exchange import exchange

EVERYTHING = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


class Edge(ReplyPathBase):
    """Reply path that records messages and answers requests from the context."""

    session = SessionContext(state=SessionState.ACTIVE, session_id="s")
    log_level: str | None = None

    def __init__(self, answer: Any = None, fails: Exception | None = None) -> None:
        self.answer, self.fails = answer, fails
        self.asked: list[tuple[str, Any]] = []
        self.told: list[tuple[str, Any]] = []
        self.detached: list[Exchange] = []

    async def request_caller(
        self, exchange: Exchange, method: str, params: Any, *, timeout: float | None = None
    ) -> Raw:
        self.asked.append((method, json.loads(bytes(params))))
        if self.fails is not None:
            raise self.fails
        return Raw(json.dumps(self.answer).encode())

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        self.told.append((notification.method, json.loads(bytes(notification.params or b"null"))))

    def detach(self, exchange: Exchange) -> None:
        self.detached.append(exchange)


def context_of(edge: Any, can: Any = EVERYTHING, params: Any = None, **options: Any) -> Context:
    capabilities = json.dumps(can).encode()
    given = exchange(
        params=params, stateless=False, capabilities=capabilities, info=b'{"name":"c"}'
    )
    given.edge = edge
    return Context(given, **options)


async def test_a_sampling_request_contains_the_given_messages_and_options() -> None:
    edge = Edge({"role": "assistant"})
    context = context_of(edge)
    message = {"role": "user", "content": {"type": "text", "text": "hello"}}
    assert await context.sample("hello") == {"role": "assistant"}
    await context.sample([message, message], max_tokens=5, temperature=0.5)
    assert edge.asked == [
        ("sampling/createMessage", {"messages": [message], "maxTokens": 1000}),
        (
            "sampling/createMessage",
            {"messages": [message, message], "maxTokens": 5, "temperature": 0.5},
        ),
    ]
    edge.answer = ["no object"]
    with pytest.raises(RpcError, match="The response to sampling is malformed: ") as malformed:
        await context.sample("hello")
    assert malformed.value.code == -32602


async def test_url_elicitation_sends_the_url_and_returns_the_action_of_the_user() -> None:
    edge = Edge({"action": "decline"})
    context = context_of(edge)
    assert await context.elicit_url("Sign in", "https://a.b/") == "decline"
    ((method, params),) = edge.asked
    assert len(params.pop("elicitationId")) == 22
    assert (method, params) == (
        "elicitation/create",
        {"mode": "url", "message": "Sign in", "url": "https://a.b/"},
    )


async def test_a_context_returns_the_roots_of_the_client() -> None:
    edge = Edge({"roots": [{"uri": "file:///a"}]})
    assert await context_of(edge).roots() == [{"uri": "file:///a"}]
    assert edge.asked == [("roots/list", {})]


def form(context: Context) -> Any:
    return context.elicit("x?", str)


def url(context: Context) -> Any:
    return context.elicit_url("x?", "https://a.b/")


def tools(context: Context) -> Any:
    return context.sample("x", tools=[])


def choice(context: Context) -> Any:
    return context.sample("x", toolChoice={"mode": "none"})


@pytest.mark.parametrize(
    ("ask", "can", "missing"),
    [
        (form, {}, "elicitation"),
        (form, {"elicitation": {"url": {}}}, "elicitation.form"),
        (url, {}, "elicitation.url"),
        (url, {"elicitation": {"form": {}}}, "elicitation.url"),
        (tools, {"sampling": {}}, "sampling.tools"),
        (choice, {"sampling": {}}, "sampling.tools"),
        (lambda context: context.sample("x"), {}, "sampling"),
        (lambda context: context.roots(), {"sampling": {}}, "roots"),
    ],
    ids=["form", "only URLs", "URL", "only forms", "tools", "tool choice", "sampling", "roots"],
)
async def test_requests_to_a_client_require_that_it_declared_the_capability(
    ask: Callable[[Context], Any], can: Any, missing: str
) -> None:
    edge = Edge({})
    with pytest.raises(CannotAsk) as refused:
        await ask(context_of(edge, can))
    assert refused.value.capability == missing
    assert str(refused.value) == f"The client 'c' did not declare the capability {missing!r}"
    assert edge.asked == []


async def test_a_request_to_an_unreachable_client_raises_a_cannot_ask_error() -> None:
    edge = Edge(fails=LocalProtocolError("no stream is open", code=-32600))
    context = context_of(edge)
    with pytest.raises(CannotAsk, match="^no stream is open$") as refused:
        await context.roots()
    assert refused.value.capability == "roots"


async def test_the_tool_timeout_is_paused_while_a_request_to_the_client_is_pending() -> None:
    class Paused(Edge):
        async def request_caller(
            self, exchange: Exchange, method: str, params: Any, *, timeout: float | None = None
        ) -> Raw:
            paused.append(context.clock._paused)
            return await super().request_caller(exchange, method, params)

    paused: list[int] = []
    context = context_of(Paused({"roots": []}))
    await context.roots()
    assert (paused, context.clock._paused) == ([1], 0)


@pytest.mark.parametrize(
    ("own", "default", "told"),
    [
        (None, "info", ["info", "error"]),
        ("error", "info", ["error"]),
        ("debug", "error", ["debug", "info", "error"]),
        (None, "nonsense", []),
    ],
)
async def test_a_session_receives_log_messages_at_or_above_its_level(
    own: str | None, default: str, told: list[str]
) -> None:
    edge = Edge()
    edge.log_level = own
    context = context_of(edge, default_level=default)
    for level in ("debug", "info", "error"):
        await context.log(level, "x")
    assert edge.told == [("notifications/message", {"level": level, "data": "x"}) for level in told]


async def test_a_step_runs_every_time_if_the_call_has_no_input_rounds() -> None:
    done: list[int] = []

    async def later(number: int, *, more: int) -> int:
        done.append(number)
        return number + more

    context = context_of(Edge())
    assert await context.step("a", later, 1, more=2) == 3
    assert await context.step("a", lambda: done.append(2)) is None
    assert (done, context.rounds, context.round_ended) == ([1, 2], None, False)


@pytest.mark.parametrize(
    ("params", "meta"),
    [(None, {}), ({"name": "t"}, {}), ({"_meta": {"a/b": 1}}, {"a/b": 1})],
    ids=["no params", "none", "some"],
)
async def test_a_context_returns_the_meta_of_its_request_unchanged(params: Any, meta: Any) -> None:
    assert context_of(Edge(), params=params).meta == meta


async def test_a_context_has_the_caller_state_and_ids_of_its_request_and_closes_its_stream() -> (
    None
):
    given = exchange(principal="ann", info=b'{"name":"c"}', stateless=False)
    context = Context(given, state="shared")
    assert (context.principal, context.client, context.state) == ("ann", "c", "shared")
    assert (context.request_id, context.protocol_version) == (1, NEWEST_HANDSHAKE.value)
    assert context.correlation_id == context.correlation_id
    assert len(context.correlation_id) == 16
    given.edge = edge = Edge()
    context.close_stream()
    assert edge.detached == [given]


async def test_a_resource_of_the_server_is_read_on_behalf_of_the_caller() -> None:
    seen: list[Exchange] = []
    answer: list[Answer] = [b'{"contents":[{"uri":"r://1","text":"x"}]}', None]

    async def handler(given: Exchange) -> Answer:
        seen.append(given)
        return answer[len(seen) - 1]

    context = Context(exchange(principal="ann"), handler=handler)
    assert await context.read_resource("r://1") == [{"uri": "r://1", "text": "x"}]
    assert await context.read_resource("r://1") == []
    inner = seen[0]
    assert (inner.method, inner.target, inner.request_id) == ("resources/read", "r://1", 1)
    assert (inner.caller.principal, inner.caller.stateless) == ("ann", False)
    assert inner.caller.revision is NEWEST_HANDSHAKE
    assert inner.transport.headers == {"x-correlation-id": context.correlation_id}


async def test_reading_a_resource_requires_a_context_with_a_server() -> None:
    with pytest.raises(RpcError) as refused:
        await Context(exchange()).read_resource("r://1")
    assert refused.value.code == -32602
    assert refused.value.message == "Cannot read r://1: this context has no server"


async def test_a_thread_that_waits_in_a_context_is_released_when_its_call_ends() -> None:
    context, begun = Context(exchange()), asyncio.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(asyncio.to_thread(context.wait, forever()))
    async with asyncio.timeout(5):
        await begun.wait()
        assert context.cancelled is False
        context.check_cancelled()
        context.release()
        with pytest.raises(InputRoundEnded):
            await waiting
    assert context.cancelled is True
    with pytest.raises(asyncio.CancelledError):
        context.check_cancelled()


async def test_waiting_in_a_context_returns_the_result_of_the_awaitable() -> None:
    context = Context(exchange())

    async def fail() -> None:
        raise KeyError("x")

    async def double(number: int) -> int:
        return 2 * number

    async with asyncio.timeout(5):
        assert await asyncio.to_thread(context.wait, double(3)) == 6
        with pytest.raises(KeyError):
            await asyncio.to_thread(context.wait, fail())


async def test_cancelled_is_true_while_the_task_of_the_context_is_being_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    context = Context(exchange())
    task.cancel()
    assert context.cancelled is True
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    task.uncancel()
    assert context.cancelled is False


async def test_url_elicitation_raises_a_cannot_ask_error_for_older_revisions() -> None:
    context = context_of(Edge({}))
    given = context.exchange
    given.caller = replace(given.caller, revision=Revision("2025-06-18"))
    with pytest.raises(CannotAsk) as refused:
        await context.elicit_url("x?", "https://a.b/")
    assert refused.value.capability == "elicitation.url"


async def test_a_session_without_a_log_level_receives_messages_at_or_above_info() -> None:
    edge = Edge()
    context = context_of(edge)
    for level in ("debug", "info"):
        await context.log(level, "x", logger="l")
    told = {"level": "info", "data": "x", "logger": "l"}
    assert edge.told == [("notifications/message", told)]
