"""Interceptors that run without a task, with the same outcome as in a task."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from fairlead.errors import ChannelClosed, RpcError
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    Interceptor,
    Outcome,
    Proceed,
    SyncInterceptor,
    chain,
)
from fairlead.policy.actions import Allow, RateLimit, Redact
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.revisions import NEWEST
from fairlead.relay.fastpath.sync_chain import (
    ContinuedCall,
    SyncChain,
    unwind,
    without_stray_cancellation,
)
from fairlead.wire import Request
from tests.support.raw_relay import HANDSHAKE, Client, Scene, Server, scene

LIMIT = 10.0


def exchange(method: str = "tools/call") -> Exchange:
    params = Raw(b'{"name":"x"}')
    return Exchange(
        Request(1, method, params),
        Caller(NEWEST, True, ANONYMOUS),
        read_params_head(params),
        Direction.CLIENT_TO_SERVER,
        TransportContext(transport_type="memory"),
        None,  # type: ignore[arg-type]  # unused here
    )


class Quick:
    """Asynchronous interceptor with one of several behaviours."""

    def __init__(self, what: str, log: list[str]) -> None:
        self.what = what
        self.log = log

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.log.append(f"{self.what} in")
        try:
            answer = await self.act(exchange, proceed)
        except BaseException as exc:
            self.log.append(f"{self.what} out: {type(exc).__name__}")
            raise
        self.log.append(f"{self.what} out: {bytes(answer or b'')!r}")
        return answer

    async def act(self, exchange: Exchange, proceed: Proceed) -> Answer:
        match self.what:
            case "refuses":
                raise RpcError(-1, "no")
            case "answers":
                return b'{"mine":1}'
            case "asks twice":
                await proceed(exchange)
            case "tries again":
                with contextlib.suppress(RpcError):
                    return await proceed(exchange)
            case "breaks":
                await proceed(exchange)
                raise ValueError("broken")
            case "changes":
                message = structs.replace(exchange.message, params=Raw(b'{"changed":true}'))
                exchange = structs.replace(exchange, message=message)
            case "waits before":
                await asyncio.sleep(0)
            case "waits behind":
                answer = await proceed(exchange)
                await asyncio.sleep(0.001)
                return answer
        return await proceed(exchange)


class Half(SyncInterceptor):
    """Synchronous interceptor with the behaviours of `Quick`."""

    def __init__(self, what: str, log: list[str]) -> None:
        self.what = what
        self.log = log

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        self.log.append(f"{self.what} in")
        match self.what:
            case "half refuses":
                raise RpcError(-1, "no")
            case "half breaks":
                raise ValueError("broken")
            case "half changes":
                message = structs.replace(exchange.message, params=Raw(b'{"changed":true}'))
                exchange = structs.replace(exchange, message=message)
            case "half only looks":
                return exchange, None
        return exchange, self.after

    def after(self, outcome: Outcome) -> Outcome:
        failed = isinstance(outcome, BaseException)
        self.log.append(f"{self.what} out: {type(outcome).__name__ if failed else bytes(outcome)}")
        match self.what:
            case "half mends" if isinstance(outcome, Exception):
                return b'{"mended":1}'
            case "half turns" if not failed:
                return RpcError(-3, "no more")
            case "half breaks behind":
                raise ValueError("broken")
        return outcome


def made(what: str, log: list[str]) -> Interceptor:
    return Half(what, log) if what in HALVES else Quick(what, log)


WHAT = (
    *("passes", "refuses", "answers", "asks twice", "tries again"),
    *("breaks", "changes", "waits before", "waits behind"),
)
HALVES = (
    *("half passes", "half refuses", "half breaks", "half changes", "half only looks"),
    *("half mends", "half turns", "half breaks behind"),
)
OUTCOMES: tuple[Answer | Exception, ...] = (
    *(b'{"ok":1}', None, RpcError(-2, "refused by the server"), ChannelClosed("gone")),
    ChannelClosed("never sent", delivered=False),
)


async def led(
    way: SyncChain, behind: Callable[[Exchange], Answer], at_once: bool
) -> Answer | Exception:
    """Pass a request through a chain as the relay does; `behind` acts as the server."""
    outcome: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
    afters: list[After] = []
    try:
        asked = way.lead_in(exchange(), afters)
    except Exception as exc:
        return unwind(afters, without_stray_cancellation(exc))
    if at_once and way.rest_passes(asked):
        try:
            return unwind(afters, behind(asked))
        except Exception as exc:
            return unwind(afters, exc)
    ContinuedCall(way.rest, asked, afters, outcome.set_result)
    assert not outcome.done()
    return await outcome


@given(
    what=st.lists(st.sampled_from(WHAT + HALVES), max_size=4),
    outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3),
    at_once=st.booleans(),
)
def test_interceptors_without_a_task_behave_like_interceptors_in_a_task(
    what: list[str], outcomes: list[Answer | Exception], at_once: bool
) -> None:
    """The outcome and the order of calls are the same with and without a task."""

    def behind(log: list[str]) -> Callable[[Exchange], Answer]:
        left = [one for one in outcomes if not _is_unsent(one)] or [b"{}"]

        def answer(exchange: Exchange) -> Answer:
            log.append(f"asked {bytes(cast(Raw, exchange.message.params))!r}")
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, Exception):
                raise one
            return one

        return answer

    async def in_a_task() -> tuple[Any, list[str]]:
        log: list[str] = []
        answer = behind(log)

        async def handler(exchange: Exchange) -> Answer:
            return answer(exchange)

        try:
            return await chain([made(one, log) for one in what], handler)(exchange()), log
        except Exception as exc:
            return repr(exc), log

    async def by_hand() -> tuple[Any, list[str]]:
        log: list[str] = []
        answer = behind(log)

        async def handler(exchange: Exchange) -> Answer:
            return answer(exchange)

        outcome = await led(SyncChain([made(one, log) for one in what], handler), answer, at_once)
        return repr(outcome) if isinstance(outcome, Exception) else outcome, log

    if what:
        assert asyncio.run(in_a_task()) == asyncio.run(by_hand())


def _is_unsent(outcome: object) -> bool:
    return isinstance(outcome, ChannelClosed) and not outcome.delivered


async def forever(exchange: Exchange) -> Answer:
    await asyncio.Event().wait()
    return b"{}"


def continued(*interceptors: Interceptor) -> tuple[ContinuedCall, list[Answer | Exception]]:
    """Start a call that gets no response; return it and the list of its outcomes."""
    way = SyncChain(interceptors, forever)
    afters: list[After] = []
    outcomes: list[Answer | Exception] = []
    asked = way.lead_in(exchange(), afters)
    return ContinuedCall(way.rest, asked, afters, outcomes.append), outcomes


class Stubborn:
    """Interceptor that converts a cancellation into a result."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return b'{"late":1}'


