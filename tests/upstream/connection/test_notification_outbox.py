"""Queues of notifications that are sent at once, or in order when the receiver reads again."""

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
    """A fake connection whose peer reads or is congested."""

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


async def test_notifications_to_a_reading_peer_are_sent_at_once() -> None:
    reader = Reader()
    box = outbox(reader)
    box.put(Notification("a"), 5)
    box.put(Notification("b"))
    assert reader.sent == [("a", 5), ("b", None)]
    assert not box.busy


async def test_notifications_to_a_congested_peer_are_sent_later_in_order() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = True
    box.put(Notification("a"), 5)
    reader.congested = False
    # must not overtake the first notification, although the channel is free again
    box.put(Notification("b"))
    assert (reader.sent, box.busy) == ([], True)
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert reader.sent == [("a", 5), ("b", None)]
    assert not box.busy


async def test_each_queued_notification_waits_for_the_channel_to_drain() -> None:
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
async def test_notifications_to_a_disconnected_peer_are_dropped_without_an_error(
    connected: bool,
) -> None:
    reader = Reader()
    reader.connected, reader.gone = connected, connected
    box = outbox(reader)
    box.put(Notification("a"))
    assert reader.sent == []


async def test_queued_notifications_to_a_disconnected_peer_are_dropped() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = reader.gone = True
    box.put(Notification("a"))
    box.put(Notification("b"))
    reader.drained.set()
    async with asyncio.timeout(5):
        await box.flushed()
    assert (reader.sent, box.count, box.bytes, box.busy) == ([], 0, 0, False)


async def test_the_oldest_notifications_to_a_slow_peer_are_dropped_and_logged_once(
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


async def test_a_closed_outbox_sends_no_notifications() -> None:
    reader = Reader()
    box = outbox(reader)
    reader.congested = True
    box.put(Notification("a"))
    box.close()
    reader.drained.set()
    await asyncio.sleep(0)
    assert (reader.sent, box.busy, box.count) == ([], False, 0)
