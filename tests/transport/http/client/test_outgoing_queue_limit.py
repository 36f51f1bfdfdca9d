"""Limits on concurrent calls and on the bytes of waiting messages."""

import asyncio

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.protocol.caller import read_params_head
from fairlead.transport.http.client.outgoing_queue import HIGH_WATER, ConcurrencyLimit
from fairlead.transport.http.client.post_response_stream import PendingPost
from fairlead.wire import Request

STATELESS = b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}'


def post(params: bytes = b"{}", *, counted: bool = True) -> PendingPost:
    request = Request(1, "tools/call", Raw(params))
    posted = PendingPost(request, read_params_head(request.params))
    posted.counted = counted
    return posted


async def waiting(limit: ConcurrencyLimit, *sizes: int) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.create_task(limit.take(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


async def test_waiting_calls_start_in_order() -> None:
    limit = ConcurrencyLimit(2)
    first, second, third, fourth = await waiting(limit, 10, 20, 30, 40)
    assert [task.done() for task in (first, second, third, fourth)] == [True, True, False, False]
    assert limit._waiting == 70
    ended = post()
    limit.release_post(ended)
    limit.release_post(ended)
    limit.release_post(post(counted=False))
    await third
    assert not fourth.done()
    assert limit._waiting == 40
    fourth.cancel()
    await asyncio.wait((fourth,))
    assert limit._waiting == 0


async def test_the_queue_is_congested_above_the_high_water_mark() -> None:
    limit = ConcurrencyLimit(1)
    await limit.take(10 * HIGH_WATER)
    assert not limit.congested
    await limit.drain()
    [first] = await waiting(limit, HIGH_WATER)
    assert not limit.congested
    [second] = await waiting(limit, 1)
    assert limit.congested
    draining = [asyncio.create_task(limit.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in draining)
    limit.release_post(post())
    async with asyncio.timeout(5):
        await asyncio.gather(first, *draining)
    assert not limit.congested
    limit.release_post(post())
    await second
    assert limit._waiting == 0


async def test_drain_raises_if_the_limit_is_closed_while_congested() -> None:
    limit = ConcurrencyLimit(1)
    await limit.take(1)
    tasks = await waiting(limit, HIGH_WATER + 1)
    draining = asyncio.create_task(limit.drain())
    await asyncio.sleep(0)
    limit.close()
    with pytest.raises(ChannelClosed) as refused:
        async with asyncio.timeout(5):
            await draining
    assert refused.value.delivered is False
    with pytest.raises(ChannelClosed):
        await limit.drain()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    await limit.drain()


@pytest.mark.parametrize(
    ("params", "version"),
    [(b"{}", None), (b'{"_meta":{}}', None), (STATELESS, "2026-07-28")],
    ids=["no meta", "empty meta", "stateless"],
)
def test_a_request_with_a_protocol_version_in_its_metadata_is_stateless(
    params: bytes, version: str | None
) -> None:
    posted = post(params)
    assert posted.version == version
    assert posted.stateless is (version is not None)
    assert (posted.answered, posted.sent, posted.streaming) == (False, False, False)
