"""Subscriptions of a gateway's clients: every request is answered, and nothing stays watched."""

import asyncio

import pytest

from fairlead import RpcError
from fairlead.gateway import Gateway
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.support.gateway_servers import HANDSHAKE, LIMIT, joining, make, serving, until


async def test_subscribing_and_unsubscribing_have_an_empty_result() -> None:
    seen: list[tuple[str, Answer]] = []

    async def record(exchange: Exchange, proceed: Proceed) -> Answer:
        answer = await proceed(exchange)
        if exchange.method.endswith("subscribe"):
            seen.append((exchange.method, answer))
        return answer

    gateway = Gateway(interceptors=[record])
    async with asyncio.timeout(LIMIT), serving(make("red")) as url, gateway:
        await gateway.connect({"red": {"url": url}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, HANDSHAKE) as client:
            for uri in ("red://fixed", "red://item/1"):
                subscribed = await client.request("resources/subscribe", {"uri": uri})
                assert bytes(subscribed) == b"{}"
            assert len(gateway.upstream_subscriptions) == 2
            for left in (1, 1):  # also if it is not subscribed to any more
                gone = await client.request("resources/unsubscribe", {"uri": "red://fixed"})
                assert bytes(gone) == b"{}"
                assert len(gateway.upstream_subscriptions) == left
            with pytest.raises(RpcError):
                await client.request("resources/subscribe", {"uri": "green://none"})
            assert len(gateway.upstream_subscriptions) == 1
        await until(lambda: len(gateway.upstream_subscriptions) == 0)
    # For interceptors None is a message without an answer.
    assert seen == [("resources/subscribe", b"{}")] * 2 + [("resources/unsubscribe", b"{}")] * 2
