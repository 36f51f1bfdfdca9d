"""Requests that pass interceptors in halves: each is heard of once, whoever leaves."""

import asyncio
import contextlib
import json
import random

import pytest

from fairlead.interceptor import After, Exchange, Outcome, SyncInterceptor
from fairlead.policy.actions import Allow, RateLimit, Redact
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from tests.support.raw_relay import Scene, Server, scene

LIMIT = 20.0
CALL = "tools/call"


class Counts(SyncInterceptor):
    """How often it hears of calls, and of each."""

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
    """Progress right before each answer, so that it has to wait until that has passed."""

    async def serve(server: Server) -> None:
        while line := await server.inbox.get():
            message = json.loads(line)
            if message.get("method") != CALL:
                continue
            if dice.random() < dies:
                await server.close()
                return
            if dice.random() < 0.1:
                continue  # never answered
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
async def test_who_leaves_ends_what_it_asked_for_once(era: str, dies: float) -> None:
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
        while journal.pending or any(link.calls for link in place.relay.upstream.links):
            await asyncio.sleep(0.005)
        server.cancel()
        await asyncio.wait((server,))
    assert counts.begun > 100
    assert sorted(counts.heard) == list(range(counts.begun))
