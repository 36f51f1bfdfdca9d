"""Interceptors that wait for nothing are led through by hand, and nobody can tell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs
from rawends import HANDSHAKE, Client, Scene, Server, scene

from fairlead.errors import ChannelClosed, RpcError
from fairlead.gateway.interceptors import Allow, RateLimit, Redact
from fairlead.gateway.stepping import Cancellable, Chain, Steps
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    Interceptor,
    Outcome,
    Proceed,
    TwoHalves,
    chain,
)
from fairlead.protocol.caller import Caller, read_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.principal import ANONYMOUS
from fairlead.protocol.revisions import NEWEST
from fairlead.wire import Request

LIMIT = 10.0


def exchange(method: str = "tools/call") -> Exchange:
    params = Raw(b'{"name":"x"}')
    return Exchange(
        Request(1, method, params),
        Caller(NEWEST, True, ANONYMOUS),
        read_head(params),
        Direction.CLIENT_TO_SERVER,
        TransportContext(transport_type="memory"),
        None,  # type: ignore[arg-type]  # nobody looks at it
    )


class Quick:
    """Says that it never waits."""

    waits: ClassVar = False

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


class Half(TwoHalves):
    """The same in two halves."""

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
    *(b'{"ok":1}', None, RpcError(-2, "the server says no"), ChannelClosed("gone")),
    ChannelClosed("never sent", delivered=False),
)


class Told:
    """What the server was asked; it hears why nobody wants that any more."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cancel(self, reason: str) -> None:
        self.reasons.append(reason)


class Led(Steps):
    """Asks somebody who answers in the next turn of the loop, at once, or the usual way."""

    __slots__ = ("_behind", "outcome", "usual")

    def __init__(self, way: Chain, behind: Callable[[Exchange], Answer], *, usual: bool) -> None:
        super().__init__(way)
        self._behind = behind
        self.usual = usual
        self.outcome: asyncio.Future[Answer | Exception]
        self.outcome = asyncio.get_running_loop().create_future()

    def begin(self, exchange: Exchange) -> None:
        """As a shortcut does it, but for what it does itself."""
        way, afters = self._chain, self._afters
        try:
            exchange = way.lead_in(exchange, afters)
        except Exception as exc:
            self.refuse(afters, exc)
            return
        if way.enter is not None and not way.rest_passes(exchange):
            self.enter(exchange, afters)
        elif (asked := self.ask(exchange)) is None:
            self.adopt(exchange, afters)
        else:
            self._asked, self._under_way = exchange, asked

    def ask(self, exchange: Exchange) -> Cancellable | None:
        if self.usual:
            return None

        def answer() -> None:
            try:
                self.answered(self._behind(exchange))
            except Exception as exc:
                self.answered(exc)

        asyncio.get_running_loop().call_soon(answer)
        return Told()

    def done(self, outcome: Answer | Exception) -> None:
        self.outcome.set_result(outcome)


@given(
    what=st.lists(st.sampled_from(WHAT + HALVES), max_size=4),
    outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3),
    usual=st.booleans(),
)
def test_the_outcome_is_that_of_a_task(
    what: list[str], outcomes: list[Answer | Exception], usual: bool
) -> None:
    """Whatever interceptors do, and whatever comes back: the same happens in the same order."""

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

        led = Led(Chain([made(one, log) for one in what], handler), answer, usual=usual)
        led.begin(exchange())
        assert not led.outcome.done()
        outcome = await led.outcome
        return repr(outcome) if isinstance(outcome, Exception) else outcome, log

    if what:
        assert asyncio.run(in_a_task()) == asyncio.run(by_hand())


def _is_unsent(outcome: object) -> bool:
    return isinstance(outcome, ChannelClosed) and not outcome.delivered


async def test_what_was_never_sent_takes_the_usual_way() -> None:
    log: list[str] = []

    async def usual(exchange: Exchange) -> Answer:
        log.append("the usual way")
        return b'{"late":1}'

    def fails(exchange: Exchange) -> Answer:
        raise ChannelClosed("never sent", delivered=False)

    led = Led(Chain([Quick("passes", log)], usual), fails, usual=False)
    led.begin(exchange())
    assert await led.outcome == b'{"late":1}'
    assert log == ["passes in", "the usual way", "passes out: b'{\"late\":1}'"]


