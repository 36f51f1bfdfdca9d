"""Tests of notifications that wait for a listener."""

import asyncio
from typing import Any

from msgspec import Raw

from fairlead.client.mcp_transport.notification_queue import NotificationQueue
from fairlead.wire import Notification


def note(number: int) -> Notification:
    return Notification(f"n/{number}", Raw(b'{"n":%d}' % number))


async def idle(mailbox: NotificationQueue) -> None:
    async with asyncio.timeout(5):
        while mailbox.busy:
            await asyncio.sleep(0)


async def test_the_latest_notifications_are_kept_until_there_is_a_listener() -> None:
    mailbox = NotificationQueue(before=2)
    for number in range(5):
        mailbox.put(note(number))
    got: list[Any] = []
    assert mailbox.listener is None
    assert mailbox.dropped == 3

    def listen(method: str, params: dict[str, Any]) -> None:
        got.append((method, params))

    mailbox.listener = listen
    assert mailbox.listener is listen
    await idle(mailbox)
    mailbox.put(Notification("plain"))
    assert got == [("n/3", {"n": 3}), ("n/4", {"n": 4}), ("plain", {})]


async def test_a_slow_listener_gets_one_notification_at_a_time_and_misses_the_oldest() -> None:
    mailbox = NotificationQueue(before=1, behind=2)
    release = asyncio.Event()
    got: list[str] = []

    async def listen(method: str, params: dict[str, Any]) -> None:
        got.append(method)
        await release.wait()

    mailbox.listener = listen
    for number in range(5):
        mailbox.put(note(number))
    await asyncio.sleep(0)
    assert got == ["n/0"]
    assert mailbox.dropped == 2
    release.set()
    await idle(mailbox)
    assert got == ["n/0", "n/3", "n/4"]


async def test_a_listener_that_raised_receives_the_next_notification() -> None:
    mailbox = NotificationQueue()
    got: list[str] = []

    def listen(method: str, params: dict[str, Any]) -> Any:
        got.append(method)
        if method == "n/0":
            raise ValueError("at once")
        return fail()

    async def fail() -> None:
        raise ValueError("later")

    mailbox.listener = listen
    for number in range(3):
        mailbox.put(note(number))
        await idle(mailbox)
    assert got == ["n/0", "n/1", "n/2"]


async def test_closing_cancels_the_listener_and_drops_queued_notifications() -> None:
    mailbox = NotificationQueue()
    cancelled = asyncio.Event()
    got: list[str] = []

    async def listen(method: str, params: dict[str, Any]) -> None:
        got.append(method)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    mailbox.listener = listen
    mailbox.put(note(0))
    mailbox.put(note(1))
    await asyncio.sleep(0)
    mailbox.close()
    async with asyncio.timeout(5):
        await cancelled.wait()
    await idle(mailbox)
    assert got == ["n/0"]
