"""Clients that do not wait for the answer to their handshake."""

import pytest
from rawends import HANDSHAKE, scene


@pytest.mark.covers("GTW-03")
async def test_what_is_asked_behind_initialize_waits_for_it_and_nothing_is_restored() -> None:
    """No list has changed meanwhile: the server was never away."""
    params = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "eager", "version": "1"},
    }
    async with scene() as place:
        client = await place.client()
        client.ask("initialize", params, 1)
        client.ask("tools/call", {"name": "x"}, 2)
        client.ask("tools/call", {"name": "y"}, 3)
        server = await place.server()
        for _ in range(2):
            asked = await server.method("tools/call")
            server.reply(asked, {"was": asked["params"]["name"]})
        assert "result" in await client.answer_to(1)
        assert (await client.answer_to(2))["result"] == {"was": "x"}
        assert (await client.answer_to(3))["result"] == {"was": "y"}
        assert client.skipped == []
        assert len(place.servers) == 1