class Silent(Led):
    """Nobody ever answers."""

    __slots__ = ("told",)

    def ask(self, exchange: Exchange) -> Cancellable | None:
        asked = Told()
        self.told = asked.reasons
        return None if self.usual else asked


@pytest.mark.parametrize("turns", [0, 1], ids=["at once", "later"])
@pytest.mark.parametrize("what", ["passes", "half passes"])
@pytest.mark.parametrize("usual", [False, True])
async def test_who_is_cancelled_hears_it_and_nobody_else_hears_anything(
    usual: bool, what: str, turns: int
) -> None:
    log: list[str] = []

    async def waiting(exchange: Exchange) -> Answer:
        await asyncio.Event().wait()
        return b"{}"

    way = Chain([made("half passes", log), made(what, log)], waiting)
    led = Silent(way, lambda _: None, usual=usual)
    led.begin(exchange())
    for _ in range(turns):
        await asyncio.sleep(0)
    led.cancel("enough")
    led.answered(b"{}")  # too late
    for _ in range(3):
        await asyncio.sleep(0)
    assert log[2:] == [f"{what} out: CancelledError", "half passes out: CancelledError"]
    assert led.told == ([] if usual else ["enough"])
    assert not led.outcome.done()


class Stubborn:
    """Makes an answer of a cancellation, after a while."""

    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return b'{"late":1}'


async def test_the_first_ones_hear_of_the_end_whatever_becomes_of_a_cancellation() -> None:
    log: list[str] = []

    async def waiting(exchange: Exchange) -> Answer:
        await asyncio.Event().wait()
        return b"{}"

    led = Silent(Chain([made("half passes", log), Stubborn()], waiting), lambda _: None, usual=True)
    led.begin(exchange())
    await asyncio.sleep(0)
    led.cancel("enough")
    async with asyncio.timeout(LIMIT):
        while len(log) < 2:
            await asyncio.sleep(0)
    assert log == ["half passes in", "half passes out: b'{\"late\":1}'"]
    assert not led.outcome.done()


class Why(TwoHalves):
    """Keeps the outcome."""

    outcome: Outcome = None

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        return exchange, self.after

    def after(self, outcome: Outcome) -> Outcome:
        self.outcome = outcome
        return outcome


@pytest.mark.parametrize("turns", [0, 1], ids=["at once", "later"])
async def test_the_reason_of_a_cancellation_is_kept(turns: int) -> None:
    async def waiting(exchange: Exchange) -> Answer:
        await asyncio.Event().wait()
        return b"{}"

    why = Why()
    led = Silent(Chain([why], waiting), lambda _: None, usual=True)
    led.begin(exchange())
    for _ in range(turns):
        await asyncio.sleep(0)
    led.cancel("enough")
    async with asyncio.timeout(LIMIT):
        while why.outcome is None:
            await asyncio.sleep(0)
    assert isinstance(why.outcome, asyncio.CancelledError)
    assert why.outcome.args == ("enough",)


def test_whoever_may_wait_is_not_led() -> None:
    async def somebody(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    async def usual(exchange: Exchange) -> Answer:
        return None

    class Now:
        now = True

        @property
        def waits(self) -> bool:
            return self.now

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return await proceed(exchange)

    assert not Chain([Quick("passes", []), somebody], usual).possible
    changing = Now()
    way = Chain([Quick("passes", []), changing], usual)
    assert way.possible
    assert not way.quick
    changing.now = False
    assert way.quick


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
async def test_no_request_overtakes_another(interceptors: tuple[Interceptor, ...]) -> None:
    """Some need a task and some do not; the server sees them as they were sent."""
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
async def test_a_refusal_needs_no_server() -> None:
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
    """Waits, where it has anything to do."""

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
async def test_who_says_that_it_is_not_his_business_is_left_out() -> None:
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
async def test_what_is_asked_behind_initialize_stays_in_order(
    interceptors: tuple[Interceptor, ...],
) -> None:
    """A client that does not wait for the handshake is served all the same, first things first."""
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
