"""Tests of the pool of threads for synchronous functions."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from typing import Any

import pytest

from fairlead import Context, MCPServer, MCPToolError
from fairlead.server.execution.worker_threads import WorkerThreads
from tests.support.raw_server_client import META, wire_to

LIMIT = 10.0


async def until(condition: Any) -> None:
    """Wait for a condition that another thread makes true."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.to_thread(lambda: None)


class Stuck:
    """Functions that block until they are released."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self) -> None:
        self.begun.release()
        assert self.let_go.wait(LIMIT)


@pytest.mark.covers("SRV-27")
async def test_abandoned_threads_are_counted_replaced_and_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers, stuck = WorkerThreads(limit=2), Stuck()

    async def abandon() -> None:
        task = asyncio.create_task(workers.run(stuck))
        assert await asyncio.to_thread(stuck.begun.acquire, timeout=LIMIT)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    await abandon()
    await abandon()
    assert workers.metrics == {"threads": 2, "busy": 2, "abandoned": 2, "abandoned_ever": 2}
    assert await workers.run(lambda: "others go on") == "others go on"
    await abandon()
    await abandon()
    assert workers.metrics["threads"] == 4  # at most twice the limit, including abandoned threads
    with pytest.raises(MCPToolError, match="4 abandoned synchronous calls still run"):
        await workers.run(lambda: "not run")
    assert "4 abandoned synchronous calls still run; no thread is available" in caplog.text
    stuck.let_go.set()
    await until(lambda: workers.metrics["abandoned"] == 0)
    assert await workers.run(lambda: "again") == "again"
    await until(lambda: workers.metrics["threads"] <= 2)
    assert workers.metrics["abandoned_ever"] == 4


@pytest.mark.covers("SRV-27")
async def test_the_number_of_threads_and_waiting_functions_is_limited() -> None:
    workers, stuck = WorkerThreads(limit=2, queue=3), Stuck()
    tasks = [asyncio.create_task(workers.run(stuck)) for _ in range(5)]
    await until(lambda: workers.metrics["busy"] == 5)
    assert workers.metrics["threads"] == 2
    with pytest.raises(MCPToolError, match="5 synchronous calls are running or waiting"):
        await workers.run(lambda: "too many")
    tasks[4].cancel()  # the function has not started: it never runs and abandons no thread
    stuck.let_go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[:4] == [None] * 4
    await until(lambda: workers.metrics["busy"] == 0)
    assert workers.metrics["abandoned_ever"] == 0


@pytest.mark.covers("SRV-24", "SRV-27", "SRV-28")
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_synchronous_handler_can_check_for_cancellation(how: str) -> None:
    server = MCPServer("s", default_tool_timeout=0.05 if how == "timeout" else 0)
    begun, ended = threading.Event(), threading.Event()
    never: list[str] = []

    @server.tool()
    def work(ctx: Context) -> str:
        assert not ctx.cancelled
        ctx.check_cancelled()
        begun.set()
        try:
            while not ctx.cancelled:
                threading.Event().wait(0.01)
            ctx.check_cancelled()
            never.append("continued")
        finally:
            ended.set()
        return ""

    async with wire_to(server) as wire:
        wire.send("tools/call", {"name": "work", "_meta": META}, id=1)
        assert await asyncio.to_thread(begun.wait, LIMIT)
        if how == "cancelled":
            wire.send("notifications/cancelled", {"requestId": 1})
        else:
            error = json.loads((await wire.next())["result"]["content"][0]["text"])
            assert error["code"] == "TIMEOUT"
        assert await asyncio.to_thread(ended.wait, LIMIT)
        await until(lambda: server.metrics()["workers"]["busy"] == 0)
    assert never == []
    workers = server.metrics()["workers"]
    assert (workers["abandoned"], workers["abandoned_ever"]) == (0, 1)


@pytest.mark.covers("SRV-27")
async def test_abandoned_threads_are_visible_in_the_metrics_of_the_server() -> None:
    server, stuck = MCPServer("s", default_tool_timeout=0.02), Stuck()
    server.tool("stuck")(stuck)
    server.register_resource("r://stuck", "stuck", content_provider=stuck)
    async with wire_to(server) as wire:
        result = (await wire.ask("tools/call", {"name": "stuck", "_meta": META}))["result"]
        assert result["isError"] is True
        metrics = server.metrics()
        assert metrics["connections"] == 1
        assert metrics["workers"]["abandoned"] == 1
        wire.send("resources/read", {"uri": "r://stuck", "_meta": META}, id=2)
        for _ in range(2):
            assert await asyncio.to_thread(stuck.begun.acquire, timeout=LIMIT)
        wire.send("notifications/cancelled", {"requestId": 2})
        await until(lambda: server.metrics()["workers"]["abandoned"] == 2)
        stuck.let_go.set()
        await until(lambda: server.metrics()["workers"]["abandoned"] == 0)
    assert server.metrics()["connections"] == 0


@pytest.mark.covers("SRV-27", "SRV-08")
def test_a_stuck_worker_thread_does_not_keep_a_process_alive() -> None:
    program = """
import asyncio, threading
from fairlead import MCPServer
server = MCPServer("s", default_tool_timeout=0.05)

@server.tool()
def stuck() -> None:
    threading.Event().wait()

