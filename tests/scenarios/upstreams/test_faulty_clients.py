"""Limits on processes for clients that invent capabilities, reconnect or disappear."""

import asyncio
import contextlib
import itertools
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import FairleadError
from tests.support.adjustable_clock import AdjustableClock, virtual_time
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    connect,
    gateway_for,
    raw_session,
)

__all__ = ["virtual_time"]

ROUNDS = 40
ELICITATION = ({}, {"elicitation": {"form": {}}}, {"elicitation": {"form": {}, "url": {}}})
SAMPLING = ({}, {"sampling": {}}, {"sampling": {"tools": {}}})
ROOTS = ({}, {"roots": {}})
KINDS: list[dict[str, Any]] = [  # all declarations that a server can distinguish
    {**one, **two, **three} for one, two, three in itertools.product(ELICITATION, SAMPLING, ROOTS)
]
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)


@both_endpoints
async def test_clients_with_invented_capabilities_start_no_further_process(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.entry("notes")}) as served:
        for n in range(ROUNDS):
            invented = {f"invented{n}": {"x": n}, "experimental": {f"y{n}": {}}}
            async with raw_session(served.url, "notes", invented, endpoint=endpoint) as session:
                assert await session.pid() == log.started()[0]
                await session.request("tools/list")
        await log.quiet()
        assert len(log.started()) == 1


@both_endpoints
async def test_clients_with_invented_revisions_share_a_process(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", settles_on=HANDSHAKE)
    able = {"elicitation": {}}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        AsyncExitStack() as stack,
    ):
        pids = set()
        for n in range(ROUNDS):
            session = raw_session(served.url, "notes", able, endpoint=endpoint, version=f"x{n}")
            pids.add(await (await stack.enter_async_context(session)).pid())
        assert len(pids) == 1
        assert len(log.started()) == 2


@both_endpoints
async def test_a_client_with_an_invented_revision_does_not_block_other_clients(
    tmp_path: Path, endpoint: str
) -> None:
    """The server accepts every revision, so the connection of this client cannot be used."""
    log = ServerLog(tmp_path)
    able = {"elicitation": {}}
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.entry("notes")}) as served:
        for n in range(ROUNDS):
            with contextlib.suppress(FairleadError):
                async with raw_session(
                    served.url, "notes", able, endpoint=endpoint, version=f"x{n}"
                ) as session:
                    await session.pid()
            if n % 8 == 0:
                async with connect(served.url, "notes", "elicitation", endpoint=endpoint) as client:
                    assert "yes" in await client.call("ask")
        assert len(log.started()) <= 4


async def test_a_process_that_exits_for_one_kind_of_client_does_not_block_other_kinds(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", requires="elicitation")
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, ready=False) as served,
    ):
        for _ in range(3):
            with pytest.raises(FairleadError, match="'notes' exited with code 3"):
                async with raw_session(served.url, "notes", {"sampling": {}}, endpoint="single"):
                    pass
            async with connect(served.url, "notes", "elicitation", endpoint="single") as client:
                await client.pid()


async def test_max_connections_limits_the_processes_for_different_capabilities(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    most = 5
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, max_connections=most) as served,
        connect(served.url, "notes") as plain,
    ):
        first = await plain.pid()
        refused = 0
        for kind in KINDS * 2:
            async with raw_session(served.url, "notes", kind) as session:
                try:
                    await session.pid()
                except FairleadError as exc:
                    refused += 1
                    assert "notes" in str(exc)  # noqa: PT017 - some of them are served
            assert await plain.pid() == first
            assert len(log.running()) <= most
        assert 0 < refused < len(KINDS) * 2


