"""Client state that is restored in a new server process."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import RpcError
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    ERAS,
    HANDSHAKE,
    Client,
    connect,
    eventually,
    gateway_for,
)

URI = "note://notes"
UPDATED = "notifications/resources/updated"
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
both_eras = pytest.mark.parametrize("era", ERAS)
SERVERS: dict[str, Any] = {
    "handshake-only": lambda log: log.entry("notes"),
    "two-eras": lambda log: log.two_eras("notes"),
}
both_servers = pytest.mark.parametrize("kind", SERVERS)


def kill_all(log: ServerLog) -> set[int]:
    """Kill all processes of the servers; return their ids."""
    killed = set(log.running())
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    return killed


def subscribed(log: ServerLog, pid: int) -> bool:
    """Return True if a process received a subscription to the resource, in the form of its era."""
    return any(
        URI in str(one.params)
        for method in ("resources/subscribe", "subscriptions/listen")
        for one in log.received(method, pid=pid)
    )


async def told(changes: Any, kind: str) -> None:
    """Wait until the client receives a change notification of the given kind."""
    async for change in changes:
        if change.kind == kind:
            return
    raise AssertionError("the stream of changes has ended")


async def prepare(client: Client, changes: Any) -> int:
    """Set a log level, wait for a change notification, and return the client's process id."""
    pid = await client.pid()
    await client.mcp.set_log_level("warning")
    await client.call("touch", uri=URI)
    await told(changes, "resource")
    return pid


async def pid_after(client: Client, killed: set[int]) -> int:
    """Return the id of the new process. Calls in progress at the killed process may fail."""

    async def read() -> int | None:
        with contextlib.suppress(RpcError):
            return await client.pid()
        return None

    return int(await eventually(read, lambda pid: pid is not None and pid not in killed))


@both_endpoints
@both_eras
@both_servers
async def test_a_subscription_is_restored_after_the_server_was_killed(
    tmp_path: Path, endpoint: str, era: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": SERVERS[kind](log)}) as served,
        connect(served.url, "notes", endpoint=endpoint, version=ERAS[era]) as client,
        client.mcp.changes(uris=[URI]) as changes,
    ):
        await prepare(client, changes)
        killed = kill_all(log)
        # sent without a change because a notification may have been lost
        await told(changes, "resource")
        pid = await pid_after(client, killed)
        await until(lambda: subscribed(log, pid))
        await client.call("touch", uri=URI)
        await client.ears.hear(UPDATED, uri=URI)


@both_endpoints
@both_eras
@both_servers
async def test_a_client_is_notified_after_a_loss_that_lists_may_have_changed(
    tmp_path: Path, endpoint: str, era: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": SERVERS[kind](log)}) as served,
        connect(served.url, "notes", endpoint=endpoint, version=ERAS[era]) as client,
        client.mcp.changes("tools") as changes,
    ):
        await client.call("grow", tool="more")
        await told(changes, "tools")
        await eventually(client.tools, lambda tools: "more" in tools)
        killed = kill_all(log)
        await told(changes, "tools")
        await pid_after(client, killed)
        while "more" in await client.tools():  # the new process does not have the tool
            await told(changes, "tools")


@both_endpoints
@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["plain", "elicitation"])
@pytest.mark.parametrize("method", ["resources/subscribe", "logging/setLevel"])
async def test_a_server_that_does_not_answer_a_restore_delays_calls_for_a_limited_time(
    tmp_path: Path, endpoint: str, declares: tuple[str, ...], method: str
) -> None:
    log, silent = ServerLog(tmp_path), tmp_path / "silent"
    entry = log.entry("notes", silent=[method], silent_while=str(silent))
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, connect_timeout=1.0) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint) as client,
    ):
        await client.pid()
        await client.mcp.subscribe(URI)
        await client.mcp.set_log_level("warning")
        silent.touch()
        killed = kill_all(log)
        began = time.monotonic()
        assert await pid_after(client, killed) not in killed
        assert time.monotonic() - began < 5.0
        began = time.monotonic()
        await client.pid()
        assert time.monotonic() - began < 1.0  # only the first call waits


@both_endpoints
@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["plain", "elicitation"])
async def test_client_state_is_restored_once_and_before_the_next_call(
    tmp_path: Path, endpoint: str, declares: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint) as client,
        client.mcp.changes(uris=[URI]) as changes,
    ):
        await prepare(client, changes)
        pid = await pid_after(client, kill_all(log))
        assert await client.call("level") == "warning"
        order = [one.message.get("method") for one in log.received(pid=pid)]
        assert order.index("logging/setLevel") < order.index("tools/call")
        assert order.index("resources/subscribe") < order.index("tools/call")
        assert order.count("logging/setLevel") == order.count("resources/subscribe") == 1


async def test_a_killed_process_is_reopened_at_once_for_a_subscriber(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as client,
        client.mcp.changes(uris=[URI]) as changes,
    ):
        pid = await prepare(client, changes)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: any(subscribed(log, one) for one in log.running() if one != pid))


async def test_subscriptions_that_clients_have_ended_are_not_restored(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        async with client.mcp.changes(uris=[URI]) as changes:
            await prepare(client, changes)
        pid = await pid_after(client, kill_all(log))
        await log.quiet()
        assert not subscribed(log, pid)
        assert await client.call("subscribed") == ""


async def test_subscriptions_of_all_sessions_that_share_a_process_are_restored(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}) as served,
        connect(served.url, "notes", "elicitation", version=HANDSHAKE) as one,
        connect(served.url, "notes", "elicitation", version=HANDSHAKE) as other,
        one.mcp.changes(uris=[URI]) as changes_of_one,
        other.mcp.changes(uris=[URI]) as changes_of_other,
    ):
        assert await prepare(one, changes_of_one) == await other.pid()
        killed = kill_all(log)
        for changes in (changes_of_one, changes_of_other):
            await told(changes, "resource")
        await pid_after(one, killed)
        one.ears.drain()
        other.ears.drain()
        await one.call("touch", uri=URI)
        for client in (one, other):
            await client.ears.hear(UPDATED, uri=URI)
