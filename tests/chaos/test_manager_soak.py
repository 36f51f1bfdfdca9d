"""Random failures of several servers at once."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from fairlead.client import MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.config.upstream_settings import Rules
from fairlead.errors import FairleadError
from fairlead.manager.manager import MCPManager
from tests.support.faulty_servers import Rough, nothing_left

SECONDS = 2.5
LIMIT = 2.0  # timeout of a call in seconds
FATES = [{}, {}, {}, {"die": "initialize"}, {"die": "tools/list"}, {"calls": 2}, {"exit": 1}]


class Soak:
    def __init__(self, folder: Path, manager: MCPManager, seed: int) -> None:
        self.manager = manager
        self.random = random.Random(seed)
        self.calm = Rough(folder, "calm")
        self.servers = {
            name: Rough(folder, name, {}, *self.random.choices(FATES, k=30), timeout=1500)
            for name in "abcde"
        }
        self.slow: list[tuple[str, float]] = []
        self.answered = 0
        self._until = time.monotonic() + SECONDS

    async def call(self) -> None:
        while time.monotonic() < self._until:
            usable = [
                tool
                for tool in self.manager.get_tools()
                if tool.mcp_tool_name in ("whoami", "work")
            ]
            tool = self.random.choice(usable)
            began = time.monotonic()
            result = await tool.execute({"n": 1}, timeout=LIMIT)
            self.answered += not result.details.is_error
            if (took := time.monotonic() - began) > LIMIT + 0.7:
                self.slow.append((tool.name, took))
            await asyncio.sleep(self.random.random() * 0.02)

    async def harm(self) -> None:
        while time.monotonic() < self._until:
            name = self.random.choice("abcde")
            try:
                await self._do(self.random.choice(("kill", "kill", "stop", "again", "cycle")), name)
            except (FairleadError, ProcessLookupError):
                pass  # an operation may fail, but must not hang
            assert all(one.client for one in self.manager.connections.values())
            await asyncio.sleep(self.random.random() * 0.05)

    async def _do(self, what: str, name: str) -> None:
        manager, server = self.manager, self.servers[name]
        match what:
            case "kill":
                server.kill()
            case "stop" if server.pids:
                os.kill(server.pids[-1], signal.SIGSTOP)
            case "again":
                turning = asyncio.create_task(manager.reconnect_server(name))
                await asyncio.wait((turning,), timeout=self.random.random() * 0.05)
                turning.cancel()
                await asyncio.wait((turning,))
                if not turning.cancelled():
                    turning.exception()
            case "cycle":
                await manager.disconnect_server(name)
                await manager.connect_servers({name: server.entry}, startup="background")


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_failures_end_every_call_and_do_not_affect_other_servers(
    tmp_path: Path, seed: int
) -> None:
    known_eras.clear()
    config = MCPClientConfig(timeout_seconds=1, probe_timeout=0.5)
    rules = Rules(health_interval=0.2)
    async with nothing_left(tmp_path), MCPManager(config=config, rules=rules) as manager:
        soak = Soak(tmp_path, manager, seed)
        servers = {name: one.entry for name, one in soak.servers.items()}
        await manager.connect_servers({"calm": soak.calm.entry, **servers})
        work = [soak.call() for _ in range(6)]
        await asyncio.gather(*work, soak.harm(), soak.harm())
        assert soak.slow == []
        assert soak.answered > 0
        assert manager.connections["calm"].generation == 1
        assert len(soak.calm.pids) == 1
        # each server can be reconnected, or fails in time
        async with asyncio.timeout(20):
            for name in servers:
                try:
                    await manager.reconnect_server(name)
                except FairleadError:
                    assert manager.get_connection(name) is None
