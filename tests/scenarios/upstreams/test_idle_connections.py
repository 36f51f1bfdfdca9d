"""Closing of connections: idle times, `max_connections`, and inactive sessions."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import RpcError
from tests.support.adjustable_clock import AdjustableClock, virtual_time
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    Served,
    connect,
    eventually,
    gateway_for,
    raw_session,
    running_file,
    write_file,
)

__all__ = ["person", "virtual_time"]

LIMIT = 4000.0  # seconds of virtual time
QUIET = 61.0  # seconds after which a quiet connection may be closed for another


async def test_the_error_for_a_busy_server_has_a_retry_time(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, max_connections=2) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "elicitation") as second,
        connect(served.url, "notes", "sampling") as third,
    ):
        await plain.pid()
        await second.pid()
        with pytest.raises(RpcError) as caught:
            await third.pid()
        assert "notes" in str(caught.value)
        assert "retryAfter" in json.dumps(caught.value.data)
        assert len(log.running()) == 2


async def test_an_inactive_connection_is_closed_for_a_new_client(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, max_connections=2) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "elicitation") as second,
        connect(served.url, "notes", "sampling") as third,
    ):
        await plain.pid()
        await second.pid()
        await virtual_time.advance(QUIET)
        recent = await second.pid()
        assert await third.pid() not in (recent, log.started()[0])
        await until(lambda: len(log.running()) == 2)
        # the connection that was idle for the longest time was closed
        assert recent in log.running()
        await virtual_time.advance(QUIET)
        await plain.pid()  # a session that lost its connection continues
        assert log.peak() <= 3
        await until(lambda: len(log.running()) == 2)


async def test_sessions_of_many_users_take_turns_within_the_connection_limit(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    users = [f"user{n}" for n in range(6)]
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            gateway_for(
                {"notes": log.entry("notes")},
                max_connections=3,
                tokens={user: user for user in users},
            )
        )
        clients = [
            await stack.enter_async_context(connect(served.url, "notes", "elicitation", token=user))
            for user in users
        ]
        for client in clients * 2:
            await client.pid()
            await virtual_time.advance(QUIET)
        await until(lambda: len(log.running()) <= 3)


@pytest.mark.slow
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_forty_users_of_one_process_server_are_all_served(
    tmp_path: Path, virtual_time: AdjustableClock, version: str
) -> None:
    """An idle connection is closed for a user beyond `max_connections` (32)."""
    log, users = ServerLog(tmp_path), [f"user{n}" for n in range(40)]
    tokens, refused = {user: user for user in users}, 0
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            gateway_for({"notes": log.entry("notes")}, tokens=tokens)
        )
        pids = []
        for user in users:
            client = await stack.enter_async_context(
                connect(served.url, "notes", "elicitation", token=user, version=version)
            )
            try:
                pids.append(await client.pid())
            except RpcError as busy:
                refused += 1
                await virtual_time.advance(busy.data["retryAfter"] + 0.1)
                pids.append(await client.pid())
        assert len(set(pids)) == 40
        assert 1 <= refused <= 40 - 31  # 31 users and the default connection reach the limit
        await until(lambda: len(log.running()) <= 32)


async def test_a_connection_without_calls_is_closed_after_idle_close(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    """A handshake client has its own connection, so the default connection is closed."""
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        pid = await client.pid()
        [first, *_] = log.started()
        assert first != pid
        await virtual_time.advance(310)
        await until(lambda: log.running() == [pid])
        assert await client.pid() == pid
        assert "pid" in await client.tools()


async def test_a_connection_with_calls_is_closed_after_idle_close_used(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, idle_close=300, idle_close_used=1000) as served,
    ):
        async with connect(served.url, "notes", "elicitation") as client:
            pid = await client.pid()
        await virtual_time.advance(900)
        await log.quiet()
        # the default connection was closed because it had no calls
        assert log.running() == [pid]
        async with connect(served.url, "notes") as client:
            other = await client.pid()
        await virtual_time.advance(200)
        await until(lambda: log.running() == [other])


async def test_the_last_connection_stays_open_even_if_it_was_opened_for_a_client(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, idle_close=300, idle_close_used=1000) as served,
    ):
        async with connect(served.url, "notes", "elicitation") as client:
            pid = await client.pid()
        await virtual_time.advance(3000)
        await log.quiet()
        assert log.running() == [pid]
        assert len(log.started()) == 2


@pytest.mark.parametrize("kind", ["handshake", "stateless", "both"])
async def test_the_last_connection_of_a_server_stays_open(
    tmp_path: Path, virtual_time: AdjustableClock, kind: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.two_eras("notes") if kind == "both" else log.entry("notes", eras=[kind])
    async with asyncio.timeout(LIMIT), gateway_for({"notes": entry}):
        await virtual_time.advance(3000)
        await log.quiet()
        assert len(log.running()) == len(log.started()) == 1


async def test_a_lazy_server_stops_when_idle_and_its_lists_are_kept(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    entry = {**log.entry("notes"), "lazy": True}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, idle_close=300, idle_close_used=300) as served,
        connect(served.url, "notes") as client,
        connect(served.url, "notes", version=STATELESS) as other,
    ):
        first = await client.pid()
        listed = await client.tools()
        await virtual_time.advance(310)
        await until(lambda: not log.running())
        assert await client.tools() == await other.tools() == listed
        await client.list_everything()
        await log.quiet()
        assert log.started() == [first]
        assert await client.pid() != first
        assert len(log.started()) == 2


async def test_a_session_without_a_stream_continues_after_its_connection_closed(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(
            {"notes": log.entry("notes")}, share="session", idle_close=60, idle_close_used=60
        ) as served,
        raw_session(served.url) as session,
    ):
        pid = await session.pid()
        await virtual_time.advance(610)
        await until(lambda: pid not in log.running())
        assert await session.pid() != pid


# Sessions whose client has vanished


def session_counts(served: Served) -> list[int]:
    return [one["sessions"] for one in served.server_status("notes")["connections"]]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("share", ["alike", "session"])
async def test_a_session_without_stream_or_call_releases_its_connection_after_ten_minutes(
    tmp_path: Path, virtual_time: AdjustableClock, endpoint: str, share: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, share=share) as served,
        raw_session(served.url, capabilities={"elicitation": {}}, endpoint=endpoint) as session,
    ):
        pid = await session.pid()
        await virtual_time.advance(570)
        assert sum(session_counts(served)) == 1
        await virtual_time.advance(90)
        await until(lambda: sum(session_counts(served)) == 0)
        # A process that other clients may use stays until `idle_close_used`.
        await until(lambda: (pid in log.running()) is (share == "alike"))
        assert (await session.pid() == pid) is (share == "alike")
        assert await session.list_change() == "notifications/tools/list_changed"


async def test_a_session_with_a_call_or_a_stream_keeps_its_connection(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    log, gate = ServerLog(tmp_path), tmp_path / "gate"
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, share="session") as served,
        raw_session(served.url) as calling,
        connect(served.url) as listening,
    ):
        pids = [await calling.pid(), await listening.pid()]
        call = asyncio.create_task(calling.call("hold", until=str(gate)))
        await until(lambda: len(log.received("tools/call")) == 3)
        await virtual_time.advance(1500)
        assert sum(session_counts(served)) == 2
        gate.touch()
        assert [int(await call), await listening.pid()] == pids


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_the_option_session_idle_ends_sessions_of_clients_that_have_vanished(
    tmp_path: Path, person: Person, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    file = write_file(tmp_path, {"notes": log.entry("notes")}, share="session")
    with running_file(person, file, "--session-idle", "0.5") as gateway:
        gateway.wait_for("notes: connected")
        async with (
            asyncio.timeout(20),
            aiohttp.ClientSession() as web,
            connect(gateway.url, "notes", endpoint=endpoint) as listening,
        ):

            async def clients() -> Any:
                async with web.get(gateway.url.removesuffix("/mcp") + "/status") as answer:
                    return (await answer.json())["clients"]

            kept = await listening.pid()
            async with raw_session(gateway.url, endpoint=endpoint) as vanished:
                pid = await vanished.pid()
            assert pid != kept
            await until(lambda: pid not in log.running())
            await eventually(clients, lambda number: number == 1)
            # The stream of the other client is open, so its session continues.
            assert await listening.pid() == kept


@pytest.mark.parametrize("kind", ["handshake", "stateless"])
async def test_sessions_on_a_shared_connection_are_released_after_idle_release(
    tmp_path: Path, virtual_time: AdjustableClock, kind: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes", eras=[kind])}, idle_release=60) as served,
        raw_session(served.url) as vanished,
        connect(served.url) as listening,
    ):
        pid = await vanished.pid()
        assert await listening.pid() == pid
        assert session_counts(served) == [2]
        await virtual_time.advance(90)
        await until(lambda: session_counts(served) == [1])
        assert await listening.pid() == pid
        assert await vanished.pid() == pid
        assert session_counts(served) == [2]