async def test_a_limited_number_of_processes_serves_lists_for_all_capabilities(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    varying = {"elicitation": "one", "sampling": "two", "roots": "three"}
    entry = log.entry("notes", varying=varying)
    async with asyncio.timeout(LIMIT), gateway_for({"notes": entry}) as served:
        for kind in KINDS * 2:
            async with raw_session(served.url, "notes", kind) as session:
                listed = {x["name"] for x in (await session.request("tools/list"))["tools"]}
                assert "notes_pid" in listed
                extra = {f"notes_{tool}" for can, tool in varying.items() if can not in kind}
                # tools for capabilities that this client lacks are not listed
                assert not listed & extra
        await log.quiet()
        assert len(log.started()) <= 1 + len(KINDS)
        assert len(log.running()) <= 32


@both_endpoints
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_client_that_reconnects_in_a_loop_starts_at_most_two_further_processes(
    tmp_path: Path, endpoint: str, version: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as other,
    ):
        pid = await other.pid()
        for _ in range(ROUNDS):
            async with connect(
                served.url, "notes", "elicitation", endpoint=endpoint, version=version
            ) as client:
                await client.tools()
        assert await other.pid() == pid
        await until(lambda: served.gateway.clients == 1)
        await until(lambda: len(log.running()) <= 2)
        assert len(log.started()) <= 4


@both_endpoints
async def test_a_client_that_reconnects_and_calls_in_a_loop_uses_one_process(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    pids = set()
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.entry("notes")}) as served:
        for _ in range(ROUNDS):
            async with connect(served.url, "notes", "elicitation", endpoint=endpoint) as client:
                pids.add(await client.pid())
        assert len(pids) == 1


@both_endpoints
async def test_sessions_whose_clients_disappeared_share_a_process(
    tmp_path: Path, endpoint: str
) -> None:
    """The clients do not close their sessions, as after a crash or network loss."""
    log = ServerLog(tmp_path)
    pids = set()
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.entry("notes")}) as served:
        for _ in range(ROUNDS):
            async with raw_session(
                served.url, "notes", {"elicitation": {}}, endpoint=endpoint
            ) as session:
                pids.add(await session.pid())
        assert len(pids) == 1
        await until(lambda: len(log.running()) <= 2)


@both_endpoints
async def test_calls_whose_clients_disappeared_do_not_block_other_clients(
    tmp_path: Path, endpoint: str
) -> None:
    """A lost connection does not cancel a call, so other clients get another process."""
    log = ServerLog(tmp_path)
    never = str(tmp_path / "never")
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as other,
    ):
        for n in range(3):
            async with raw_session(
                served.url, "notes", {"elicitation": {}}, endpoint=endpoint
            ) as session:
                call = asyncio.create_task(session.call("hold", until=never))
                await until(lambda n=n: len(_held(log)) == n + 1)
                call.cancel()  # closes the connection but not the session
                await asyncio.wait({call})
            async with asyncio.timeout(2):
                await other.pid()
        assert len(log.running()) <= 1 + 3 + 1


def _held(log: ServerLog) -> list[Any]:
    return [one for one in log.received("tools/call") if one.params["name"] == "hold"]


async def test_clients_that_disappear_after_initialize_do_not_block_other_clients(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    """Each session with roots has its own process until its first call."""
    log, most = ServerLog(tmp_path), 5
    async with (
        asyncio.timeout(1000),
        gateway_for({"notes": log.entry("notes")}, max_connections=most) as served,
    ):
        for _ in range(most - 1):
            async with raw_session(served.url, "notes", {"roots": {}}, endpoint="single"):
                pass
        assert len(log.running()) == most
        await virtual_time.advance(6)
        async with connect(served.url, "notes", "elicitation", endpoint="single") as client:
            assert "yes" in await client.call("ask")
        await until(lambda: len(log.running()) <= most)


async def test_requests_with_an_unknown_session_start_no_further_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "notes_pid", "arguments": {}},
    }
    accept = "application/json, text/event-stream"
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, share="session") as served,
        aiohttp.ClientSession() as http,
    ):
        for n in range(ROUNDS):
            headers = {"Accept": accept, "Mcp-Session-Id": f"invented{n}"}
            async with http.post(served.url, json=message, headers=headers) as response:
                assert response.status == 404
        await log.quiet()
        assert len(log.started()) == 1