async def test_synchronous_interceptors_get_the_outcome_if_the_cancellation_is_suppressed() -> None:
    log: list[str] = []
    call, outcomes = continued(made("half passes", log), Stubborn())
    await asyncio.sleep(0)
    call.cancel("enough")
    async with asyncio.timeout(LIMIT):
        while len(log) < 2:
            await asyncio.sleep(0)
    assert log == ["half passes in", "half passes out: b'{\"late\":1}'"]
    assert outcomes == []


class Why(SyncInterceptor):
    """Interceptor that records the outcome of a request."""

    outcome: Outcome = None

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        return exchange, self.after

    def after(self, outcome: Outcome) -> Outcome:
        self.outcome = outcome
        return outcome


@pytest.mark.parametrize("turns", [0, 1], ids=["before it started", "later"])
async def test_the_reason_for_a_cancellation_reaches_the_interceptors(turns: int) -> None:
    why = Why()
    call, outcomes = continued(why)
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel("enough")
    async with asyncio.timeout(LIMIT):
        while why.outcome is None:
            await asyncio.sleep(0)
    assert isinstance(why.outcome, asyncio.CancelledError)
    assert why.outcome.args == ("enough",)
    assert outcomes == []
    await asyncio.sleep(0)
    assert call._task.cancelled()


def test_a_chain_with_an_asynchronous_interceptor_without_passes_needs_a_task() -> None:
    assert SyncChain([], forever).possible
    assert SyncChain([made("half passes", [])], forever).possible
    assert not SyncChain([made("passes", [])], forever).possible
    assert not SyncChain([made("half passes", []), made("passes", [])], forever).possible


# Through a relay


@contextlib.asynccontextmanager
async def between(*interceptors: Interceptor) -> AsyncIterator[tuple[Scene, Client, Server]]:
    async with scene(interceptors=interceptors) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        yield place, client, server


GUARDS: tuple[Interceptor, ...] = (Allow(), RateLimit(1e6), Redact(to="both"))


@pytest.mark.covers("GTW-04", "GTW-06")
@pytest.mark.parametrize("interceptors", [(), GUARDS], ids=["bare", "guarded"])
async def test_requests_with_and_without_a_task_stay_in_order(
    interceptors: tuple[Interceptor, ...],
) -> None:
    methods = ["tools/call", "logging/setLevel", "tools/list", "vendor/one", "tools/call", "x/y"]
    async with between(*interceptors) as (_, client, server):
        for round_number in range(5):
            before = len(server.seen)
            lines = [
                {"id": f"{round_number}-{n}", "method": method, "params": {"level": "info"}}
                for n, method in enumerate(methods)
            ]
            for line in lines:
                client.send(line)
            async with asyncio.timeout(LIMIT):
                while len(server.seen) < before + len(methods):
                    await asyncio.sleep(0.001)
            assert [one["method"] for one in server.seen[before:]] == methods
            for one in server.seen[before:]:
                if one["method"] != "logging/setLevel":
                    server.reply(one, {})
            answered = {(await client.read())["id"] for _ in lines}
            assert answered == {line["id"] for line in lines}


