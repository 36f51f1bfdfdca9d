"""Gateway clients with two connection keys, whose server processes fail during calls.

The clients of each key call a two-era server at both endpoints without a pause. The server records
and returns the number of every call, so lost, repeated and exchanged calls are detected.
"""

import asyncio
import itertools
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import RpcError
from fairlead.wire.error_codes import INTERNAL_ERROR
from tests.support.faulty_servers import nothing_left, until
from tests.support.fragile_two_era_server import FragileServer
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    Client,
    connect,
    gateway_for,
)

LIMIT = 50.0  # seconds for one test on a busy machine
CALLS = 2  # concurrent calls of each client
RETRY = 0.02  # seconds between a failed call and the next one

_LOST = "was ended by SIGKILL|closed the connection"
ERRORS = {
    "killed": _LOST,
    "hangs": "did not answer within|does not respond|is still starting",
    "exits": f"{_LOST}|exited with code 3 during start-up",
}
# A hang is detected after the call timeout, one more second and a ping.
# With "exits", each key has only one process, so that the next call causes a start, which fails.
SETTINGS: dict[str, dict[str, Any]] = {
    "killed": {},
    "hangs": {"call_timeout": 3.0, "hang_timeout": 1.0},
    "exits": {"turn_wait": LIMIT},
}


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


class KeyClients:
    """The clients of one connection key, and the outcomes of their calls."""

    def __init__(self, kind: str, numbers: Iterator[int], seed: str) -> None:
        """Take the kind of the serving processes, an iterator of call numbers, and a seed."""
        self.kind = kind
        self.clients: list[Client] = []
        self.expected = ""  # a regular expression for the errors that are allowed now
        self.processes: dict[int, int] = {}  # process ids by the numbers of successful calls
        self.errors: dict[int, RpcError] = {}  # errors by the numbers of failed calls
        self.stopped = False
        self._begun: set[int] = set()
        self._numbers = numbers
        self._last: dict[object, int] = {}  # number of the last successful call, by caller
        self._dice = random.Random(f"{seed} {kind}")

    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[None]:
        """Connect one client to each endpoint."""
        declares = ("elicitation",) if self.kind == "asked" else ()
        version = STATELESS if self.kind == "stateless" else HANDSHAKE
        options: dict[str, Any] = {"version": version, "on_elicit": _return_number}
        async with AsyncExitStack() as stack:
            for endpoint in ENDPOINTS:
                attempt = connect(url, "notes", *declares, endpoint=endpoint, **options)
                self.clients.append(await stack.enter_async_context(attempt))
            yield

    def start(self, group: asyncio.TaskGroup) -> None:
        """Call until `stopped` is set."""
        for client in self.clients:
            for _ in range(CALLS):
                self._last[caller := object()] = -1
                group.create_task(self._call_repeatedly(caller, client))

    async def _call_repeatedly(self, caller: object, client: Client) -> None:
        tools = ("work", "ask") if self.kind == "asked" else ("work",)
        while not self.stopped:
            number = next(self._numbers)
            self._begun.add(number)
            try:
                text = await client.call(self._dice.choice(tools), number=number)
            except RpcError as exc:
                self._check_error(exc)
                self.errors[number] = exc
                await asyncio.sleep(RETRY)
            else:
                returned, process = map(int, text.split())
                assert returned == number
                self.processes[number] = process
                self._last[caller] = number

    def _check_error(self, exc: RpcError) -> None:
        assert self.expected, f"the processes of {self.kind} clients have not failed: {exc}"
        assert re.search(self.expected, exc.message), exc
        data = (exc.code, exc.data["source"], exc.data["server"])
        assert data == (INTERNAL_ERROR, "proxy", "notes")

    async def some_calls(self) -> None:
        """Wait until a random number of calls have a result."""
        count = len(self.processes) + self._dice.randrange(1, 20)
        await until(lambda: len(self.processes) >= count)

    async def recovered(self) -> None:
        """Wait until every caller has a result of a call that began after now."""
        now = next(self._numbers)
        await until(lambda: all(number > now for number in self._last.values()))

    def check(self, executed: Collection[int]) -> None:
        """Check that every call had one outcome, and that successful calls were executed."""
        assert sorted([*self.processes, *self.errors]) == sorted(self._begun)
        assert self.processes.keys() <= set(executed)
        assert [client.mcp.transport.peer.unmatched_count for client in self.clients] == [0, 0]


def _return_number(question: Any) -> Any:
    return {"action": "accept", "content": {"value": int(question.message)}}


class Failures:
    """Failures of server processes while calls are in progress."""

    def __init__(
        self, server: FragileServer, fault: str, keys: list[KeyClients], seed: str
    ) -> None:
        self._server, self._fault, self._keys = server, fault, keys
        self._dice = random.Random(seed)

    async def cause(self, *kinds: str) -> None:
        """Make a process of each kind fail, and return when all clients are served again."""
        affected = [one for one in self._keys if one.kind in kinds]
        for one in affected:
            one.expected = ERRORS[self._fault]
        for one in self._keys:
            await one.some_calls()
        exits = self._fault == "exits"
        failing = [self._server.fail_next_start(kind) for kind in kinds if exits]
        await until(lambda: all(self._server.running(kind) for kind in kinds))
        for kind in kinds:
            pid = self._dice.choice(self._server.running(kind))
            os.kill(pid, signal.SIGSTOP if self._fault == "hangs" else signal.SIGKILL)
        await until(lambda: not any(file.exists() for file in failing))
        for one in self._keys:
            await one.recovered()
        for one in affected:
            one.expected = ""


# Each round lists the kinds of processes that fail at the same time.
# More than five losses of a key within 30 s would suspend the key.
# A "stateless" process serves the lists.
ROUNDS: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("killed", "stateless"): [("asked",), ("stateless",), ("asked", "stateless")] * 2,
    ("killed", "plain"): [("asked",), ("plain",), ("stateless",), ("asked", "plain")] * 2,
    ("hangs", "stateless"): [("asked",), ("stateless",)],
    ("hangs", "plain"): [("asked",), ("plain",)],
    ("exits", "stateless"): [("asked",), ("stateless",)] * 2,
    ("exits", "plain"): [("asked",), ("plain",)] * 2,
}


@pytest.mark.parametrize(("fault", "other"), ROUNDS)
async def test_failing_processes_of_one_connection_key_do_not_affect_clients_of_the_other(
    tmp_path: Path, fault: str, other: str
) -> None:
    server, numbers, seed = FragileServer(tmp_path), itertools.count(), f"{fault} {other}"
    keys = [KeyClients(kind, numbers, seed) for kind in ("asked", other)]
    failures = Failures(server, fault, keys, seed)
    rounds = random.Random(seed).sample(ROUNDS[fault, other], len(ROUNDS[fault, other]))
    async with asyncio.timeout(LIMIT), nothing_left(tmp_path):
        async with (
            gateway_for({"notes": server.entry}, **SETTINGS[fault]) as served,
            keys[0].connected(served.url),
            keys[1].connected(served.url),
        ):
            async with asyncio.TaskGroup() as group:
                for key in keys:
                    key.start(group)
                for key in keys:
                    await key.recovered()
                for kinds in rounds:
                    await failures.cause(*kinds)
                for key in keys:
                    key.stopped = True
            assert served.server_status("notes")["breaker"] == "closed"
        executed = server.calls()
        assert len(executed) == len(set(executed))
        for key in keys:
            key.check(executed)
        assert not {*keys[0].processes.values()} & {*keys[1].processes.values()}
    assert server.running() == []
