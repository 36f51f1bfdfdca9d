"""Tests of awaiting a coroutine whose first step was already run."""

import asyncio
from typing import Any

import pytest

from fairlead.server.execution.tool_runner import ResumedCoroutine


def resumed(coroutine: Any, leave: Any = None) -> ResumedCoroutine:
    """Run the first step of a coroutine and return an awaitable for the remaining steps."""
    return ResumedCoroutine(coroutine, coroutine.send(None), leave)


async def test_a_resumed_coroutine_is_awaited_like_a_new_coroutine() -> None:
    steps: list[int] = []

    async def work() -> str:
        for number in range(3):
            steps.append(number)
            await asyncio.sleep(0)
        return "done"

    rest = resumed(work())
    assert steps == [0]
    assert await rest == "done"
    assert steps == [0, 1, 2]


async def test_results_and_errors_of_awaited_futures_reach_the_coroutine() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> Any:
        try:
            return await future
        except KeyError as exc:
            return f"caught {exc}"

    task = asyncio.create_task(_awaited(resumed(work())))
    future.set_result(5)
    assert await task == 5
    future = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_awaited(resumed(work())))
    future.set_exception(KeyError("x"))
    assert await task == "caught 'x'"


async def test_an_exception_in_a_resumed_coroutine_is_raised() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await resumed(work())


async def _awaited(rest: ResumedCoroutine) -> Any:
    return await rest


@pytest.mark.parametrize("leaves", [None, False, True], ids=["no callback", "stays", "leaves"])
async def test_a_coroutine_that_ignores_its_cancellation_is_awaited_or_detached(
    leaves: bool | None,
) -> None:
    events: list[str] = []
    gate = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
        await gate.wait()
        events.append("cleaned up")
        return "done"

    left: list[Any] = []

    def leave(coroutine: Any, waiting: Any) -> bool:
        left.append((coroutine, waiting))
        return bool(leaves)

    task = asyncio.create_task(_awaited(resumed(work(), None if leaves is None else leave)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait((task,))
    if not leaves:
        assert task.result() == "done"
        assert events == ["cancelled", "cleaned up"]
    else:
        assert task.cancelled()
        assert events == ["cancelled"]
        assert await ResumedCoroutine(*left[0]) == "done"
    assert len(left) == (0 if leaves is None else 1)


async def test_a_cancelled_coroutine_raises_cancelled_error() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(_awaited(resumed(work(), lambda *_: True)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
