"""Servers that cannot run twice, and roots that belong to one session."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.errors import RpcError
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import free_port, serving, until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    connect,
    gateway_for,
    running_file,
    write_file,
)

__all__ = ["person"]

DECLARED = ((), ("elicitation",), ("sampling",), ("elicitation", "sampling"))
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
exclusive = pytest.mark.parametrize("kind", ["lock", "port"])


def exclusive_entry(log: ServerLog, kind: str) -> dict[str, Any]:
    """Return the entry of a server of which only one process can run."""
    if kind == "lock":
        return log.entry("notes", lock=str(log.folder / "lock"))
    return log.entry("notes", port=free_port())


@both_endpoints
@exclusive
async def test_a_server_that_cannot_run_twice_serves_all_hosts(
    tmp_path: Path, endpoint: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(gateway_for({"notes": exclusive_entry(log, kind)}))
        for version in (HANDSHAKE, STATELESS):
            for declares in DECLARED:
                client = await stack.enter_async_context(
                    connect(served.url, "notes", *declares, endpoint=endpoint, version=version)
                )
                assert await client.pid() == log.started()[0]
        assert served.server_status("notes")["status"] == "connected"


@exclusive
async def test_named_hosts_share_a_server_that_cannot_run_twice_only_if_that_is_configured(
    tmp_path: Path, kind: str
) -> None:
    users = ("alice", "bob", "carol")
    tokens = {user: user for user in users}
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": exclusive_entry(log, kind)}, tokens=tokens) as served,
        connect(served.url, "notes", "elicitation", token="alice") as alice,
    ):
        with pytest.raises(RpcError, match='share = "all"'):
            await alice.pid()
    (tmp_path / "all").mkdir()
    log = ServerLog(tmp_path / "all")
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            gateway_for({"notes": exclusive_entry(log, kind)}, tokens=tokens, share="all")
        )
        for user in users:
            client = await stack.enter_async_context(
                connect(served.url, "notes", "elicitation", token=user)
            )
            assert await client.pid() == log.started()[0]


async def test_the_gateway_remembers_that_a_server_cannot_run_twice(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    file = write_file(tmp_path, {"notes": exclusive_entry(log, "lock")})
    attempts = []
    for _ in range(2):
        with running_file(person, file) as gateway:
            gateway.wait_for("notes: connected")
            before = len(log.started())
            async with (
                asyncio.timeout(LIMIT),
                connect(gateway.url, "notes", "elicitation") as one,
                connect(gateway.url, "notes", "sampling") as other,
            ):
                assert await one.pid() == await other.pid() == log.running()[0]
            attempts.append(len(log.started()) - before)
            assert gateway.ends() == 0
    # One process for each of two kinds of hosts shows that the server cannot run twice.
    assert attempts == [2, 0]


@both_endpoints
async def test_a_server_that_exits_for_one_capability_gets_a_second_process_for_others(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", exits_for="sampling")
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        connect(served.url, "notes", "sampling", endpoint=endpoint) as exiting,
    ):
        first = log.started()[0]
        assert [await exiting.pid() for _ in range(3)] == [first] * 3
        assert len(log.started()) == 2
        async with connect(served.url, "notes", "elicitation", endpoint=endpoint) as client:
            assert "yes" in await client.call("ask")
            assert await client.pid() not in log.started()[:2]
        assert await exiting.pid() == first


async def test_failures_for_clients_with_other_capabilities_do_not_open_the_circuit_breaker(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(
            {"notes": exclusive_entry(log, "lock")}, options={"failure_threshold": 2}
        ) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "elicitation") as other,
    ):
        for _ in range(4):
            assert await other.pid() == await plain.pid()
        assert served.server_status("notes")["breaker"] == "closed"


# Roots


@both_endpoints
@pytest.mark.parametrize("together", [True, False], ids=["overlapping", "in-sequence"])
@pytest.mark.parametrize(
    "asks", ["after-the-handshake", pytest.param("when-called", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("more", [(), ("elicitation",)], ids=["roots", "roots-elicitation"])
async def test_roots_are_never_shared_between_sessions(
    tmp_path: Path, endpoint: str, together: bool, asks: str, more: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", asks_roots=asks == "after-the-handshake")
    async with asyncio.timeout(LIMIT), gateway_for({"notes": entry}) as served:
        async with AsyncExitStack() as sessions:
            pids = []
            for folder in ("file:///a", "file:///b", "file:///c"):
                client = await sessions.enter_async_context(
                    connect(served.url, "notes", "roots", *more, endpoint=endpoint, roots=folder)
                )
                assert await client.call("folders") == folder
                assert await client.call("folders") == folder
                pids.append(await client.pid())
                if not together:
                    await sessions.aclose()
            assert len(set(pids)) == 3


async def test_roots_of_one_user_are_never_shared_with_another_session(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", asks_roots=True)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, tokens={"a": "alice"}) as served,
        connect(served.url, "notes", "roots", roots="file:///a", token="a") as one,
        connect(served.url, "notes", "roots", roots="file:///b", token="a") as other,
    ):
        answers = await asyncio.gather(*(x.call("folders") for x in (one, other) * 3))
        assert answers == ["file:///a", "file:///b"] * 3


FOLDERS = ("file:///a", "file:///b", "file:///c")


@both_endpoints
@pytest.mark.parametrize("together", [True, False], ids=["overlapping", "in-sequence"])
async def test_roots_are_never_shared_between_calls_of_stateless_clients(
    tmp_path: Path, endpoint: str, together: bool
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(
                connect(
                    *(served.url, "notes", "roots"),
                    endpoint=endpoint,
                    version=STATELESS,
                    roots=folder,
                )
            )
            for folder in FOLDERS
        ]
        for _ in range(2):
            if together:
                answers = await asyncio.gather(*(one.call("folders") for one in clients))
            else:
                answers = [await one.call("folders") for one in clients]
            assert tuple(answers) == FOLDERS
        # A process that has received roots ends with the call.
        await until(lambda: len(log.running()) <= 2)
        # A call that needs no roots leaves its process to the other clients.
        pids = {await one.pid() for one in clients}
        assert len(pids) == 1


@pytest.mark.parametrize("together", [True, False], ids=["overlapping", "in-sequence"])
async def test_roots_are_never_shared_between_stateless_clients_of_an_http_server(
    together: bool,
) -> None:
    """The server keeps the first roots that it receives in each of its sessions."""
    server = MCPServer("notes", rate_limit_rate=0)
    known: dict[object, str] = {}

    @server.tool()
    async def folders(ctx: Context) -> str:
        session = ctx.exchange.edge
        if session not in known:
            known[session] = " ".join(root["uri"] for root in await ctx.roots())
        return known[session]

    async with (
        asyncio.timeout(LIMIT),
        serving(server) as url,
        gateway_for({"notes": {"type": "http", "url": url}}, era="handshake") as served,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(
                connect(served.url, "notes", "roots", version=STATELESS, roots=folder)
            )
            for folder in FOLDERS
        ]
        # The gateway learns that the server requests roots.
        assert await clients[0].call("folders") == FOLDERS[0]
        if together:
            answers = await asyncio.gather(*(one.call("folders") for one in clients))
        else:
            answers = [await one.call("folders") for one in clients]
        assert tuple(answers) == FOLDERS
        assert len(known) == 4


async def test_a_process_with_the_roots_of_a_session_ends_with_that_session(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", asks_roots=True)
    async with asyncio.timeout(LIMIT), gateway_for({"notes": entry}) as served:
        async with connect(served.url, "notes", "roots") as client:
            pid = await client.pid()
        async with connect(served.url, "notes") as plain:
            assert await plain.pid() != pid
        await until(lambda: pid not in log.running())


async def test_a_server_that_requests_roots_only_in_calls_delays_no_session(
    tmp_path: Path,
) -> None:
    """Waiting for a roots request before the first call would delay every session by 2 s."""
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.entry("notes")}) as served:
        for folder in ("file:///a", "file:///b", "file:///c"):
            async with connect(served.url, "notes", "roots", roots=folder) as client:
                began = time.monotonic()
                assert await client.call("folders") == folder
                assert time.monotonic() - began < 1.0
