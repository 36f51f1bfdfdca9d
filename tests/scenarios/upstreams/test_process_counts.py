"""The number of server processes, and the time that calls wait for a process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fairlead.errors import RpcError
from tests.support.gateway_servers import until
from tests.support.observed_servers import ServerLog
from tests.support.upstream_gateways import (
    HANDSHAKE,
    STATELESS,
    Client,
    Served,
    connect,
    gateway_for,
)

LIMIT = 40.0  # seconds for twenty servers, each compared for two kinds of hosts
SERVERS = [f"server{n:02}" for n in range(20)]
USED = SERVERS[:3]
HOSTS = ((), ("elicitation",), ("elicitation", "sampling", "roots"))
WINDOWS = (HOSTS[0], *[HOSTS[1]] * 4, HOSTS[2])
USERS = [f"user{n:02}" for n in range(40)]


@asynccontextmanager
async def twenty_servers(log: ServerLog) -> AsyncIterator[Served]:
    async with asyncio.timeout(LIMIT):
        async with gateway_for({name: log.entry(name) for name in SERVERS}) as served:
            yield served


async def first_contact(stack: AsyncExitStack, served: Served, *declares: str) -> Client:
    """Connect as a host does: initialize, list everything, listen for changes."""
    client = await stack.enter_async_context(connect(served.url, USED[0], *declares))
    await client.list_everything()
    await client.mcp.listen("tools", "prompts", "resources")
    return client


@pytest.mark.slow
async def test_connecting_three_hosts_runs_at_most_21_processes(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with twenty_servers(log) as served, AsyncExitStack() as stack:
        for declares in HOSTS:
            await first_contact(stack, served, *declares)
        await log.quiet()
        assert log.peak() <= 21
        await until(lambda: len(log.running()) <= 20)


@pytest.mark.slow
async def test_calls_of_three_hosts_to_three_servers_run_at_most_30_processes(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with twenty_servers(log) as served, AsyncExitStack() as stack:
        clients = [await first_contact(stack, served, *declares) for declares in WINDOWS]
        for client in clients:
            for server in USED:
                assert (await client.mcp.call(f"{server}_pid")).text.isdigit()
        await log.quiet()
        assert log.peak() <= 30
        await until(lambda: len(log.running()) <= 29)


@pytest.mark.slow
async def test_reconnecting_hosts_start_no_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with twenty_servers(log) as served:
        async with AsyncExitStack() as stack:
            for declares in HOSTS:
                await first_contact(stack, served, *declares)
            await log.quiet()
        started = len(log.started())
        assert started <= 3 * len(SERVERS)
        async with AsyncExitStack() as stack:
            for declares in WINDOWS:
                await first_contact(stack, served, *declares)
            await log.quiet()
        assert len(log.started()) == started


# Forty named users of one stdio server


@asynccontextmanager
async def forty_users(
    log: ServerLog, *declares: str, version: str = HANDSHAKE, eras: str = "handshake", **relay: str
) -> AsyncIterator[list[Client]]:
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            gateway_for(
                {"notes": log.entry("notes", eras=[eras])},
                tokens={user: user for user in USERS},
                **relay,
            )
        )
        yield [
            await stack.enter_async_context(
                connect(served.url, "notes", *declares, token=user, version=version)
            )
            for user in USERS
        ]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_forty_users_that_only_request_lists_start_no_further_process(
    tmp_path: Path, version: str
) -> None:
    log = ServerLog(tmp_path)
    async with forty_users(log, version=version) as clients:
        for client in clients:
            await client.list_everything()
        await log.quiet()
        assert len(log.started()) == 1


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_forty_users_share_one_process_of_a_stateless_server(
    tmp_path: Path, version: str
) -> None:
    log = ServerLog(tmp_path)
    async with forty_users(log, "elicitation", version=version, eras="stateless") as clients:
        pids = await asyncio.gather(*(client.pid() for client in clients))
        assert set(pids) == {log.started()[0]}
        # One more process was started, which refused `initialize`.
        assert len(log.started()) <= (2 if version == HANDSHAKE else 1)
        await until(lambda: len(log.running()) == 1)


async def test_forty_users_share_one_process_with_the_setting_share_all(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with forty_users(log, "elicitation", share="all") as clients:
        pids = await asyncio.gather(*(client.pid() for client in clients))
        assert set(pids) == set(log.started())
        assert len(log.started()) == 1


async def test_forty_users_of_a_handshake_server_never_share_a_process_and_respect_the_limit(
    tmp_path: Path,
) -> None:
    """Users beyond `max_connections` (32) get an error, and users never share a process."""
    log = ServerLog(tmp_path)
    async with forty_users(log, "elicitation") as clients:
        answers = await asyncio.gather(
            *(client.pid() for client in clients), return_exceptions=True
        )
        pids = [answer for answer in answers if isinstance(answer, int)]
        refusals = [answer for answer in answers if not isinstance(answer, int)]
        assert len(set(pids)) == len(pids) >= 31
        assert log.peak() <= 32
        for refusal in refusals:
            assert isinstance(refusal, RpcError)
            assert "notes" in str(refusal)
        served = [x for x, answer in zip(clients, answers, strict=True) if answer in pids]
        assert await asyncio.gather(*(client.pid() for client in served)) == pids


# Starts


@pytest.mark.slow
async def test_a_call_during_twenty_slow_starts_gets_its_process_within_two_seconds(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    gate = tmp_path / "gate"
    slow = {name: log.entry(name, gate=str(gate)) for name in SERVERS}
    async with asyncio.timeout(LIMIT), gateway_for({"quick": log.entry("quick")}) as served:
        async with connect(served.url, "quick", "elicitation") as client:
            await served.gateway.connect(slow)
            await until(lambda: len(log.started()) > 1)
            asked = time.monotonic()
            pid = await client.pid()
            assert pid != log.started("quick")[0]
            assert log.start_times("quick")[1] - asked < 2.0
        gate.touch()
        await until(lambda: served.gateway.is_ready)
        assert len(set(log.started())) == len(SERVERS) + 2


async def test_calls_of_one_client_to_many_servers_respect_the_limit_on_starts(
    tmp_path: Path,
) -> None:
    """Processes started for client calls count like processes started at start-up."""
    log = ServerLog(tmp_path)
    gate = tmp_path / "gate"
    gate.touch()
    servers = {name: log.entry(name, gate=str(gate)) for name in SERVERS[:16]}
    async with asyncio.timeout(LIMIT), gateway_for(servers) as served:
        async with connect(served.url, SERVERS[0], "elicitation") as client:
            gate.unlink()
            before = len(log.started())
            calls = [asyncio.create_task(client.mcp.call(f"{name}_pid")) for name in SERVERS[:16]]
            await until(lambda: len(log.started()) > before)
            await log.quiet()
            assert len(log.started()) - before <= 2 * (os.cpu_count() or 1)
            gate.touch()
            answers = await asyncio.gather(*calls)
            assert len({answer.text for answer in answers}) == 16
