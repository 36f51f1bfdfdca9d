"""Tests of background tasks."""

import asyncio

from fairlead.transport.background_tasks import BackgroundTasks


async def test_a_background_task_runs_to_its_end() -> None:
    tasks = BackgroundTasks()
    assert await tasks.start(asyncio.sleep(0, "done")) == "done"
    await tasks.close()


async def test_closing_cancels_all_background_tasks_and_waits_for_them() -> None:
    tasks, cleaned_up = BackgroundTasks(), []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(number)

    started = [tasks.start(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(cleaned_up) == [0, 1, 2]
    assert all(task.cancelled() for task in started)
