"""Mixed load with many failures, where each request must have exactly one outcome.

Sessions and stateless clients whose ids collide cancel calls that are being answered, flood and
disconnect; servers answer late, twice, incorrectly or never, and die; rules change meanwhile, and
interceptors fail. No state is left at the end.
"""

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

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
from fairlead.recording.tape import TapeWriter
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.raw_relay import Client, Scene, Server, scene

pytestmark = pytest.mark.slow  # runs in `make test-all`

LIMIT = 20.0
KINDS = (
    *("echo", "echo", "echo", "late", "twice", "garbage", "nonsense", "refuse", "progress"),
    *("hang", "blocked", "fails", "fails behind", "fails by hand", "waits", "big"),
)
RESULTS: tuple[Any, ...] = ([], None, 5, "text", {"content": 5}, {"_meta": []}, [[{}]])


# Servers


class Rough:
    """A handler for all relay connections whose answer depends on the kind of call."""

    def __init__(self, place: Scene, dice: random.Random, *, dies: bool) -> None:
        self._place, self._dice, self._dies = place, dice, dies
        self._tasks: set[asyncio.Task[None]] = set()
        self._start(self._accept())

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                self._start(self._read(await self._place.server()))

    async def _read(self, server: Server) -> None:
        while line := await server.inbox.get():
            message = json.loads(line)
            if message.get("method") == "subscriptions/listen":
                tag = {"io.modelcontextprotocol/subscriptionId": message["id"]}
                heard = {"notifications": message["params"]["notifications"], "_meta": tag}
                server.tell("notifications/subscriptions/acknowledged", heard)
            if message.get("method") == "tools/call":
                self._start(self._answer(server, message))
                if self._dies and self._dice.random() < 0.02:
                    await server.close()
                    return

    async def _answer(self, server: Server, request: dict[str, Any]) -> None:
        arguments = request["params"]["arguments"]
        kind, tag = arguments["kind"], arguments["tag"]
        result = {"content": [], "tag": tag}
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        match kind:
            case "hang":
                return
            case "late":
                await asyncio.sleep(self._dice.random() * 0.02)
            case "garbage":
                server.send(self._dice.choice(['{"half":', "chatter", "[]", '{"id":1}', "\0"]))
                server.send({"id": 10**9, "result": {"tag": "nobody asked"}})
            case "nonsense":
                server.reply(request, self._dice.choice(RESULTS))
                return
            case "refuse":
                server.refuse(request, 7, tag)
                return
            case "progress":
                token = request["params"]["_meta"]["progressToken"]
                for n in range(self._dice.randrange(30)):
                    note = {"progressToken": token, "progress": n, "message": tag}
                    server.tell("notifications/progress", note)
                server.tell("notifications/progress", {"progressToken": -1, "progress": 1})
            case "big":
                result["content"] = [{"type": "text", "text": tag * 3000}]
            case "twice":
                server.reply(request, result)
                result = {"content": [], "tag": "the second time"}
        server.reply(request, result)

    async def close(self) -> None:
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(self._tasks)


# Interceptors


def _arguments(exchange: Exchange) -> dict[str, Any]:
    if exchange.method != "tools/call":
        return {}
    found: dict[str, Any] = json.loads(bytes(exchange.head.arguments))  # type: ignore[arg-type]
    return found


class Flaky(SyncInterceptor):
    """An interceptor that fails before or after a call."""

    begun = ended = 0

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        kind = _arguments(exchange).get("kind")
        if kind == "fails":
            raise OSError("before")
        if kind is None:
            return exchange, None
        self.begun += 1

        def after(outcome: Outcome) -> Outcome:
            self.ended += 1
            if kind in ("fails behind", "fails by hand"):
                raise asyncio.CancelledError
            return outcome

        return exchange, after


class ByHand:
    """A coroutine interceptor that is called without a task, although it may sleep."""

    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        kind = _arguments(exchange).get("kind")
        if kind == "waits":
            await asyncio.sleep(0.001)
        answer = await proceed(exchange)
        if kind == "fails by hand":
            raise LookupError("behind")
        return answer


