"""Tests that timeouts raise TimeoutError even in cancelled tasks, and hide no cancellation."""

import ast
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

import fairlead
from fairlead.transport import timeouts
from fairlead.transport.timeouts import CleanupTimeout

SOURCE = Path(fairlead.__file__).parent
LIMIT = 20.0


def soon(delay: float | None) -> CleanupTimeout:
    return CleanupTimeout(None if delay is None else asyncio.get_running_loop().time() + delay)


KINDS = pytest.mark.parametrize("limit", [timeouts.timeout, soon], ids=["chosen", "compatible"])
Limit = Callable[[float | None], asyncio.Timeout]


async def outcome_in_cleanup(limited: Callable[[], Awaitable[object]]) -> object:
    """Return the result of a wait during the cleanup of a cancelled task, or its exception type."""
    began, outcome = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            try:
                outcome.set_result(await limited())
            except BaseException as exc:
                outcome.set_result(type(exc))

    task = asyncio.create_task(work())
    async with asyncio.timeout(LIMIT):
        await began.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return await outcome


@KINDS
async def test_timeout_in_a_cancelled_task_raises_timeout_error(limit: Limit) -> None:
    async def limited() -> None:
        async with limit(0.01):
            await asyncio.Event().wait()

    assert await outcome_in_cleanup(limited) is TimeoutError


@KINDS
async def test_a_wait_that_ends_in_time_returns_its_result(limit: Limit) -> None:
    async def limited() -> str:
        async with limit(LIMIT):
            return "done"

    assert await outcome_in_cleanup(limited) == "done"


@KINDS
async def test_second_cancellation_is_not_a_timeout(limit: Limit) -> None:
    async def limited() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with limit(LIMIT):
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.Event().wait()

    assert await outcome_in_cleanup(limited) is asyncio.CancelledError


@KINDS
async def test_timeout_in_a_running_task_raises_timeout_error(limit: Limit) -> None:
    with pytest.raises(TimeoutError):
        async with limit(0.01):
            await asyncio.Event().wait()


async def test_timeout_at_takes_a_time_of_the_event_loop_or_none() -> None:
    with pytest.raises(TimeoutError):
        async with timeouts.timeout_at(asyncio.get_running_loop().time()):
            await asyncio.Event().wait()
    async with timeouts.timeout_at(None) as clock:
        assert clock.when() is None


def test_no_module_uses_the_timeouts_of_asyncio() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "timeouts.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("timeout", "timeout_at")
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
    ]
    assert found == []
