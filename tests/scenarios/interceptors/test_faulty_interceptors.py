"""Faulty interceptors, which must cause one error and leave no state."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.errors import ConnectFailed, RpcError
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    Interceptor,
    Outcome,
    Proceed,
    SyncInterceptor,
)
from fairlead.observe.metrics import Metrics
from fairlead.policy.actions import Allow, RateLimit, Redact, SizeLimit
from fairlead.policy.actions.call_metrics import Measuring
from fairlead.policy.rules import RuleSet
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from tests.support.raw_relay import Client, Scene, Server, scene

LIMIT = 10.0
CALL = "tools/call"


class Half(SyncInterceptor):
    """A synchronous interceptor that counts starts and ends of calls."""

    def __init__(
        self,
        before: Callable[[Exchange], Any] | None = None,
        after: Callable[[Outcome], Any] | None = None,
    ) -> None:
        self._before, self._after = before, after
        self.begun, self.ended = 0, 0

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method != CALL:
            return exchange, None
        if self._before is not None:
            found: tuple[Exchange, After | None] = self._before(exchange)
            return found
        self.begun += 1
        return exchange, self._over

    def _over(self, outcome: Outcome) -> Outcome:
        self.ended += 1
        made: Outcome = outcome if self._after is None else self._after(outcome)
        return made


class Led:
    """A coroutine interceptor that runs without a task."""

    waits: ClassVar = False

    def __init__(self, act: Callable[[Exchange, Proceed], Awaitable[Any]]) -> None:
        self._act = act

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method != CALL:
            return await proceed(exchange)
        made: Answer = await self._act(exchange, proceed)
        return made


class Returning:
    """An interceptor that is not a coroutine and returns the result of `proceed`."""

    waits: ClassVar = False

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        return proceed(exchange)


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object) -> Any:
        raise error

    return act


async def _cancelled(exchange: Exchange, proceed: Proceed) -> Any:
    raise asyncio.CancelledError


async def _cancelled_after(exchange: Exchange, proceed: Proceed) -> Any:
    await proceed(exchange)
    raise asyncio.CancelledError


async def _waits_for_cancelled(exchange: Exchange, proceed: Proceed) -> Any:
    other = asyncio.ensure_future(asyncio.Event().wait())
    other.cancel()
    await other


async def _dict(exchange: Exchange, proceed: Proceed) -> Any:
    await proceed(exchange)
    return {"not": "bytes"}


BROKEN: dict[str, Callable[[], Interceptor]] = {
    "before fails": lambda: Half(before=raising(ValueError("x"))),
    "before cannot connect": lambda: Half(before=raising(ConnectFailed("x"))),
    "before is cancelled": lambda: Half(before=raising(asyncio.CancelledError())),
    "before returns nothing": lambda: Half(before=lambda exchange: None),
    "after fails": lambda: Half(after=raising(ValueError("x"))),
    "after is cancelled": lambda: Half(after=raising(asyncio.CancelledError())),
    "after says cancelled": lambda: Half(after=lambda outcome: asyncio.CancelledError()),
    "after returns a dict": lambda: Half(after=lambda outcome: {"not": "bytes"}),
    "after returns a text": lambda: Half(after=lambda outcome: "text"),
    "after returns a number": lambda: Half(after=lambda outcome: 3),
    "a coroutine is cancelled": lambda: Led(_cancelled),
    "a coroutine is cancelled after proceed": lambda: Led(_cancelled_after),
    "a coroutine awaits a cancelled task": lambda: Led(_waits_for_cancelled),
    "a coroutine returns a dict": lambda: Led(_dict),
}


@contextlib.asynccontextmanager
async def between(*interceptors: Interceptor) -> AsyncIterator[tuple[Scene, Client, Server]]:
    async with scene(interceptors=interceptors) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        yield place, client, server


async def answering(server: Server) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            server.reply(await server.method(CALL), {"ok": 1})


def nothing_left(place: Scene) -> bool:
    (session,) = place.relay._sessions_by_peer.values()
    connections = place.relay.pool.connections
    asked = [one.calls or one.peer.conversation._waiting for one in connections]
    return not session.peer.conversation.unanswered_count and not any(asked)


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("place", ["first", "behind", "before"])
@pytest.mark.parametrize("what", BROKEN)
async def test_a_faulty_interceptor_causes_exactly_one_internal_error(
    what: str, place: str
) -> None:
    """Test the interceptor alone, after a coroutine interceptor, and before one."""
    journal, outer = Journal(), Half()
    passing = Led(lambda exchange, proceed: proceed(exchange))
    broken = BROKEN[what]()
    around = {"first": [broken], "behind": [passing, broken], "before": [broken, passing]}[place]
    async with between(Journaling(journal), outer, *around) as (here, client, server):
        serving = asyncio.ensure_future(answering(server))
        for _ in range(2):
            answer = await client.answer_to(client.ask(CALL, {"name": "x"}))
            assert answer["error"] == {"code": -32603, "message": "Internal error"}
        await client.sync()
        assert not [one for one in client.skipped if "id" in one]
        assert nothing_left(here)
        serving.cancel()
    assert (outer.begun, outer.ended) == (2, 2)
    assert journal.pending == 0
    # In a task, a cancellation caused by an interceptor cannot be distinguished from the client's.
    state = "cancelled" if "cancelled" in what or "waits" in what else "lost"
    states = [one.state for one in journal.records() if one.method == CALL]
    assert set(states) <= {"lost", state}
    assert len(states) == 2


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("what", BROKEN)
async def test_a_faulty_interceptor_of_a_server_causes_one_internal_error(what: str) -> None:
    journal = Journal()
    broken = BROKEN[what]()
    server = MCPServer("one", rate_limit_rate=0, interceptors=[Journaling(journal), broken])

    @server.tool()
    def say() -> str:
        return "said"

    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(server) as client:
        with pytest.raises(RpcError, match="Internal error"):
            await client.call_tool("say", {})
        assert [tool["name"] for tool in await client.list_tools()] == ["say"]
    assert journal.pending == 0


class Strict(Allow):
    """A subclass that overrides `__call__`."""

    seen = 0

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen += exchange.method == CALL
        return await super().__call__(exchange, proceed)


class Stricter(Allow):
    """A subclass that overrides `before`."""

    seen = 0

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        self.seen += exchange.method == CALL
        return super().before(exchange)


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("kind", [Strict, Stricter])
@pytest.mark.parametrize("behind", [False, True])
async def test_a_subclass_with_overridden_methods_is_called(
    kind: type[Strict | Stricter], behind: bool
) -> None:
    strict = kind()
    returning: Any = Returning()
    first: list[Interceptor] = [returning] if behind else []
    async with between(*first, strict) as (_, client, server):
        for _ in range(3):
            call = client.ask(CALL, {"name": "x"})
            server.reply(await server.method(CALL), {})
            assert (await client.answer_to(call))["result"] == {}
    assert strict.seen == 3


class Unsure:
    """An interceptor whose `passes` method raises; its `__call__` forwards every exchange."""

    seen = 0

    def passes(self, exchange: Exchange) -> bool:
        raise LookupError("no idea")

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen += exchange.method == CALL
        return await proceed(exchange)


@pytest.mark.parametrize("first", [(), (Allow(),), (Half(),)], ids=["alone", "allow", "half"])
async def test_an_interceptor_whose_passes_method_raises_is_called(
    first: tuple[Interceptor, ...],
) -> None:
    unsure = Unsure()
    async with between(*first, unsure) as (here, client, server):
        call = client.ask(CALL, {"name": "x"})
        server.reply(await server.method(CALL), {"ok": 1})
        assert (await client.answer_to(call))["result"] == {"ok": 1}
        assert nothing_left(here)
    assert unsure.seen == 1


class Stumbles:
    """An interceptor that awaits a cancelled task for one notification."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "notifications/stumble":
            other = asyncio.ensure_future(asyncio.Event().wait())
            other.cancel()
            await other
        return await proceed(exchange)


