"""Tests of the timeout action with single exchanges."""

import asyncio

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.policy.actions.time_limit import TimeLimit
from tests.support.single_exchange import Behind, exchange


async def test_a_request_without_a_response_within_the_time_limit_is_rejected() -> None:
    async def forever(exchange: Exchange) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RpcError, match=r"No response within 0\.01 s") as late:
        await TimeLimit(0.01)(exchange(), forever)
    assert late.value.code == -32603
    assert await TimeLimit(5)(exchange(), Behind()) == b"{}"
    assert await TimeLimit(5)(exchange(request=False), Behind(None)) is None

    async def fails(exchange: Exchange) -> Answer:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await TimeLimit(5)(exchange(), fails)
    for seconds in (0, -1):
        with pytest.raises(ValueError, match="must be greater than 0"):
            TimeLimit(seconds)
