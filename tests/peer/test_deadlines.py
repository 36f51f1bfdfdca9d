"""Many time limits on one timer."""

import asyncio

from fairlead.peer import Deadlines


async def test_limits_expire_in_their_order_and_only_once(loop_kind: str) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("late", 0.5, expired.put_nowait)
    deadlines.add("early", 0.02, expired.put_nowait)
    deadlines.add("done", 0.25, expired.put_nowait)
    deadlines.remove("done")
    deadlines.remove("never there")
    assert [await expired.get(), await expired.get()] == ["early", "late"]
    assert len(deadlines) == 0
    assert expired.empty()


async def test_a_limit_that_is_added_again_starts_anew() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    started = loop.time()
    deadlines.add("x", 0.02, expired.put_nowait)
    deadlines.add("x", 0.2, expired.put_nowait)
    assert await expired.get() == "x"
    assert loop.time() - started > 0.15
    assert expired.empty()


async def test_nothing_expires_after_close() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("x", 0.01, expired.put_nowait)
    deadlines.close()
    other = loop.create_future()
    loop.call_later(0.05, other.set_result, None)
    await other
    assert expired.empty()


async def test_clocks_stand_still_while_paused() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    started = loop.time()

    def note(key: str) -> None:
        expired.put_nowait((key, loop.time() - started))

    deadlines.add("before", 0.05, note)
    deadlines.pause()
    deadlines.pause()
    deadlines.add("during", 0.1, note)
    loop.call_later(0.2, deadlines.resume)
    loop.call_later(0.3, deadlines.resume)
    first, second = await expired.get(), await expired.get()
    assert (first[0], second[0]) == ("before", "during")
    assert first[1] >= 0.33
    assert second[1] >= 0.38
