"""Clients whose calls crash their server process, and the effect on other clients."""

import asyncio
import json
from pathlib import Path

import pytest

from fairlead.errors import FairleadError, RpcError
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.running_gateway import get
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    Client,
    connect,
    gateway_for,
)

LOSSES = 5  # allowed losses of one key within 30 s; one more suspends the key


async def crash(client: Client, times: int) -> list[str]:
    """Crash the process of a client repeatedly; return the errors."""
    errors = []
    for _ in range(times):
        with pytest.raises(FairleadError) as caught:
            await client.call("die")
        errors.append(str(caught.value))
    return errors


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_crashes_caused_by_one_client_do_not_affect_other_clients(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "sampling") as sampling,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as crashing,
    ):
        before = [await plain.pid(), await sampling.pid()]
        for times in (1, LOSSES):
            await crash(crashing, times)
            assert [await plain.pid(), await sampling.pid()] == before
        async with connect(served.url, "notes", "roots") as newcomer:
            assert await newcomer.pid() not in before


async def test_the_status_stays_connected_while_other_clients_are_served(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "elicitation") as crashing,
    ):
        await crash(crashing, LOSSES + 3)
        await plain.pid()
        row = served.server_status("notes")
        assert (row["status"], row["breaker"], row["error"]) == ("connected", "closed", None)
        code, text = await asyncio.to_thread(get, served.url, "/status")
        [public] = json.loads(text)["servers"]
        assert (code, public["status"], public["breaker"]) == (200, "connected", "closed")


async def test_a_client_that_crashes_its_server_repeatedly_starts_no_more_processes(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as crashing,
    ):
        errors = await crash(crashing, LOSSES * 3)
        own = {one.pid for one in log.received("tools/call")}
        assert LOSSES <= len(own) <= LOSSES + 1
        assert all("notes" in error for error in errors)
        with pytest.raises(RpcError) as refused:
            await crashing.call("die")
        assert 0 < refused.value.data["retryAfter"] <= 30
        async with connect(served.url, "notes") as plain:
            await plain.pid()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("reason", ["share", "roots"])
async def test_a_session_that_crashes_its_own_process_repeatedly_is_suspended_alone(
    tmp_path: Path, reason: str, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", asks_roots=reason == "roots")
    share = "session" if reason == "share" else "alike"
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, share=share) as served,
        connect(served.url, "notes", "roots", endpoint=endpoint) as other,
        connect(served.url, "notes", "roots", endpoint=endpoint) as crashing,
    ):
        before = await other.pid()
        errors = await crash(crashing, LOSSES * 3)
        own = {one.pid for one in log.received("tools/call")} - {before}
        assert len(own) == LOSSES + 1
        refused = errors[LOSSES + 1 :]
        assert all("'notes' failed more than 5 times within 30 s" in one for one in refused)
        assert all("try again in" in one for one in refused)
        assert await other.pid() == before
        async with connect(served.url, "notes", "roots", endpoint=endpoint) as newcomer:
            assert await newcomer.pid() not in {before, *own}
        row = served.server_status("notes")
        assert (row["status"], row["breaker"], row["error"]) == ("connected", "closed", None)
        assert [(one["exclusive"], one["losses"]) for one in row["suspended"]] == [(True, 6)]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("version", "capability"), [(STATELESS, "elicitation"), (HANDSHAKE, "roots")]
)
@pytest.mark.parametrize("connected_before", [True, False])
async def test_a_suspended_default_connection_does_not_affect_clients_with_capabilities(
    tmp_path: Path, version: str, capability: str, endpoint: str, connected_before: bool
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", endpoint=endpoint) as crashing,
        connect(served.url, "notes", capability, endpoint=endpoint, version=version) as client,
    ):
        before = await client.pid() if connected_before else None
        await crash(crashing, LOSSES + 2)
        with pytest.raises(RpcError, match="failed more than 5 times within 30 s"):
            await crashing.pid()
        pid = await client.pid()
        assert pid == await client.pid()
        assert connected_before is (pid == before)
        [key] = served.server_status("notes")["suspended"]
        assert (key["default"], key["capabilities"]) == (True, {})


async def test_a_manual_reconnect_ends_the_suspension_of_a_client(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as crashing,
    ):
        await crash(crashing, LOSSES + 2)
        assert served.server_status("notes")["suspended"]
        await served.gateway.upstreams["notes"].reconnect()
        assert served.server_status("notes")["suspended"] == []
        await crashing.pid()


async def test_a_user_whose_calls_crash_a_server_does_not_block_other_users(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    tokens = {"a": "alice", "m": "mallory"}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, tokens=tokens) as served,
        connect(served.url, "notes", "elicitation", token="m") as mallory,
        connect(served.url, "notes", "elicitation", token="a") as alice,
    ):
        before = await alice.pid()
        await crash(mallory, LOSSES * 2)
        assert await alice.pid() == before
        assert "yes" in await alice.call("ask")


async def test_a_client_recovers_from_a_server_crash_with_its_next_call(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        pid = await client.pid()
        [error] = await crash(client, 1)
        assert "notes" in error
        assert await client.pid() != pid
