"""Clients that support elicitation receive the change notifications that their own calls cause."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    connect,
    eventually,
    gateway_for,
)

URI = "note://notes"
UPDATED, TOOLS_CHANGED = "notifications/resources/updated", "notifications/tools/list_changed"
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
sharing = pytest.mark.parametrize(
    "settings", [{}, {"share": "session"}], ids=["default", "session"]
)
declaring = pytest.mark.parametrize(
    "declares", [(), ("elicitation",), ("sampling", "roots")], ids=["none", "one", "two"]
)


@both_endpoints
@sharing
@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["none", "elicitation"])
@pytest.mark.parametrize("called_before", [True, False], ids=["called-before", "called-after"])
async def test_a_client_is_notified_of_a_resource_that_its_call_changed(
    tmp_path: Path,
    settings: dict[str, Any],
    declares: tuple[str, ...],
    called_before: bool,
    endpoint: str,
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, **settings) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint) as client,
    ):
        if called_before:
            await client.pid()
        await client.mcp.subscribe(URI)
        await client.call("touch", uri=URI)
        assert (await client.ears.hear(UPDATED))["uri"] == URI


@both_endpoints
@sharing
@declaring
async def test_a_client_is_notified_of_tools_that_its_call_added(
    tmp_path: Path, settings: dict[str, Any], declares: tuple[str, ...], endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, **settings) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint) as client,
    ):
        pid = int(await client.call("grow", tool="more"))
        await client.ears.hear(TOOLS_CHANGED)
        await eventually(client.tools, lambda tools: "more" in tools)
        assert await client.call("more") == f"more of notes {pid}"


@both_endpoints
@declaring
@pytest.mark.parametrize("called_before", [True, False], ids=["called-before", "called-after"])
async def test_a_stateless_client_is_notified_of_changes_that_its_calls_cause(
    tmp_path: Path, declares: tuple[str, ...], called_before: bool, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint, version=STATELESS) as client,
    ):
        if called_before:
            await client.pid()
        await client.mcp.listen("tools")
        await client.mcp.subscribe(URI)
        await client.call("touch", uri=URI)
        await client.ears.hear(UPDATED, uri=URI)
        await client.call("grow", tool="more")
        await client.ears.hear(TOOLS_CHANGED)
        await eventually(client.tools, lambda tools: "more" in tools)


@sharing
async def test_a_resource_is_read_from_the_process_that_changed_it(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, **settings) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        pid = await client.pid()
        await client.mcp.read_resource(URI)
        assert [one.pid for one in log.received("resources/read")] == [pid]


async def test_tools_added_in_one_session_are_not_listed_in_another_session(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, share="session") as served,
        connect(served.url, "notes", "elicitation") as one,
        connect(served.url, "notes", "elicitation") as other,
    ):
        await one.pid()
        before = await other.tools()
        await one.call("grow", tool="more")
        await eventually(one.tools, lambda tools: "more" in tools)
        await log.quiet()
        assert await other.tools() == before
        assert "more" not in before


async def test_all_sessions_that_share_a_process_are_notified_of_changes(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(gateway_for({"notes": log.entry("notes")}))
        clients = [
            await stack.enter_async_context(connect(served.url, "notes", "elicitation"))
            for _ in range(3)
        ]
        assert len({await client.pid() for client in clients}) == 1
        for client in clients:
            await client.mcp.subscribe(URI)
        await clients[0].call("touch", uri=URI)
        await clients[0].call("grow", tool="more")
        for client in clients:
            await client.ears.hear(UPDATED, uri=URI)
            await client.ears.hear(TOOLS_CHANGED)


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_listener_is_notified_of_changes_of_a_server_with_both_eras(
    tmp_path: Path, version: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", "elicitation", version=version) as client,
    ):
        await client.mcp.listen("tools")
        await client.mcp.subscribe(URI)
        await client.call("touch", uri=URI)
        await client.ears.hear(UPDATED, uri=URI)
        await client.call("grow", tool="more")
        await client.ears.hear(TOOLS_CHANGED)
        await eventually(client.tools, lambda tools: "more" in tools)


async def test_a_client_is_not_notified_of_changes_in_the_process_of_another_principal(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    tokens = {"a": "alice", "b": "bob"}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, tokens=tokens) as served,
        connect(served.url, "notes", "elicitation", token="a") as alice,
        connect(served.url, "notes", "elicitation", token="b") as bob,
    ):
        assert await alice.pid() != await bob.pid()
        for client in (alice, bob):
            await client.mcp.subscribe(URI)
        bob.ears.drain()
        await alice.call("touch", uri=URI)
        await alice.ears.hear(UPDATED, uri=URI)
        await bob.pid()
        assert UPDATED not in [method for method, _ in bob.ears.drain()]
