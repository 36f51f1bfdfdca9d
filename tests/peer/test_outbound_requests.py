"""Tests of outbound requests: deadlines, cancellation and notifications to the peer."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import ChannelClosed, RequestTimeout, RpcError
from fairlead.peer import Deadlines, Peer
from fairlead.peer.connection_state import FEW
from fairlead.peer.outbound_requests import CallbackPending, Pending
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Notification, Success, failure
from tests.peer.test_inbound_dispatch import bare_client
from tests.support.virtual_time import VirtualTime


def reason_of(note: Notification) -> Any:
    from fairlead.protocol.json_edit import members_of, string_of

    assert note.method == "notifications/cancelled"
    assert isinstance(note.params, Raw)
    return string_of((members_of(note.params) or {}).get("reason"))


@pytest.mark.parametrize(
    ("why", "reason"),
    [(("tea",), "tea"), ((), "cancelled by the caller"), ((5,), "cancelled by the caller")],
    ids=["text", "nothing", "number"],
)
async def test_a_cancellation_is_sent_with_its_reason(why: tuple[object, ...], reason: str) -> None:
    async with bare_client() as (_, frames, client):
        for quiet in (True, False):
            waiting = asyncio.create_task(client.request("x", quiet=quiet))
            asked = await frames.next()
            assert client.outbound.pending.keys() == {asked.id}
            waiting.cancel(*why)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert client.outbound.pending == {}
            assert len(client.outbound._deadlines._due) == 0
        assert reason_of(await frames.next()) == reason
        assert frames.got.empty()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 30.0),
        ({"timeout": 2.0}, 2.0),
        ({"timeout": 2.0, "max_total": 1.0}, 2.0),
        ({"timeout": 5.0, "max_total": 60.0}, 5.0),
    ],
)
async def test_a_request_without_a_response_times_out(
    virtual_time: VirtualTime, limits: dict[str, float], expected: float
) -> None:
    async with bare_client() as (_, frames, client):
        begun = virtual_time.now
        with pytest.raises(RequestTimeout) as late:
            await client.request("x", **limits)
        assert virtual_time.now - begun == pytest.approx(expected)
        assert str(late.value).startswith("Request")
        assert (await frames.next()).method == "x"
        assert reason_of(await frames.next()) == "timeout"
        assert client.outbound.pending == {}
        assert len(client.outbound._deadlines._due) == 0


async def test_a_timeout_of_zero_disables_the_limit(virtual_time: VirtualTime) -> None:
    async with bare_client() as (channel, frames, client):
        waiting = asyncio.create_task(client.request("x", timeout=0))
        asked = await frames.next()
        await asyncio.sleep(100_000)
        channel.send(Success(asked.id, Raw(b"{}")))
        assert await waiting == Raw(b"{}")


@pytest.mark.parametrize(("pause", "limit"), [(3.0, 3.0), (4.0, 6.0)])
async def test_progress_restarts_the_timeout_within_the_total_limit(
    virtual_time: VirtualTime, pause: float, limit: float
) -> None:
    """After progress, the timeout is 4.5 s again, but not more than the remaining total time."""
    async with bare_client() as (channel, frames, client):
        heard: list[float] = []
        begun = virtual_time.now
        waiting = asyncio.create_task(
            client.request(
                "x",
                timeout=4.5,
                max_total=limit + 3,
                on_progress=lambda *said: heard.append(said[0]),
            )
        )
        asked = await frames.next()
        await asyncio.sleep(pause)
        channel.send(
            Notification(
                "notifications/progress",
                Raw(b'{"progressToken":%d,"progress":1}' % asked.id),
            )
        )
        with pytest.raises(RequestTimeout):
            await waiting
        assert heard == [1]
        assert virtual_time.now - begun == pytest.approx(min(pause + 4.5, limit + 3))


async def test_writes_are_joined_while_many_requests_are_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined: list[int] = []
    async with bare_client() as (_, frames, client):
        pending = client.outbound.pending
        monkeypatch.setattr(
            type(client.channel), "join_writes", lambda _: joined.append(len(pending))
        )
        waiting = []
        for _ in range(FEW + 2):
            waiting.append(asyncio.create_task(client.request("x", quiet=True)))
            await frames.next()
        assert joined == [FEW + 1]
        client.outbound.forward_nowait("y", Raw(b"{}"), lambda _: None)
        assert joined == [FEW + 1, FEW + 2]
        monkeypatch.undo()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await frames.next()


async def test_a_request_to_a_peer_that_does_not_read_times_out_as_undelivered(
    virtual_time: VirtualTime,
) -> None:
    left, right = memory_pair()
    client = Peer(left, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    client.start()
    await client.notify("notifications/x", {"a": "x" * (1 << 20)})
    assert client.congested
    for ask, seconds in (
        (client.request("x", timeout=3), 3),
        (client.notify("notifications/x", timeout=4), 4),
        (client.notify("notifications/x"), 30),
        (client.outbound.forward("x", lambda _: Raw(b"{}"), timeout=5), 5),
    ):
        begun = virtual_time.now
        with pytest.raises(RequestTimeout) as late:
            await ask
        assert late.value.delivered is False
        assert virtual_time.now - begun == pytest.approx(seconds)
        assert client.outbound.wanting == 0
    waiting = asyncio.create_task(client.request("x", timeout=3))
    await asyncio.sleep(1)
    assert client.outbound.wanting == 1
    reading = asyncio.create_task(right.run(lambda item: None))
    with pytest.raises(RequestTimeout) as late:
        await waiting
    assert late.value.delivered is not False
    assert not client.congested
    await client.close()
    await right.close()
    await reading


async def test_the_end_of_a_connection_fails_all_pending_requests() -> None:
    async with bare_client() as (_, frames, client):
        outcomes: list[Any] = []
        waiting = asyncio.create_task(client.request("x"))
        await frames.next()
        client.outbound.forward_nowait("y", Raw(b"{}"), outcomes.append)
        await client.close("too late", public="late")
        with pytest.raises(ChannelClosed) as closed:
            await waiting
        for error in (closed.value, *outcomes):
            assert (error.reason, error.public) == ("too late", "late")
        assert len(outcomes) == 1
        assert closed.value is not outcomes[0]
        assert client.end is not None
        assert client.end.reason == "too late"


async def test_additional_members_of_a_response_are_passed_to_the_callback() -> None:
    async with bare_client() as (channel, frames, client):
        heard: list[tuple[Any, dict[str, Raw]]] = []
        client.on_extra_members = lambda request_id, members: heard.append((request_id, members))
        assert client.on_extra_members is client.outbound.on_extra_members
        for extra in (None, {"more": Raw(b"1")}):
            waiting = asyncio.create_task(client.request("x"))
            asked = await frames.next()
            channel.send(Success(asked.id, Raw(b"{}"), extra))
            await waiting
        assert heard == [(asked.id, {"more": Raw(b"1")})]


async def test_an_error_response_is_raised_with_its_original_bytes() -> None:
    async with bare_client() as (channel, frames, client):
        waiting = asyncio.create_task(client.request("x"))
        asked = await frames.next()
        refusal = failure(asked.id, -32001, "no", {"a": 1})
        assert isinstance(refusal, Failure)
        channel.send(refusal)
        with pytest.raises(RpcError) as refused:
            await waiting
        error = refused.value
        assert (error.code, error.message, error.data) == (-32001, "no", {"a": 1})
        assert error.raw == bytes(refusal.error)


async def test_the_params_of_a_forwarded_request_are_built_from_its_id() -> None:
    async with bare_client() as (channel, frames, client):
        sent: list[Any] = []
        waiting = asyncio.create_task(
            client.outbound.forward(
                "x", lambda number: Raw(b'{"n":%d}' % number), on_sent=sent.append
            )
        )
        asked = await frames.next()
        assert (asked.method, asked.params) == ("x", Raw(b'{"n":%d}' % asked.id))
        assert sent == [asked.id]
        channel.send(Success(asked.id, Raw(b"[]")))
        assert await waiting == Raw(b"[]")


async def test_deadlines_are_paused_while_a_server_request_is_pending(
    virtual_time: VirtualTime,
) -> None:
    for answered_after, expected in ((3.0, 5.0), (20.0, 12.0)):
        async with bare_client(input_timeout=10.0) as (_, _frames, client):
            question = asyncio.create_task(asyncio.sleep(answered_after))
            begun = virtual_time.now
            client.outbound.pause_deadlines(question)
            with pytest.raises(RequestTimeout):
                await client.request("x", timeout=2)
            assert virtual_time.now - begun == pytest.approx(expected)
            await question
            await asyncio.sleep(20)  # the deadlines are resumed only once
            begun = virtual_time.now
            with pytest.raises(RequestTimeout):
                await client.request("x", timeout=2)
            assert virtual_time.now - begun == pytest.approx(2)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"timeout": 4.0}, 4.0),
        ({"timeout": 4.0, "max_total": 6.0}, 6.0),
        ({"timeout": 4.0, "max_total": 60.0}, 7.0),
    ],
)
async def test_a_forwarded_request_has_the_same_deadlines_as_other_requests(
    virtual_time: VirtualTime, limits: dict[str, float], expected: float
) -> None:
    async with bare_client() as (channel, frames, client):
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        heard: list[Notification] = []
        begun = virtual_time.now
        client.outbound.forward_nowait(
            "tools/call",
            lambda number: Raw(b'{"_meta":{"progressToken":%d}}' % number),
            outcome.set_result,
            overhear=heard.append,
            **limits,
        )
        asked = await frames.next()
        await asyncio.sleep(3)
        said = Raw(b'{"progressToken":%d,"progress":1}' % asked.id)
        channel.send(Notification("notifications/progress", said))
        assert isinstance(await outcome, RequestTimeout)
        assert virtual_time.now - begun == pytest.approx(expected)
        assert [note.params for note in heard] == [said]


async def test_a_request_that_cannot_be_written_is_not_pending() -> None:
    async with bare_client() as (_, _frames, client):
        closing = asyncio.create_task(client.channel.close())
        while True:
            try:
                client.channel.send(Notification("notifications/x"))
            except ChannelClosed:
                break
            await asyncio.sleep(0)
        assert client.connected
        with pytest.raises(ChannelClosed):
            client.outbound.forward_nowait("x", Raw(b"{}"), lambda _: pytest.fail("twice"))
        with pytest.raises(ChannelClosed):
            client.outbound.forward_nowait("x", lambda _: Raw(b"{}"), lambda _: None)
        asking = asyncio.create_task(client.request("x"))
        with pytest.raises(ChannelClosed):
            await asking
        assert client.outbound.pending == {}
        assert client.conversation._waiting == set()
        await closing


async def test_the_total_time_of_a_request_is_paused_while_a_server_request_is_pending(
    virtual_time: VirtualTime,
) -> None:
    async with bare_client() as (channel, frames, client):
        begun = virtual_time.now
        waiting = asyncio.create_task(
            client.request("x", timeout=4, max_total=6, on_progress=lambda *_: None)
        )
        asked = await frames.next()
        question = asyncio.create_task(asyncio.sleep(10))
        client.outbound.pause_deadlines(question)
        await question
        await asyncio.sleep(3)
        said = Raw(b'{"progressToken":%d,"progress":1}' % asked.id)
        channel.send(Notification("notifications/progress", said))
        with pytest.raises(RequestTimeout):
            await waiting
        assert virtual_time.now - begun == pytest.approx(16)


async def test_deadlines_expire_in_order_and_only_once(loop_kind: str) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("late", 0.5, expired.put_nowait)
    deadlines.add("early", 0.02, expired.put_nowait)
    deadlines.add("done", 0.25, expired.put_nowait)
    deadlines.remove("done")
    deadlines.remove("never there")
    assert [await expired.get(), await expired.get()] == ["early", "late"]
    assert len(deadlines._due) == 0
    assert expired.empty()


async def test_adding_a_deadline_again_restarts_it() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    started = loop.time()
    deadlines.add("x", 0.02, expired.put_nowait)
    deadlines.add("x", 0.2, expired.put_nowait)
    assert await expired.get() == "x"
    assert loop.time() - started > 0.15
    assert expired.empty()


async def test_no_deadline_expires_after_close() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("x", 0.01, expired.put_nowait)
    deadlines.close()
    other = loop.create_future()
    loop.call_later(0.05, other.set_result, None)
    await other
    assert expired.empty()


async def test_deadlines_do_not_expire_while_paused() -> None:
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


async def test_each_deadline_expires_at_its_own_time(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    begun = loop.time()
    expired: list[tuple[str, float]] = []

    def note(key: str) -> None:
        expired.append((key, loop.time() - begun))

    deadlines.add("c", 3, note)
    deadlines.add("a", 1, note)
    deadlines.add("b", 2, note)
    deadlines.add("gone", 1.5, note)
    deadlines.remove("gone")
    deadlines.remove("gone")
    assert len(deadlines._due) == 3
    await asyncio.sleep(10)
    assert expired == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert len(deadlines._due) == 0


async def test_a_pause_extends_all_deadlines_by_its_duration(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    begun = loop.time()
    expired: list[tuple[str, float]] = []

    def note(key: str) -> None:
        expired.append((key, loop.time() - begun))

    deadlines.add("a", 2, note)
    await asyncio.sleep(1)
    deadlines.pause()
    deadlines.pause()
    await asyncio.sleep(5)
    deadlines.add("b", 2, note)
    assert deadlines.resume() == 0.0
    await asyncio.sleep(5)
    assert deadlines.resume() == pytest.approx(10.0)
    await asyncio.sleep(20)
    assert expired == [("a", pytest.approx(12.0)), ("b", pytest.approx(13.0))]


async def test_closing_the_deadlines_cancels_their_timer(virtual_time: VirtualTime) -> None:
    deadlines: Deadlines[str] = Deadlines(asyncio.get_running_loop())
    expired: list[str] = []
    deadlines.add("a", 1, expired.append)
    timer = deadlines._timer
    assert timer is not None
    deadlines.close()
    deadlines.close()
    assert timer.cancelled()
    await asyncio.sleep(5)
    assert (expired, len(deadlines._due)) == ([], 0)
    assert deadlines._timer is None


async def test_one_timer_is_scheduled_for_the_earliest_deadline(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    timers = []
    for key, seconds in (("a", 5), ("b", 7), ("c", 5), ("d", 3)):
        deadlines.add(key, seconds, lambda _: None)
        assert deadlines._timer is not None
        timers.append(deadlines._timer)
    assert timers[0] is timers[1] is timers[2] is not timers[3]
    assert timers[0].cancelled()
    assert timers[3].when() == loop.time() + 3
    deadlines.pause()
    assert timers[3].cancelled()
    assert deadlines._timer is None
    deadlines.resume()
    await asyncio.sleep(7)
    assert len(deadlines._due) == 0
    assert deadlines._timer is None


def progress(**params: Any) -> Notification:
    return Notification("notifications/progress", Raw(json.dumps(params).encode()))


class Waiting:
    """A request whose callback may be slow."""

    def __init__(self, *, slow: bool = False, heard: bool = True) -> None:
        self.future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.heard: list[tuple[float, float | None, str | None]] = []
        self.go = asyncio.Semaphore(0)
        self._slow = slow
        self.pending = Pending("tools/call", self.future, 1, 2, self._hear if heard else None)

    def _hear(self, done: float, total: float | None, message: str | None) -> Any:
        self.heard.append((done, total, message))
        if done < 0:
            raise ValueError("odd")
        return self.go.acquire() if self._slow else None


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_progress_callback_gets_the_values_of_the_notification() -> None:
    one = Waiting()
    one.pending.progressed(progress(progress=1, total=4, message="m"))
    one.pending.progressed(progress())
    assert one.heard == [(1, 4, "m"), (0, None, None)]
    for odd in (UNSET, Raw(b"[]"), Raw(b"{")):
        one.pending.progressed(Notification("notifications/progress", odd))
    assert len(one.heard) == 2
    one.pending.settle(Raw(b"{}"))
    assert bytes(one.future.result()) == b"{}"


async def test_progress_without_a_callback_is_ignored() -> None:
    one = Waiting(heard=False)
    one.pending.progressed(progress(progress=1))
    one.pending.progressed(Notification("notifications/progress"))
    await one.pending.progress_delivered()
    one.pending.settle(Raw(b"{}"))
    assert one.future.done()


async def test_only_the_first_outcome_of_a_request_counts() -> None:
    one = Waiting()
    one.pending.settle(ValueError("first"))
    one.pending.settle(Raw(b"{}"))
    with pytest.raises(ValueError, match="first"):
        one.future.result()


async def test_a_slow_callback_gets_all_progress_before_the_result() -> None:
    one = Waiting(slow=True)
    for number in range(3):
        one.pending.progressed(progress(progress=number))
    one.pending.settle(Raw(b"{}"))
    await turns()
    assert (one.heard, one.future.done()) == ([(0, None, None)], False)
    for _ in range(3):
        one.go.release()
    await one.pending.progress_delivered()
    await turns()
    assert [done for done, _, _ in one.heard] == [0, 1, 2]
    assert one.future.done()


async def test_a_callback_that_is_too_slow_misses_the_oldest_progress_notifications() -> None:
    one = Waiting(slow=True)
    for number in range(102):
        one.pending.progressed(progress(progress=number))
    for _ in range(200):
        one.go.release()
    await one.pending.progress_delivered()
    assert [done for done, _, _ in one.heard] == [0, *range(2, 102)]


async def test_a_callback_that_raised_is_called_for_the_next_progress_notification(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Waiting()
    one.pending.progressed(progress(progress=-1))
    one.pending.progressed(progress(progress=1))
    assert [done for done, _, _ in one.heard] == [-1, 1]
    assert "the progress callback of tools/call failed" in caplog.text


async def test_forwarded_progress_has_unchanged_bytes() -> None:
    heard: list[Notification] = []
    future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
    pending = Pending("x", future, 1, 2, lambda *_: pytest.fail("not both"), heard.append)
    said = progress(progress=1)
    pending.progressed(said)
    outcomes: list[Any] = []
    relayed = CallbackPending("x", 1, 2, outcomes.append, heard.append)
    relayed.progressed(said)
    relayed.settle(Raw(b"{}"))
    assert (heard, len(outcomes)) == ([said, said], 1)
    CallbackPending("x", 1, 2, outcomes.append, None).progressed(said)
