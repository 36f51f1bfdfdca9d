"""Instructions of a gateway and of its servers."""

import asyncio

import pytest

from fairlead.gateway import Gateway
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    joining,
    make,
    program,
    serving,
    until,
)


@pytest.mark.parametrize("version", BOTH)
async def test_a_client_hears_what_each_server_wants_a_model_to_know(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}, "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            assert client.instructions == "blue: how to use blue\n\nred: how to use red"
    async with Gateway(instructions="mine") as gateway, joining(gateway, version) as client:
        assert client.instructions == "mine"