@pytest.mark.covers("GTW-06")
async def test_messages_are_still_forwarded_after_an_interceptor_failed_on_a_notification() -> None:
    async with between(Stumbles()) as (_, client, server):
        client.tell("notifications/stumble")
        client.tell("notifications/from_client")
        server.tell("notifications/stumble")
        server.tell("notifications/from_server")
        assert (await server.read())["method"] == "notifications/from_client"
        assert (await client.read())["method"] == "notifications/from_server"
        call = client.ask(CALL, {"name": "x"})
        server.reply(await server.method(CALL), {"ok": 1})
        assert (await client.answer_to(call))["result"] == {"ok": 1}


GUARDS: tuple[Callable[[], Interceptor], ...] = (
    lambda: Journaling(Journal(max_entries=1)),
    lambda: Measuring(Metrics()),
    Allow,
    lambda: RateLimit(1e6),
    lambda: Redact(to="both"),
    lambda: SizeLimit(1 << 20, 1 << 20),
    lambda: RuleSet.of_data({"rules": [{"when": {"tool": "y"}, "do": "block"}]}),
)


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("end", ["answered", "refused", "cancelled", "blocked"])
async def test_a_call_with_interceptors_leaves_no_reference_cycles(end: str) -> None:
    """The objects of a call are freed when it ends, without the garbage collector."""
    async with between(*(make() for make in GUARDS)) as (here, client, server):

        async def once() -> None:
            call = client.ask(CALL, {"name": "y" if end == "blocked" else "x"})
            if end == "blocked":
                await client.answer_to(call)
                return
            asked = await server.method(CALL)
            if end == "cancelled":
                client.tell("notifications/cancelled", {"requestId": call})
                await server.method("notifications/cancelled")
                return
            server.refuse(asked, 1, "no") if end == "refused" else server.reply(asked, {})
            await client.answer_to(call)

        async def left_by(count: int) -> dict[str, int]:
            await client.sync()
            gc.collect()
            gc.disable()
            try:
                before = _ours()
                for _ in range(count):
                    await once()
                await client.sync()
                server.seen.clear()
                after = _ours()
            finally:
                gc.enable()
            return {name: n - before.get(name, 0) for name, n in after.items()}

        await left_by(5)  # warm up: caches are filled once
        left = await left_by(40)
        assert {name: n for name, n in left.items() if n >= 20} == {}
        assert nothing_left(here)


def _ours() -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith("fairlead") or kind.__name__ in ("coroutine", "Task"):
            counts[kind.__qualname__] = counts.get(kind.__qualname__, 0) + 1
    return counts
