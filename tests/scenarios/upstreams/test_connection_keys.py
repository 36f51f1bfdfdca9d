"""Keys of connections: agreed revisions, equivalent capabilities, parked calls and lists."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

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

OLDER = "2025-06-18"
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)


# Revisions


@both_endpoints
@pytest.mark.parametrize("second", [HANDSHAKE, OLDER])
async def test_clients_for_which_the_server_chooses_one_revision_share_a_process(
    tmp_path: Path, endpoint: str, second: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", settles_on=OLDER)
    capabilities = {"elicitation": {}}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        raw_session(served.url, "notes", capabilities, endpoint=endpoint) as one,
        raw_session(served.url, "notes", capabilities, endpoint=endpoint, version=second) as two,
        raw_session(served.url, "notes", capabilities, endpoint=endpoint, version=second) as three,
    ):
        assert await one.pid() == await two.pid() == await three.pid()


@both_endpoints
async def test_clients_of_different_revisions_do_not_share_a_process(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    capabilities = {"elicitation": {}}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        raw_session(served.url, "notes", capabilities, endpoint=endpoint) as one,
        raw_session(served.url, "notes", capabilities, endpoint=endpoint, version=OLDER) as two,
    ):
        pids = [await one.pid(), await two.pid()]
        assert len(set(pids)) == 2
        proposed = [log.received("initialize", pid=pid)[0].params for pid in pids]
        assert [params["protocolVersion"] for params in proposed] == [HANDSHAKE, OLDER]


# Capabilities


@pytest.mark.parametrize(
    "equal",
    [
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({}, {"experimental": {"x": {}}}),
        ({"sampling": {}}, {"sampling": {}, "invented": {"y": 1}}),
        ({"roots": {}}, {"roots": {"listChanged": True}}),
    ],
    ids=["form", "experimental", "unknown", "listChanged"],
)
async def test_clients_with_equivalent_capabilities_share_a_process(
    tmp_path: Path, equal: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        raw_session(served.url, "notes", equal[0]) as one,
        raw_session(served.url, "notes", equal[1]) as other,
    ):
        assert await one.pid() == await other.pid()


@pytest.mark.parametrize(
    "different",
    [
        ({"elicitation": {"form": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ({"sampling": {}}, {"sampling": {"tools": {}}}),
        ({"elicitation": {}}, {"elicitation": {}, "roots": {}}),
    ],
    ids=["url", "tools", "roots"],
)
async def test_clients_with_different_capabilities_do_not_share_a_process(
    tmp_path: Path, different: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        raw_session(served.url, "notes", different[0]) as one,
        raw_session(served.url, "notes", different[1]) as other,
    ):
        assert await one.pid() != await other.pid()


# Parked calls


@both_endpoints
async def test_a_parked_call_and_a_session_do_not_share_a_process(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def think(question: Any) -> Any:
        asked.set()
        await answer.wait()
        return {"action": "accept", "content": {"value": "late"}}

    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(
            served.url,
            "notes",
            "elicitation",
            endpoint=endpoint,
            version=STATELESS,
            on_elicit=think,
        ) as stateless,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as session,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as window,
    ):
        parked = asyncio.create_task(stateless.call("ask"))
        await asked.wait()
        [call] = log.received("tools/call")
        assert await session.pid() == await window.pid() != call.pid
        assert '"value": "yes"' in await session.call("ask")
        answer.set()
        assert '"value": "late"' in await parked


# Requests that start no further process


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("eras", [["handshake"], ["stateless"]], ids=lambda eras: eras[0])
async def test_list_requests_and_listen_streams_start_no_further_process(
    tmp_path: Path, version: str, eras: list[str]
) -> None:
    log = ServerLog(tmp_path)
    names = ["notes", "tasks"]
    servers = {name: log.entry(name, eras=eras) for name in names}
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(gateway_for(servers))
        for _ in range(3):
            client = await stack.enter_async_context(connect(served.url, "notes", version=version))
            await client.mcp.listen("tools", "prompts", "resources")
            await client.list_everything()
        await log.quiet()
        assert len(log.started()) == len(names)


async def test_a_stateless_listen_stream_with_input_capabilities_starts_no_further_process(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation", version=STATELESS) as client,
    ):
        await client.mcp.listen("tools")
        await client.mcp.subscribe("note://notes")
        await log.quiet()
        assert log.running() == log.started()[:1]


async def test_subscriptions_and_log_levels_start_no_further_process(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        await client.mcp.subscribe("note://notes")
        await client.mcp.set_log_level("warning")
        await log.quiet()
        assert len(log.started()) == 1
        pid = await client.pid()  # the first call restores the state in the process of the session
        await until(lambda: log.received("resources/subscribe", pid=pid))
        await until(lambda: log.received("logging/setLevel", pid=pid))
        assert await client.call("level") == "warning"