class Looks:
    """An interceptor that requires a task for some calls."""

    def passes(self, exchange: Exchange) -> bool:
        return bool(hash(str(exchange.target)) % 2)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        await asyncio.sleep(0)
        return await proceed(exchange)


def write_rules(path: Path, number: int) -> None:
    rules: list[dict[str, Any]] = [{"name": "no", "when": {"tool": "blocked"}, "do": "block"}]
    when: dict[str, Any]
    if number % 2:
        when = {"params": {"arguments.kind": {"in": ["late", "echo"]}}}
        rules.append({"name": "seen", "when": when, "do": {"size": {"params": 1 << 20}}})
    if number % 3 == 0:
        when = {"result": {"tag": {"exists": True}}}
        rules.append({"name": "answer", "when": when, "do": {"size": {"result": 1 << 20}}})
    if number % 5 == 4:
        rules.append({"name": "bad", "when": {"nobody": "knows"}, "do": "block"})  # an invalid rule
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"rules": rules}))
    fresh.rename(path)


# Clients


class Caller:
    """A client with many concurrent calls that checks every message."""

    def __init__(self, client: Client, name: str, dice: random.Random, stateless: bool) -> None:
        self._client, self._name, self._dice, self._stateless = client, name, dice, stateless
        self._open: dict[Any, tuple[str, str]] = {}
        self._given_up: Counter[Any] = Counter()
        self._ids = itertools.count(1)
        self.ends: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        reading = asyncio.ensure_future(self._read())
        for number in range(count):
            self._send(self._dice.choice(KINDS))
            if self._dice.random() < 0.1:
                self._client.tell("notifications/vendor", {"n": number})
            if self._dice.random() < 0.25:
                await asyncio.sleep(0)
            if self._open and self._dice.random() < 0.15:
                self._cancel(self._dice.choice(list(self._open)))
            if len(self._open) > 20:
                await asyncio.sleep(0.002)
        try:
            async with asyncio.timeout(LIMIT / 2):
                while self._open:
                    await asyncio.sleep(0.002)
                    if reading.done():
                        reading.result()
        finally:
            reading.cancel()
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()

    def _send(self, kind: str) -> None:
        number = next(self._ids)
        # The ids collide with those of other clients. The id "7" differs from the id 7.
        request_id: Any = number if number % 3 else str(number - 1)
        tag = f"{self._name}/{number}"
        params: dict[str, Any] = {
            "name": "blocked" if kind == "blocked" else "tool",
            "arguments": {"kind": kind, "tag": tag},
        }
        meta: dict[str, Any] = {"progressToken": f"t{number}"} if kind == "progress" else {}
        if self._stateless:
            key = "io.modelcontextprotocol/"
            version = {f"{key}protocolVersion": "2026-07-28", f"{key}clientCapabilities": {}}
            meta |= version
        if meta:
            params["_meta"] = meta
        self._open[request_id] = kind, tag
        self._client.ask("tools/call", params, request_id)

    def _cancel(self, request_id: Any) -> None:
        self._open.pop(request_id)
        self._given_up[request_id] += 1
        self._client.tell("notifications/cancelled", {"requestId": request_id})
        self.ends["cancelled"] += 1

    async def _read(self) -> None:
        while line := await self._client._reader.readline():
            self._heard(json.loads(line))

    def _heard(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "notifications/progress":
            params = message["params"]
            who, number = params["message"].split("/")
            assert (who, params["progressToken"]) == (self._name, f"t{number}"), message
            return
        if method is not None:  # a restarted server may announce changed lists
            assert method.endswith("/list_changed"), message
            return
        request_id = message["id"]
        if request_id not in self._open:
            # At most one response may have been sent before the cancellation arrived.
            assert self._given_up[request_id] > 0, message
            self._given_up[request_id] -= 1
            return
        kind, tag = self._open.pop(request_id)
        if "error" in message:
            self.ends["error"] += 1
            if message["error"]["code"] == 7:
                assert message["error"]["message"] == tag
            return
        self.ends["result"] += 1
        assert kind not in ("blocked", "fails", "fails behind", "fails by hand", "refuse", "hang")
        result = message["result"]
        if kind != "nonsense":
            assert result["tag"] == tag, (kind, message)


# The test


def under_way(place: Scene) -> int:
    """Return the number of calls in progress at servers, excluding listen requests."""
    connections = place.relay.pool.connections
    calls = [call for connection in connections for call in connection.calls.values()]
    asked = sum(len(connection.peer.conversation._waiting) for connection in connections)
    listening = sum(place.era == "stateless" for _ in connections)
    return sum(call.exchange.method == "tools/call" for call in calls) + max(0, asked - listening)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Disable logging, because log records keep references."""
    logging.disable(logging.CRITICAL)
    yield None
    logging.disable(logging.NOTSET)


def left_over() -> Counter[str]:
    """Count the call objects that still exist."""
    gc.collect()
    kinds = {"_TaskedCall", "_ForwardedCall", "RelayedCall", "Pending", "CallbackPending"}
    found = [type(one) for one in gc.get_objects()]
    return Counter(
        one.__name__
        for one in found
        if one.__name__ in kinds and str(one.__module__).startswith("fairlead")
    )


def guards(path: Path, journal: Journal, flaky: Flaky, tape: Recorder | None) -> list[Interceptor]:
    first: list[Interceptor] = [] if tape is None else [tape]
    rules = RuleSet.of_file(path / "rules.json", interval=0.005)
    return [
        *(*first, Journaling(journal), Measuring(Metrics()), Allow(deny=["blocked"])),
        *(flaky, RateLimit(1e9), Redact(to="both"), SizeLimit(1 << 20, 1 << 20)),
        *(rules, ByHand()),
    ]


Arrange = Callable[[list[Interceptor], random.Random], Sequence[Interceptor]]
ARRANGED: dict[str, Arrange] = {
    "in order": lambda all_of_them, dice: all_of_them,
    "in halves": lambda all_of_them, dice: [
        o for o in all_of_them if isinstance(o, SyncInterceptor)
    ],
    "shuffled": lambda all_of_them, dice: dice.sample(all_of_them, len(all_of_them)),
    "with tasks": lambda all_of_them, dice: [*all_of_them[:4], Looks(), *all_of_them[4:]],
}


@contextlib.asynccontextmanager
async def changing_rules(path: Path) -> AsyncIterator[None]:
    async def change() -> None:
        for number in itertools.count(1):
            await asyncio.sleep(0.003)
            write_rules(path / "rules.json", number)

    task = asyncio.ensure_future(change())
    try:
        yield None
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.covers("GTW-04", "GTW-06")
@pytest.mark.parametrize("arranged", ARRANGED)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
async def test_each_request_has_exactly_one_outcome_under_load_with_failures(
    era: str, arranged: str, dies: bool, tmp_path: Path
) -> None:
    dice = random.Random(f"{era} {arranged} {dies}")
    before = left_over()  # objects left by other tests
    journal, flaky = Journal(), Flaky()
    write_rules(tmp_path / "rules.json", 0)
    with TapeWriter(tmp_path / "tape") as writer:
        tape = Recorder(writer)
        several = ARRANGED[arranged](guards(tmp_path, journal, flaky, tape), dice)
        async with (
            asyncio.timeout(LIMIT),
            scene(era, interceptors=several, call_timeout=0.5) as place,
            changing_rules(tmp_path),
        ):
            server = Rough(place, dice, dies=dies)
            callers = []
            for number in range(6):
                stateless = bool(number % 2)
                client = await (place.client() if stateless else place.session())
                callers.append(Caller(client, f"c{number}", dice, stateless))
            await asyncio.gather(*(caller.run(60) for caller in callers))
            while under_way(place):
                await asyncio.sleep(0.002)
            assert not any(
                session.peer.conversation.unanswered_count
                for session in place.relay._sessions_by_peer.values()
            )
            await server.close()
        assert not tape._under_way
    ends = sum((caller.ends for caller in callers), Counter[str]())
    assert ends.total() == 6 * 60
    assert min(ends["result"], ends["error"], ends["cancelled"]) > 10
    assert flaky.begun == flaky.ended
    assert journal.pending == 0
    assert left_over() - before == {}
