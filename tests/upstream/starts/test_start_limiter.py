"""Limit on the number of child processes that start concurrently."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from fairlead.errors import LocalResourceError
from fairlead.manager.manager import MCPManager
from fairlead.upstream.starts import start_limiter as slots
from fairlead.upstream.starts.start_limiter import (
    FORGOTTEN_AFTER,
    LocalShortage,
    StartLimiter,
    StartPriority,
)
from tests.support.managed_servers import entry
from tests.support.virtual_time import VirtualTime


async def test_a_start_waits_until_a_slot_is_released() -> None:
    places = StartLimiter(2)
    begun: asyncio.Queue[int] = asyncio.Queue()
    answers = [asyncio.Event() for _ in range(3)]

    async def start(number: int) -> None:
        async with places.starting():
            begun.put_nowait(number)
            await answers[number].wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(start(number))
        assert [await begun.get(), await begun.get()] == [0, 1]
        answers[1].set()
        assert await begun.get() == 2
        answers[0].set()
        answers[2].set()


async def test_a_start_without_a_response_releases_its_slot_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "PATIENCE", 0.01)
    places, forever = StartLimiter(1), asyncio.Event()

    async def silent() -> None:
        async with places.starting():
            await forever.wait()

    async with asyncio.timeout(5):
        first = asyncio.create_task(silent())
        await asyncio.sleep(0)  # the first start now holds the only slot
        monkeypatch.setattr(slots, "PATIENCE", 60.0)
        async with places.starting():  # the timer releases the slot
            first.cancel()
            await asyncio.wait((first,))
            waiting = asyncio.create_task(_enter(places))
            done, _ = await asyncio.wait((waiting,), timeout=0.05)
            assert not done  # the end of the first start must not release a second slot
        await waiting


async def test_a_failed_or_cancelled_start_releases_its_slot() -> None:
    places = StartLimiter(1)
    async with asyncio.timeout(5):
        with pytest.raises(OSError, match="no"):
            async with places.starting():
                raise OSError("no")
        async with places.starting():
            waiting = asyncio.create_task(_enter(places))
            await asyncio.sleep(0)
            waiting.cancel()  # the start is cancelled before it gets a slot
            await asyncio.wait((waiting,))
        await _enter(places)


async def test_two_servers_may_start_per_core() -> None:
    places = StartLimiter()
    async with asyncio.timeout(5):
        held = [places.starting() for _ in range(2 * (os.cpu_count() or 1))]
        for one in held:
            await one.__aenter__()
        waiting = asyncio.create_task(_enter(places))
        await asyncio.sleep(0)
        assert not waiting.done()
        for one in held:
            await one.__aexit__(None, None, None)
        await waiting


MUTE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "mute", "version": "1"},
        }
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message["method"] != "tools/list" and "id" in message:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


async def test_the_first_response_releases_a_slot_before_the_tools_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "PATIENCE", 3600.0)
    mute = {"command": sys.executable, "args": ["-c", MUTE]}  # a server that never lists its tools
    async with asyncio.timeout(20), MCPManager(max_starts=1) as manager:
        await manager.connect_servers({"a": mute, "b": entry(tmp_path, "b")}, startup="background")
        connection = await manager.wait_for_connection("b")
        assert connection.client.connected
        assert manager.pending_tool_loads == {"a"}


async def _enter(places: StartLimiter) -> None:
    async with places.starting():
        pass


async def test_a_start_without_a_response_holds_its_slot_for_one_and_a_half_seconds(
    virtual_time: VirtualTime,
) -> None:
    places, begun = StartLimiter(1), virtual_time.now
    times: list[float] = []

    async def start(seconds: float) -> None:
        async with places.starting():
            times.append(virtual_time.now - begun)
            await asyncio.sleep(seconds)

    await asyncio.gather(start(60), start(1), start(60), start(0))
    assert times == pytest.approx([0, 1.5, 2.5, 4])


async def test_starts_for_calls_precede_reconnects_and_start_up(virtual_time: VirtualTime) -> None:
    limiter, order = StartLimiter(1), list[str]()
    wanted = dict.fromkeys("abcd", StartPriority.START_UP)
    wanted["c"] = StartPriority.RECONNECT

    async def start(name: str) -> None:
        async with limiter.starting(lambda: wanted[name]):
            order.append(name)
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(start(name)) for name in "abcd"]
    await asyncio.sleep(0.5)
    wanted["d"] = StartPriority.CALL  # a call arrives for server d, which waits for its start
    await asyncio.gather(*tasks)
    assert order == ["a", "d", "c", "b"]


async def test_a_comparison_of_lists_waits_for_all_other_starts(virtual_time: VirtualTime) -> None:
    limiter, order = StartLimiter(1), list[str]()

    async def start(name: str) -> None:
        async with limiter.starting(lambda: StartPriority.START_UP):
            order.append(name)
            await asyncio.sleep(1)

    async def compare() -> None:
        await limiter.wait_for_others()
        order.append("comparison")

    first = asyncio.create_task(start("a"))
    await asyncio.sleep(0)
    await asyncio.gather(first, compare(), *(start(name) for name in "bc"))
    assert order == ["a", "b", "c", "comparison"]


async def test_the_slot_of_a_cancelled_start_goes_to_the_next_start(
    virtual_time: VirtualTime,
) -> None:
    limiter = StartLimiter(1)
    async with limiter.starting():
        waiting = asyncio.create_task(_enter(limiter))
        granted = asyncio.create_task(_enter(limiter))
        await asyncio.sleep(0)
        waiting.cancel()
    granted.cancel()  # cancelled in the loop iteration in which it gets its slot
    await asyncio.gather(waiting, granted, return_exceptions=True)
    async with asyncio.timeout(0.5), limiter.starting():
        pass


async def test_a_call_waits_less_than_two_seconds_behind_twenty_silent_starts(
    virtual_time: VirtualTime,
) -> None:
    limiter, began = StartLimiter(4), virtual_time.now

    async def silent() -> None:
        async with limiter.starting(lambda: StartPriority.START_UP):
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(silent()) for _ in range(20)]
    await asyncio.sleep(0.1)
    async with limiter.starting():
        waited = virtual_time.now - began
    assert waited <= 2.0
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


ERROR = LocalResourceError("no process", "file descriptors")


async def test_the_delay_between_starts_grows_until_a_start_succeeds(
    virtual_time: VirtualTime,
) -> None:
    shortage = LocalShortage()
    pauses = []
    for _ in range(8):
        shortage.report(ERROR)
        shortage.report(ERROR)  # a concurrent report by another server causes no second pause
        began = virtual_time.now
        await shortage.wait()
        pauses.append(virtual_time.now - began)
    for pause, longest in zip(pauses, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert 0.75 * longest <= pause <= longest
    assert shortage.error is ERROR
    assert shortage.seconds == pytest.approx(sum(pauses))
    shortage.clear()
    assert shortage.error is None
    assert shortage.seconds == 0.0
    began = virtual_time.now
    await shortage.wait()
    assert virtual_time.now == began
    shortage.report(ERROR)
    await shortage.wait()
    assert virtual_time.now - began <= 1.0


async def test_a_shortage_ends_if_it_is_not_reported_again(virtual_time: VirtualTime) -> None:
    shortage = LocalShortage()
    shortage.report(ERROR)
    await asyncio.sleep(FORGOTTEN_AFTER)
    assert shortage.error is ERROR
    await asyncio.sleep(0.5)
    assert shortage.error is None


async def test_a_shortage_is_logged_when_it_begins_and_when_it_ends(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    shortage = LocalShortage()
    with caplog.at_level(logging.WARNING, logger="fairlead.upstream"):
        for _ in range(3):
            shortage.report(ERROR)
        shortage.clear()
        shortage.clear()
    assert caplog.messages == [
        "this machine is out of file descriptors; starts are delayed",
        "this machine has enough file descriptors again",
    ]


@pytest.mark.parametrize("is_process", [True, False])
async def test_no_connection_is_opened_during_a_shortage(
    virtual_time: VirtualTime, is_process: bool
) -> None:
    limiter, began = StartLimiter(4), virtual_time.now
    limiter.shortage.report(ERROR)
    async with limiter.starting(is_process=is_process):
        assert 0.75 <= virtual_time.now - began <= 1.0
