"""Notifications on their way to a reader: at once if it reads, else in order and bounded."""

import asyncio
import logging
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.limits import QUEUED_NOTIFICATIONS
from fairlead.upstream.connection import notification_outbox
from fairlead.upstream.connection.notification_outbox import PeerOutbox
from fairlead.wire import Notification, RequestId


class Reader:
    """A connection whose other side reads, or does not."""

    def __init__(self) -> None:
        self.channel = self
        self.congested = False
        self.connected = True
        self.gone = False
        self.drained = asyncio.Event()
        self.sent: list[tuple[str, RequestId | None]] = []

    def send(self, note: Notification, *, reply_to: RequestId | None = None) -> None:
        if self.gone:
            raise ChannelClosed("gone")
        self.sent.append((note.method, reply_to))

    async def drain(self) -> None:
        await self.drained.wait()
        self.congested = False


def outbox(reader: Reader) -> PeerOutbox:
    peer: Any = reader
    return PeerOutbox(peer)


async def test_who_reads_is_told_at_once() -> None:
    reader = Reader()
    box = outbox(reader)
    box.put(Notification("a"), 5)
    box.put(Notification("b"))
    assert reader.sent == [("a", 5), ("b", None)]
    assert box.empty


async def test_who_does_not_read_is_told_later_in_order() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = True
    box.put(Notification("a"), 5)
    reader.congested = False
    box.put(Notification("b"))  # behind the first one, though it reads again
    assert (reader.sent, box.empty) == ([], False)
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert reader.sent == [("a", 5), ("b", None)]
    assert box.empty


async def test_a_reader_is_waited_for_before_each_note() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = True
    box.put(Notification("a"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert reader.sent == []
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert reader.sent == [("a", None)]


@pytest.mark.parametrize("connected", [True, False])
async def test_who_has_gone_is_told_nothing_and_nothing_fails(connected: bool) -> None:
    reader = Reader()
    reader.connected, reader.gone = connected, connected
    box = outbox(reader)
    box.put(Notification("a"))
    assert reader.sent == []


async def test_what_waits_for_who_has_gone_is_dropped() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = reader.gone = True
    box.put(Notification("a"))
    box.put(Notification("b"))
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert (reader.sent, box.count, box.bytes, box.empty) == ([], 0, 0, True)


async def test_a_slow_reader_misses_the_oldest_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notification_outbox, "MAX_NOTES", 2)
    caplog.set_level(logging.WARNING, "fairlead.gateway")
    reader, hits = Reader(), QUEUED_NOTIFICATIONS.hits
    box = outbox(reader)
    reader.congested = True
    for name in "abcde":
        box.put(Notification(name))
    assert (box.dropped, QUEUED_NOTIFICATIONS.hits - hits) == (3, 3)
    assert [one.getMessage() for one in caplog.records] == [
        "a client reads too slowly; notifications to it are dropped"
    ]
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert [method for method, _ in reader.sent] == ["d", "e"]


async def test_what_is_closed_sends_nothing_more() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = True
    box.put(Notification("a"))
    box.close()
    reader.drained.set()
    await asyncio.sleep(0)
    assert (reader.sent, box.empty, box.count) == ([], True, 0)
