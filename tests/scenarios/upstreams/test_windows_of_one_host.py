"""Sessions with equal capabilities, which share one process of a stdio server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import ENDPOINTS, Client, connect, gateway_for

TURN = 0.25  # seconds that a call waits for a turn before another process is opened
WINDOWS = 4


@asynccontextmanager
async def windows(
    log: ServerLog, *declares: str, endpoint: str = "merged", **settings: Any
) -> AsyncIterator[list[Client]]:
    """Connect several sessions with equal capabilities to a gateway with one server."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            gateway_for({"notes": log.entry("notes")}, **settings)
        )
        yield [
            await stack.enter_async_context(
                connect(served.url, "notes", *declares, endpoint=endpoint)
            )
            for _ in range(WINDOWS)
        ]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "declares", [("elicitation",), ("elicitation", "sampling")], ids=["one", "two"]
)
async def test_sessions_that_call_in_turn_share_one_process(
    tmp_path: Path, endpoint: str, declares: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), windows(log, *declares, endpoint=endpoint) as clients:
        pids = [await client.pid() for client in clients * 3]
        assert len(set(pids)) == 1
        # one process for the sessions and one from the start-up
        await until(lambda: len(log.running()) == 2)


async def test_sessions_without_capabilities_use_the_first_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), windows(log) as clients:
        pids = [await client.pid() for client in clients * 3]
        assert set(pids) == set(log.started())
        assert len(log.started()) == 1


async def test_short_concurrent_calls_take_turns_on_one_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), windows(log, "elicitation") as clients:
        await clients[0].pid()
        pids = await asyncio.gather(*(client.pid() for client in clients))
        assert len(set(pids)) == 1
        await until(lambda: len(log.running()) == 2)


async def test_a_call_that_waits_too_long_for_a_turn_gets_another_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    release = tmp_path / "release"
    async with asyncio.timeout(LIMIT), windows(log, "elicitation") as clients:
        first = await clients[0].pid()
        holding = asyncio.create_task(clients[0].call("hold", until=str(release)))
        await until(lambda: len(log.received("tools/call", pid=first)) == 2)
        asked = time.monotonic()
        second = await clients[1].pid()
        assert second != first
        [opened] = [
            at for at, pid in zip(log.start_times(), log.started(), strict=True) if pid == second
        ]
        assert opened >= asked + TURN * 0.9
        assert await clients[2].pid() == second  # the second process is free again
        await until(lambda: len(log.running()) == 3)
        release.touch()
        assert int(await holding) == first


async def test_elicitations_reach_the_session_whose_call_is_in_progress(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    asked: list[str] = []

    def answer(name: str) -> Any:
        def on_elicit(question: Any) -> Any:
            asked.append(name)
            return {"action": "accept", "content": {"value": name}}

        return on_elicit

    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(gateway_for({"notes": log.entry("notes")}))
        clients = {
            name: await stack.enter_async_context(
                connect(served.url, "notes", "elicitation", on_elicit=answer(name))
            )
            for name in ("a", "b", "c")
        }
        for name in "abcabc":
            assert f'"value": "{name}"' in await clients[name].call("ask")
        answers = await asyncio.gather(*(clients[name].call("ask") for name in "abc"))
        for name, text in zip("abc", answers, strict=True):
            assert f'"value": "{name}"' in text
    assert sorted(asked) == sorted("abc" * 3)


async def test_the_shared_process_continues_when_one_session_closes(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as staying,
    ):
        async with connect(served.url, "notes", "elicitation") as leaving:
            pid = await leaving.pid()
        assert await staying.pid() == pid
        async with connect(served.url, "notes", "elicitation") as coming:
            assert await coming.pid() == pid


@pytest.mark.parametrize("capabilities", [("elicitation",), ("sampling",)])
async def test_sessions_with_different_capabilities_do_not_share_a_process(
    tmp_path: Path, capabilities: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", *capabilities) as one,
        connect(served.url, "notes", "elicitation", "sampling") as other,
    ):
        assert await one.pid() != await other.pid()
        [declared] = log.received("initialize", pid=await one.pid())
        assert set(declared.params["capabilities"]) == set(capabilities)