asyncio.run(server.run_stdio())
"""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call["params"] = {"name": "stuck", "_meta": META}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(call).encode() + b"\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert b"timed out after 0.05s" in done.stdout


async def test_a_call_is_rejected_and_not_counted_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = WorkerThreads()

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(MCPToolError, match="0 synchronous calls are running"):
            await workers.run(int)
    assert workers.metrics == {"threads": 0, "busy": 0, "abandoned": 0, "abandoned_ever": 0}
    assert await workers.run(int, "5") == 5


async def test_an_existing_thread_runs_the_function_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers, stuck = WorkerThreads(), Stuck()
    first = asyncio.create_task(workers.run(stuck))
    await until(lambda: stuck.begun.acquire(blocking=False))

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        second = asyncio.create_task(workers.run(int, "5"))
        await asyncio.sleep(0)
    assert workers.metrics["threads"] == 1
    stuck.let_go.set()
    async with asyncio.timeout(LIMIT):
        assert (await first, await second) == (None, 5)


async def test_a_waiting_function_runs_when_a_running_function_is_abandoned() -> None:
    workers, stuck = WorkerThreads(limit=1), Stuck()
    first = asyncio.create_task(workers.run(stuck))
    await until(lambda: stuck.begun.acquire(blocking=False))
    second = asyncio.create_task(workers.run(int, "5"))
    await asyncio.sleep(0)
    assert workers.metrics == {"threads": 1, "busy": 2, "abandoned": 0, "abandoned_ever": 0}
    first.cancel()
    async with asyncio.timeout(LIMIT):
        assert await second == 5
    assert first.cancelled()
    assert workers.metrics == {"threads": 2, "busy": 1, "abandoned": 1, "abandoned_ever": 1}
    stuck.let_go.set()
    await until(lambda: workers.metrics["busy"] == 0)


async def test_worker_threads_are_daemons_and_are_reused() -> None:
    workers = WorkerThreads(limit=2)
    first = await workers.run(threading.current_thread)
    assert (first.daemon, first.name) == (True, "fairlead-worker")
    assert workers.metrics == {"threads": 1, "busy": 0, "abandoned": 0, "abandoned_ever": 0}
    assert await workers.run(threading.current_thread) is first


async def test_exceptions_of_every_kind_in_a_worker_thread_reach_the_caller() -> None:
    workers = WorkerThreads(limit=1)

    def fail(error: BaseException) -> None:
        raise error

    for error in (KeyError("x"), SystemExit(3)):
        with pytest.raises(type(error)) as raised:
            await workers.run(fail, error)
        assert raised.value is error
    with pytest.raises(RuntimeError, match="^StopIteration: 5$"):
        await workers.run(fail, StopIteration(5))
    assert workers.metrics["threads"] == 1


async def test_a_worker_thread_has_the_context_variables_of_its_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("set by the caller")
    assert await WorkerThreads().run(variable.get) == "set by the caller"


@pytest.mark.parametrize(("limit", "queue"), [(1, 0), (2, 1)])
async def test_the_overload_error_contains_the_number_of_running_and_waiting_calls(
    limit: int, queue: int, caplog: pytest.LogCaptureFixture
) -> None:
    workers, stuck = WorkerThreads(limit=limit, queue=queue), Stuck()
    tasks = [asyncio.create_task(workers.run(stuck)) for _ in range(limit + queue)]
    await until(lambda: workers.metrics["busy"] == limit + queue)
    with pytest.raises(MCPToolError) as refused:
        await workers.run(int)
    error = refused.value
    assert (error.code, error.suggestion) == ("RATE_LIMITED", "Try again later")
    assert error.message == f"{limit + queue} synchronous calls are running or waiting"
    assert caplog.text == ""
    stuck.let_go.set()
    await asyncio.gather(*tasks)


def test_the_result_of_a_thread_is_dropped_if_its_event_loop_is_closed() -> None:
    workers, stuck = WorkerThreads(limit=1), Stuck()

    async def leave() -> None:
        task = asyncio.create_task(workers.run(stuck))
        await until(lambda: stuck.begun.acquire(blocking=False))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    stuck.let_go.set()
    assert asyncio.run(workers.run(int, "5")) == 5


async def test_the_default_limits_are_32_threads_and_a_queue_of_1024() -> None:
    workers, stuck = WorkerThreads(), Stuck()
    tasks = [asyncio.create_task(workers.run(stuck)) for _ in range(32 + 1024)]
    await asyncio.sleep(0)
    assert workers.metrics["threads"] == 32
    with pytest.raises(MCPToolError, match="^1056 synchronous calls are running or waiting$"):
        await workers.run(int)
    stuck.let_go.set()
    await asyncio.gather(*tasks)


async def test_cancelling_a_call_does_not_abandon_a_finished_thread() -> None:
    workers = WorkerThreads(limit=1)
    task = asyncio.create_task(workers.run(int, "5"))
    await asyncio.sleep(0)
    deadline = time.monotonic() + LIMIT
    while workers.metrics["busy"] and time.monotonic() < deadline:
        os.sched_yield()  # The loop does not run, so it cannot process the result of the function.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert workers.metrics == {"threads": 1, "busy": 0, "abandoned": 0, "abandoned_ever": 0}
