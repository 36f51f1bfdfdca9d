"""Tests of outbound requests: deadlines, cancellation and notifications to the peer."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, RequestTimeout, RpcError
from fairlead.peer import Peer
from fairlead.peer.connection_state import FEW
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.identity.principal import ANONYMOUS
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


async def test_a_timeout_of_zero_means_no_limit(virtual_time: VirtualTime) -> None:
    async with bare_client() as (channel, frames, client):
        waiting = asyncio.create_task(client.request("x", timeout=0))
        asked = await frames.next()
        await asyncio.sleep(100_000)
        channel.send(Success(asked.id, Raw(b"{}")))
        assert await waiting == Raw(b"{}")


@pytest.mark.parametrize(("pause", "limit"), [(3.0, 3.0), (4.0, 6.0)])
async def test_progress_restarts_the_timeout_within_the_total(
    virtual_time: VirtualTime, pause: float, limit: float
) -> None:
    """The timeout is 4 seconds, or the rest of the total; it expires after the last progress."""
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


async def test_requests_to_a_peer_that_does_not_read_time_out_undelivered(
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
        (client.forward("x", lambda _: Raw(b"{}"), timeout=5), 5),
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


async def test_members_beside_a_result_are_passed_to_the_callback() -> None:
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


async def test_a_forwarded_request_has_the_params_for_its_id() -> None:
    async with bare_client() as (channel, frames, client):
        sent: list[Any] = []
        waiting = asyncio.create_task(
            client.forward("x", lambda number: Raw(b'{"n":%d}' % number), on_sent=sent.append)
        )
        asked = await frames.next()
        assert (asked.method, asked.params) == ("x", Raw(b'{"n":%d}' % asked.id))
        assert sent == [asked.id]
        channel.send(Success(asked.id, Raw(b"[]")))
        assert await waiting == Raw(b"[]")


async def test_deadlines_are_paused_while_a_question_is_open(virtual_time: VirtualTime) -> None:
    for answered_after, expected in ((3.0, 5.0), (20.0, 12.0)):
        async with bare_client(input_timeout=10.0) as (_, _frames, client):
            question = asyncio.create_task(asyncio.sleep(answered_after))
            begun = virtual_time.now
            client.outbound.pause_deadlines(question)
            with pytest.raises(RequestTimeout):
                await client.request("x", timeout=2)
            assert virtual_time.now - begun == pytest.approx(expected)
            await question
            await asyncio.sleep(20)  # and they are resumed only once
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
async def test_a_forwarded_request_has_the_same_deadlines_as_any_other(
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


async def test_a_request_that_cannot_be_written_is_forgotten() -> None:
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


async def test_the_total_time_of_a_request_is_paused_while_a_question_is_open(
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
