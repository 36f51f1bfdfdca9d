"""Faulty servers, which must have limited costs and not affect other servers."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import FairleadError, RpcError
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    ERAS,
    HANDSHAKE,
    STATELESS,
    Served,
    connect,
    eventually,
    gateway_for,
)

OBSERVED = 1.5  # seconds for which a misbehaving server is observed
QUICK = 1.0  # seconds for a call to a working server on a busy machine


@asynccontextmanager
async def beside(
    log: ServerLog, entry: dict[str, Any], limit: float = LIMIT
) -> AsyncIterator[Served]:
    """Run a gateway with a faulty and a working server; check the working one at the end."""
    servers = {"faulty": entry, "good": log.entry("good")}
    async with asyncio.timeout(limit), gateway_for(servers, ready=False) as served:
        await until(lambda: log.counts("good")["resources/templates/list"])
        yield served
        for declares in ((), ("elicitation",)):
            async with connect(served.url, "good", *declares) as client:
                began = time.monotonic()
                await client.pid()
                assert time.monotonic() - began < QUICK
                assert "pid" in await client.tools()


async def test_lists_that_change_with_every_request_are_fetched_at_a_limited_rate(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", changing_lists=True)) as served:
        for declares in ((), ("elicitation",), ("sampling",)):
            async with connect(served.url, "faulty", *declares) as client:
                for _ in range(5):
                    assert "pid" in await client.tools()
        await log.quiet()
        assert log.counts("faulty")["tools/list"] <= 6
        assert len(log.started("faulty")) <= 3


async def test_continuous_change_notifications_cause_a_limited_rate_of_requests(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", announces=True)) as served:
        async with connect(served.url, "faulty") as client:
            await client.pid()
            client.ears.drain()
            before = log.counts("faulty")["tools/list"]
            end = time.monotonic() + OBSERVED
            while time.monotonic() < end:
                await client.pid()  # calls are answered during the notifications
                await asyncio.sleep(0.05)
            # The server sends fifteen hundred change notifications, but its list never changes.
            assert log.counts("faulty")["tools/list"] - before <= 20
            assert len(client.ears.drain()) <= 20
        assert log.running("faulty") == log.started("faulty")[:1]


async def test_continuous_change_notifications_start_a_limited_number_of_processes(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", announces=True)) as served:
        async with connect(served.url, "faulty", "elicitation") as client:
            for _ in range(5):
                await client.list_everything()
                assert "pid" in await client.tools()
                assert len(log.running("faulty")) <= 2
            await client.pid()
            assert len(log.started("faulty")) <= 3


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["plain", "elicitation"])
@pytest.mark.parametrize("speaks", ERAS)
async def test_a_server_that_crashes_in_one_era_serves_clients_of_both_eras(
    tmp_path: Path, version: str, declares: tuple[str, ...], speaks: str
) -> None:
    log = ServerLog(tmp_path)
    fatal = "server/discover" if speaks == "handshake" else "initialize"
    entry = log.entry("faulty", eras=[speaks], exits_on=[fatal])
    async with beside(log, entry) as served:
        async with connect(served.url, "faulty", *declares, version=version) as client:
            pids = {await client.pid() for _ in range(3)}
            assert len(pids) == 1
            assert log.is_handshake(pids.pop()) == (speaks == "handshake")
        assert len(log.started("faulty")) <= 4


async def test_sessions_use_the_stateless_era_of_a_server_that_crashes_during_the_handshake(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("faulty", eras=[*ERAS], exits_on=["initialize"])
    async with beside(log, entry) as served:
        async with connect(served.url, "faulty", "elicitation") as client:
            assert {await client.pid() for _ in range(5)} == set(log.running("faulty"))
        assert len(log.started("faulty")) <= 3


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_server_that_exits_when_it_is_listed_in_one_era_serves_clients_of_that_era(
    tmp_path: Path, endpoint: str
) -> None:
    """The gateway compares the lists of clients, which must not make their calls fail again and
    again.
    """
    log = ServerLog(tmp_path)
    entry = log.entry("faulty", eras=[*ERAS], exits_on=["tools/list"], fault_era="handshake")
    async with beside(log, entry) as served:
        async with connect(served.url, "faulty", "elicitation", endpoint=endpoint) as client:
            failed = 0
            for _ in range(8):
                try:
                    await client.pid()
                except RpcError as exc:
                    failed += 1
                    assert "'faulty' exited with code 3" in str(exc)  # noqa: PT017
                await log.quiet()
            assert failed <= 2
        assert len(log.started("faulty")) <= 4


@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["plain", "elicitation"])
async def test_lists_that_change_continuously_cause_few_requests_notifications_and_starts(
    tmp_path: Path, declares: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("faulty", changing_lists=True, announces=True)
    async with beside(log, entry) as served:
        async with (
            connect(served.url, "good") as other,
            connect(served.url, "faulty", *declares) as client,
        ):
            await client.pid()
            end = time.monotonic() + OBSERVED
            while time.monotonic() < end:
                await client.pid()
                await asyncio.sleep(0.05)
            assert log.counts("faulty")["tools/list"] <= 30
            for one in (client, other):
                assert len(one.ears.drain()) <= 30
        assert len(log.started("faulty")) <= 2


async def test_a_server_that_rejects_every_request_after_the_handshake_is_reported(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", refuses_all=True)) as served:
        await until(lambda: served.gateway.is_ready)
        await until(lambda: served.server_status("faulty")["error"] is not None)
        assert "refuses all requests" in served.server_status("faulty")["error"]
        async with connect(served.url, "faulty", "elicitation", endpoint="single") as client:
            with pytest.raises(RpcError, match="refuses all requests"):
                await client.pid()
        async with connect(served.url, "faulty", "elicitation") as client:
            for _ in range(5):
                assert await client.tools() == []
            with pytest.raises(RpcError, match="faulty has not listed its items: it answered with"):
                await client.pid()
        await log.quiet()
        assert max(log.counts("faulty").values()) <= 4
        assert len(log.running("faulty")) <= 2


@pytest.mark.slow
async def test_a_server_that_exits_while_subscriptions_are_restored_is_suspended(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    broken = tmp_path / "broken"
    entry = log.entry("faulty", exits_on=["resources/subscribe"], exits_while=str(broken))
    async with beside(log, entry, limit=3 * LIMIT) as served:
        async with (
            connect(served.url, "faulty", "elicitation") as client,
            connect(served.url, "good", "elicitation") as other,
        ):
            pid = await client.pid()
            await client.mcp.subscribe("note://faulty")
            await until(lambda: log.received("resources/subscribe", pid=pid))
            unaffected = await other.pid()
            broken.touch()
            for one in log.running("faulty"):
                os.kill(one, signal.SIGKILL)

            async def error() -> str:
                try:
                    await client.pid()
                except FairleadError as exc:
                    return str(exc)
                return ""

            # The processes exit while subscriptions are restored, so calls fail with that reason.
            # The server is then suspended, so restarts end.
            await eventually(error, lambda text: "faulty" in text)
            assert await other.pid() == unaffected
            started = await eventually(
                lambda: _started_after(log, 1.5), lambda counts: counts[0] == counts[1]
            )
            # The first two processes, and at most seven starts for each of two connection keys.
            assert started[1] <= 2 + 2 * 7


async def _started_after(log: ServerLog, seconds: float) -> tuple[int, int]:
    before = len(log.started("faulty"))
    await asyncio.sleep(seconds)
    return before, len(log.started("faulty"))


async def test_a_process_that_hangs_for_one_client_does_not_block_other_clients(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    never = tmp_path / "never"
    async with beside(log, log.entry("faulty")) as served:
        async with (
            connect(served.url, "faulty", "elicitation") as hanging,
            connect(served.url, "faulty", "sampling") as other,
        ):
            await hanging.pid()
            call = asyncio.create_task(hanging.call("hold", until=str(never)))
            await until(lambda: len(log.received("tools/call", server="faulty")) == 2)
            assert await other.pid() not in {x.pid for x in log.received("tools/call")[:2]}
            call.cancel()
            await asyncio.wait({call})


async def test_the_error_of_a_server_that_cannot_start_names_the_server(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", crash=True)) as served:
        await until(lambda: served.server_status("faulty")["error"] is not None)
        for declares in ((), ("elicitation",)):
            with pytest.raises(FairleadError, match="faulty"):
                async with connect(served.url, "faulty", *declares, endpoint="single") as client:
                    await client.pid()
            why = "faulty is not connected: it exited with code 1 during start-up"
            async with connect(served.url, "faulty", *declares) as client:
                with pytest.raises(RpcError, match=why):
                    await client.pid()


async def test_a_server_that_fails_without_a_capability_serves_clients_that_have_it(
    tmp_path: Path,
) -> None:
    """The connection for lists cannot be opened, but client connections can."""
    log = ServerLog(tmp_path)
    async with beside(log, log.entry("faulty", requires="elicitation")) as served:
        await until(lambda: log.started("faulty") and not log.running("faulty"))
        async with connect(served.url, "faulty", "elicitation", endpoint="single") as client:
            pid = await client.pid()
            assert "pid" in await client.tools()
            assert served.server_status("faulty")["status"] == "connected"
            with pytest.raises(FairleadError, match="faulty"):
                async with connect(served.url, "faulty", endpoint="single") as plain:
                    await plain.pid()
            assert await client.pid() == pid
