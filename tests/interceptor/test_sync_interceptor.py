"""Tests of interceptors that consist of the functions `before` and `after`."""

import asyncio
import contextlib
import json
import random
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import After, Answer, Exchange, Outcome, SyncInterceptor
from fairlead.interceptor.sync_interceptor import checked_outcome
from fairlead.policy.actions import Allow, RateLimit, Redact
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from tests.support.raw_relay import Scene, Server, scene
from tests.support.single_exchange import Behind
from tests.support.single_exchange import exchange as single_exchange

LIMIT = 20.0
CALL = "tools/call"


class Counts(SyncInterceptor):
    """Interceptor that counts calls and their outcomes."""

    def __init__(self) -> None:
        self.begun = 0
        self.heard: list[int] = []

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method != CALL:
            return exchange, None
        number, self.begun = self.begun, self.begun + 1

        def after(outcome: Outcome) -> Outcome:
            self.heard.append(number)
            return outcome

        return exchange, after


async def serving(place: Scene, dice: random.Random, dies: float) -> None:
    """Answer calls with up to two progress notifications and a response.

    A server leaves a tenth of the calls unanswered, and disconnects with the probability `dies`.
    """

    async def serve(server: Server) -> None:
        while line := await server.inbox.get():
            message = json.loads(line)
            if message.get("method") != CALL:
                continue
            if dice.random() < dies:
                await server.close()
                return
            if dice.random() < 0.1:
                continue  # no response
            token = message["params"].get("_meta", {}).get("progressToken")
            for n in range(0 if token is None else dice.randrange(3)):
                server.tell("notifications/progress", {"progressToken": token, "progress": n})
            server.reply(message, {"content": []})

    async with asyncio.TaskGroup() as several:
        while True:
            with contextlib.suppress(TimeoutError):
                several.create_task(serve(await place.server()))


@pytest.mark.covers("GTW-04", "GTW-06")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("dies", [0.0, 0.02])
async def test_every_call_of_disconnecting_clients_has_one_outcome(era: str, dies: float) -> None:
    dice = random.Random(f"{era} {dies}")
    counts, journal = Counts(), Journal()
    guards = [Journaling(journal), counts, Allow(), RateLimit(1e9), Redact(to="both")]
    async with asyncio.timeout(LIMIT), scene(era, interceptors=guards, call_timeout=0.5) as place:
        server = asyncio.ensure_future(serving(place, dice, dies))

        async def visit(number: int) -> None:
            client = await (place.client() if number % 2 else place.session())
            for n in range(dice.randrange(1, 30)):
                params = {"name": "x", "arguments": {}}
                meta = {"progressToken": n} if dice.random() < 0.7 else {}
                if number % 2:
                    client.stateless(CALL, params, **meta)
                else:
                    client.ask(CALL, {**params, "_meta": meta} if meta else params)
                if dice.random() < 0.2:
                    client.tell("notifications/cancelled", {"requestId": 100 + dice.randrange(30)})
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
            if dice.random() < 0.5:
                with contextlib.suppress(AssertionError, TimeoutError):
                    async with asyncio.timeout(0.05):
                        while True:
                            await client.read()
            await client.close()

        for _ in range(3):
            async with asyncio.TaskGroup() as several:
                for number in range(8):
                    several.create_task(visit(number))
        while journal.pending or any(one.calls for one in place.relay.pool.connections):
            await asyncio.sleep(0.005)
        server.cancel()
        await asyncio.wait((server,))
    assert counts.begun > 100
    assert sorted(counts.heard) == list(range(counts.begun))


@pytest.mark.parametrize("outcome", [b"{}", Raw(b"{}"), None, ValueError("x"), RpcError(-1, "x")])
def test_bytes_none_and_exceptions_are_valid_outcomes_of_an_interceptor(outcome: object) -> None:
    assert checked_outcome(outcome) is outcome


@pytest.mark.parametrize(("outcome", "name"), [("text", "str"), ({}, "dict"), (1, "int")])
def test_an_outcome_of_the_wrong_type_raises_a_type_error(outcome: object, name: str) -> None:
    found = checked_outcome(outcome)
    assert isinstance(found, TypeError)
    assert str(found) == f"an interceptor must return bytes or None, not {name}"


class Halves(SyncInterceptor):
    """Interceptor that returns a given outcome and records the original one."""

    def __init__(self, instead: object = None, *, watches: bool = True) -> None:
        self.seen: list[object] = []
        self._instead, self._watches = instead, watches

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        return exchange, self._after if self._watches else None

    def _after(self, outcome: Outcome) -> Outcome:
        self.seen.append(outcome)
        found: Any = outcome if self._instead is None else self._instead
        return found  # type: ignore[no-any-return]


async def test_a_sync_interceptor_can_be_called_like_an_async_one() -> None:
    unwatched = Halves(watches=False)
    assert await unwatched(single_exchange(), Behind(b"1")) == b"1"
    assert unwatched.seen == []
    same = Halves()
    assert await same(single_exchange(), Behind(b"1")) == b"1"
    assert same.seen == [b"1"]
    assert await Halves(b"2")(single_exchange(), Behind(b"1")) == b"2"
    with pytest.raises(RpcError, match="refused"):
        await Halves(RpcError(-1, "refused"))(single_exchange(), Behind(b"1"))


async def test_an_exception_raised_by_a_request_is_passed_to_the_after_function() -> None:
    failure = RpcError(-5, "behind")

    async def fails(exchange: Exchange) -> Answer:
        raise failure

    same = Halves()
    with pytest.raises(RpcError) as seen:
        await same(single_exchange(), fails)
    assert (seen.value, same.seen) == (failure, [failure])
    assert await Halves(b"mended")(single_exchange(), fails) == b"mended"


async def test_calling_a_sync_interceptor_without_before_raises_not_implemented_error() -> None:
    with pytest.raises(NotImplementedError):
        await SyncInterceptor()(single_exchange(), Behind())