@pytest.mark.covers("GTW-06")
async def test_a_request_that_an_interceptor_rejects_does_not_reach_the_server() -> None:
    async with between(*GUARDS, Allow(deny=["x"])) as (_, client, server):
        answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
        assert "not allowed" in answer["error"]["message"]
        assert not [one for one in server.seen if one.get("method") == "tools/call"]


@pytest.mark.covers("GTW-06")
async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    log: list[str] = []
    async with between(Quick("passes", log), *GUARDS) as (_, client, server):
        call = client.ask("tools/call", {"name": "x"})
        asked = await server.method("tools/call")
        client.tell("notifications/cancelled", {"requestId": call, "reason": "enough"})
        told = await server.method("notifications/cancelled")
        assert told["params"] == {"requestId": asked["id"], "reason": "enough"}
        await client.sync()
        assert "passes out: CancelledError" in log


class Pausing:
    """Interceptor that waits during `tools/call` and is skipped for other requests."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.asked: list[str] = []

    def passes(self, exchange: Exchange) -> bool:
        self.asked.append(exchange.method)
        return exchange.method != "tools/call"

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen.append(exchange.method)
        await asyncio.sleep(0.001)
        return await proceed(exchange)


@pytest.mark.covers("GTW-06")
async def test_an_interceptor_whose_passes_method_returns_true_is_not_called() -> None:
    pausing = Pausing()
    async with between(pausing) as (_, client, server):
        for method in ("vendor/one", "tools/call", "vendor/two"):
            call = client.ask(method, {"name": "x"})
            server.reply(await server.method(method), {"n": 1})
            assert (await client.answer_to(call))["result"] == {"n": 1}
        assert {"vendor/one", "tools/call", "vendor/two"} <= set(pausing.asked)
        assert "tools/call" in pausing.seen
        assert not {"vendor/one", "vendor/two"} & set(pausing.seen)


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("interceptors", [(), GUARDS], ids=["bare", "guarded"])
async def test_requests_sent_right_after_initialize_stay_in_order(
    interceptors: tuple[Interceptor, ...],
) -> None:
    """Requests must not overtake `initialize` if the client does not wait for its response."""
    async with scene(interceptors=interceptors) as place:
        client = await place.client()
        said = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "hasty"}}
        client.ask("initialize", said)
        client.tell("notifications/initialized")
        asked = [client.ask("vendor/count", {"n": n}) for n in range(300)]
        server = await place.server()
        for n, request_id in enumerate(asked):
            request = await server.method("vendor/count")
            assert request["params"] == {"n": n}
            server.reply(request, {})
            await client.answer_to(request_id)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (b"{}", bytes),
        (Raw(b"{}"), Raw),
        (None, type(None)),
        (RpcError(5, "no"), RpcError),
        (asyncio.CancelledError(), RuntimeError),
        ("text", TypeError),
    ],
    ids=["bytes", "raw", "nothing", "error", "cancelled", "text"],
)
def test_unwinding_passes_the_outcome_through_every_interceptor(outcome: Any, kind: type) -> None:
    log: list[str] = []

    def first(found: Outcome) -> Outcome:
        log.append(type(found).__name__)
        return found

    def last(found: Outcome) -> Outcome:
        return outcome  # type: ignore[no-any-return]

    found = unwind([first, last], b"{}")
    assert type(found) is kind
    assert log == [kind.__name__]
    assert type(without_stray_cancellation(outcome)) is kind

    def raises(found: Outcome) -> Outcome:
        raise ZeroDivisionError

    assert isinstance(unwind([raises], b"{}"), ZeroDivisionError)
    cancelled = asyncio.CancelledError("enough")
    assert unwind([first], cancelled) is cancelled  # type: ignore[comparison-overlap]


class Look:
    """Interceptor whose `passes` returns or raises a given value."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def passes(self, exchange: Exchange) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


@pytest.mark.parametrize(
    ("answers", "passes"),
    [
        ([True], True),
        ([True, True], True),
        ([True, False], False),
        ([False], False),
        ([RpcError(5, "no")], False),
        ([ZeroDivisionError()], False),
        ([], False),
    ],
    ids=["one", "two", "not the second", "no", "refuses", "fails", "none"],
)
def test_a_chain_passes_a_request_if_all_interceptors_pass_it(
    answers: list[Any], passes: bool
) -> None:
    found = SyncChain([Look(answer) for answer in answers], forever)
    assert found.passes(exchange()) is passes
    assert len(found.looks) == len(answers)
    assert found.only_halves is (not answers)
    assert found.rest_passes(exchange()) is (passes or not answers)
    assert found.possible
