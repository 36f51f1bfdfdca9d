"""Shortages of the machine, which delay starts of processes and count against no server."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPServer
from fairlead.errors import RpcError
from fairlead.gateway.operations.observability import Observability
from fairlead.observe.metrics import Metrics
from fairlead.transport.stdio import child_process
from fairlead.upstream.starts import start_limiter
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import serving, until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    connect,
    eventually,
    gateway_for,
    running_file,
    write_file,
)

__all__ = ["person"]

SHORTAGES = {
    "file descriptors": lambda: OSError(errno.EMFILE, "Too many open files"),
    "threads": lambda: RuntimeError("can't start new thread"),
    "memory": lambda: OSError(errno.ENOMEM, "Cannot allocate memory"),
    "disk space": lambda: OSError(errno.ENOSPC, "No space left on device"),
}
CASES = [*SHORTAGES.items(), ("memory", MemoryError)]


class Machine:
    """A replacement for `subprocess.Popen` that counts starts, and fails if `error` is set."""

    def __init__(self) -> None:
        self.starts = 0
        self.error: Callable[[], Exception] | None = None

    def start(self, *args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        self.starts += 1
        if self.error is not None:
            raise self.error()
        return subprocess.Popen(*args, **options)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    fake = type("Subprocess", (), {**vars(subprocess), "Popen": staticmethod(made.start)})
    monkeypatch.setattr(child_process, "subprocess", fake)
    monkeypatch.setattr(start_limiter, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(start_limiter, "LONGEST_PAUSE", 0.4)
    return made


@pytest.mark.parametrize(
    ("resource", "error"), CASES, ids=[*SHORTAGES, "memory of the interpreter"]
)
async def test_a_shortage_delays_starts_and_counts_against_no_server(
    tmp_path: Path, machine: Machine, resource: str, error: Callable[[], Exception]
) -> None:
    log = ServerLog(tmp_path)
    names = ("notes", "other")
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(
            {name: log.entry(name) for name in names},
            options={"observing": Observability(metrics=Metrics())},
        ) as served,
        connect(served.url, "notes", "elicitation") as asking,
        connect(served.url, "other") as unaffected,
        aiohttp.ClientSession() as web,
    ):

        async def readiness() -> Any:
            async with web.get(served.url.removesuffix("/mcp") + "/ready") as answer:
                return await answer.json()

        async def metrics() -> str:
            async with web.get(served.url.removesuffix("/mcp") + "/metrics") as answer:
                return await answer.text()

        before = await unaffected.pid()
        machine.error, starts = error, machine.starts
        calls = [asyncio.create_task(asking.pid()) for _ in range(4)]
        os.kill(log.started("notes")[0], signal.SIGKILL)
        for one in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(one, RpcError)
            assert f"'notes' could not be reached: the gateway is out of {resource}" in str(one)
        for _ in range(3):
            with pytest.raises(RpcError, match=f"out of {resource}"):
                await asking.pid()
        # at most one start for each of the seven calls, and some to restore the default connection
        assert machine.starts - starts <= 14
        assert await unaffected.pid() == before
        assert (await readiness())["shortage"] == resource
        assert "fairlead_shortage 1\n" in await metrics()
        for name in names:
            row = served.server_status(name)
            assert (row["breaker"], row["suspended"]) == ("closed", [])
            assert row["status"] in ("connected", "reconnecting")

        machine.error = None
        await eventually(readiness, lambda answer: answer["shortage"] is None)
        await asking.pid()
        await until(lambda: served.server_status("notes")["status"] == "connected")
        assert (await readiness()) == {"ready": True, "degraded": [], "shortage": None}
        assert await unaffected.pid() == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="changes the limit of another process")
async def test_a_gateway_without_free_descriptors_recovers_by_itself(
    tmp_path: Path, person: Person
) -> None:
    log, server = ServerLog(tmp_path), MCPServer("web", rate_limit_rate=0)
    server.tool(name="where")(lambda: "web")
    async with (
        asyncio.timeout(2 * LIMIT),
        serving(server) as address,
        aiohttp.ClientSession() as web,
    ):
        servers = {"notes": log.entry("notes"), "web": {"type": "http", "url": address}}
        # One failure of a server would open its circuit breaker.
        with running_file(person, write_file(tmp_path, servers, failure_threshold=1)) as gateway:
            for name in servers:
                await asyncio.to_thread(gateway.wait_for, f"{name}: connected")
            base, pid = gateway.url.removesuffix("/mcp"), gateway.process.pid

            async def read(page: str) -> Any:
                async with web.get(base + page) as answer:
                    return await answer.json()

            async with (
                connect(gateway.url, "notes") as plain,
                connect(gateway.url, "web", "elicitation") as asking,
            ):
                before = await plain.pid()
                assert (await read("/ready"))["shortage"] is None
                limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
                os.kill(before, signal.SIGKILL)
                await eventually(
                    lambda: read("/ready"), lambda found: found["shortage"] == "file descriptors"
                )
                for client, tool in ((plain, "pid"), (asking, "where")):
                    with pytest.raises(RpcError, match="the gateway is out of file descriptors"):
                        await client.call(tool)
                for row in (await read("/status"))["servers"]:
                    assert (row["breaker"], row["suspended"]) == ("closed", [])
                    assert row["status"] in ("connected", "reconnecting")

                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
                usable = {"ready": True, "degraded": [], "shortage": None}
                await eventually(lambda: read("/ready"), lambda found: found == usable)
                assert await plain.pid() != before
                assert await asking.call("where") == "web"
            assert len([line for line in gateway.said.splitlines() if "is out of" in line]) <= 1
