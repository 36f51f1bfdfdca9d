"""Elicitations during concurrent calls of one client."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import ENDPOINTS, connect, gateway_for

ASKS = 3  # number of concurrent calls


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("kind", ["two-eras", "handshake-only"])
async def test_elicitations_reach_their_client_although_another_client_shares_the_process(
    tmp_path: Path, endpoint: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.two_eras("notes") if kind == "two-eras" else log.entry("notes")
    everything_asked = asyncio.Barrier(ASKS)

    async def answer(question: Any) -> Any:
        await everything_asked.wait()  # accept only when all calls are in progress
        return {"action": "accept", "content": {"value": "yes"}}

    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        connect(served.url, "notes", "elicitation") as window,
        connect(served.url, "notes", "elicitation", endpoint=endpoint, on_elicit=answer) as asked,
    ):
        assert await window.pid() == await asked.pid()
        answers = await asyncio.gather(*(asked.call("ask") for _ in range(ASKS)))
        assert all("yes" in text for text in answers)
