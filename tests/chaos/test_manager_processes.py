"""A manager whose servers are killed, hang or crash, without effects on other servers."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.client import MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.config.upstream_settings import Rules
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.manager.manager import MCPManager
from fairlead.manager.open_connection import connect_to_server, disconnect_server
from fairlead.upstream.status_events import StatusEvent
from tests.support.faulty_servers import Rough, nothing_left, run, until


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


class Neighbour:
    """A server that must keep its connection while others fail."""

    def __init__(self, folder: Path) -> None:
        self.entry = Rough(folder, "calm").entry

    async def check(self, manager: MCPManager) -> None:
        connection = manager.get_connection("calm")
        assert connection is not None
        assert connection.generation == 1
        began = time.monotonic()
        assert (await run(manager, "mcp_calm_whoami")).startswith("calm ")
        assert time.monotonic() - began < 1.0


@contextlib.asynccontextmanager
async def scene(
    folder: Path, *rough: Rough, startup: str = "wait", **options: object
) -> AsyncIterator[MCPManager]:
    """Run a manager with these servers and a `Neighbour`.

    At the end, check that the neighbour was not affected and that no process, task or
    descriptor is left.
    """
    neighbour = Neighbour(folder)
    async with nothing_left(folder), MCPManager(**options) as manager:  # type: ignore[arg-type]
        await manager.connect_servers({"calm": neighbour.entry})
        servers = {one.name: one.entry for one in rough}
        await manager.connect_servers(servers, startup=startup)  # type: ignore[arg-type]
        yield manager
        await neighbour.check(manager)


@pytest.mark.covers("HST-03", "HST-24", "HST-59")
async def test_a_server_killed_during_connect_fails_with_a_reason(
    tmp_path: Path,
) -> None:
    server = Rough(tmp_path, "a", {"hang": "server/discover"}, {"hang": "initialize"}, {})
    async with scene(tmp_path, server, startup="background") as manager:
        calling = asyncio.create_task(manager.wait_for_connection("a"))
        os.kill(await server.got("server/discover", 1), signal.SIGKILL)
        # A server may exit on an unknown message, so it is started a second time.
        os.kill(await server.got("initialize", 2), signal.SIGKILL)
        with pytest.raises(ConnectFailed, match=r'^server "a" is not connected: .*SIGKILL'):
            await calling
        assert manager.describe()["a"].state == "failed"
        with pytest.raises(FairleadError, match="SIGKILL"):
            # The error is raised at once because a failed server is not retried automatically.
            await manager.wait_for_connection("a")
        await manager.reconnect_server("a")
        assert (await run(manager, "mcp_a_whoami")) == f"a {server.pids[2]}"


async def test_a_server_killed_while_listing_is_retried_only_if_it_was_connected_before(
    tmp_path: Path,
) -> None:
    first = Rough(tmp_path, "first", {"die": "tools/list"})
    later = Rough(tmp_path, "later", {}, {"hang": "tools/list"}, {"die": "tools/list"}, {})
    async with scene(tmp_path, first, later) as manager:
        assert manager.describe()["first"].state == "failed"
        assert len(first.pids) == 1
        later.kill()
        calling = asyncio.create_task(run(manager, "mcp_later_whoami"))
        os.kill(await later.got("tools/list", 2), signal.SIGKILL)
        assert "SIGKILL" in await calling  # the call waited for one attempt only
        await until(lambda: len(later.pids) == 4)
        connection = await manager.wait_for_connection("later")
        assert connection.generation == 2  # failed attempts do not increase the generation
        assert await run(manager, "mcp_later_whoami") == f"later {later.pids[3]}"


@pytest.mark.covers("DEC-11", "HST-55", "HST-24")
async def test_read_only_calls_survive_kills_and_no_other_call_is_executed_twice(
    tmp_path: Path, loop_kind: str
) -> None:
    server = Rough(tmp_path, "a")
    async with scene(tmp_path, server) as manager:
        for round_ in range(5):
            numbers = range(round_ * 20, round_ * 20 + 20)
            harmful = [asyncio.create_task(run(manager, "mcp_a_work", {"n": n})) for n in numbers]
            harmless = [asyncio.create_task(run(manager, "mcp_a_whoami")) for _ in range(20)]
            await until(lambda r=round_: len(server.notes("did")) > r * 20)  # type: ignore[misc]
            server.kill()
            async with asyncio.timeout(10):
                answers = await asyncio.gather(*harmful)
                assert all(text.startswith("a ") for text in await asyncio.gather(*harmless))
            assert all(text.startswith(("a ", "MCP error: ")) for text in answers)
        done = [n for n in server.notes("did") if n != "None"]
        assert len(done) == len(set(done)) > 0
        assert manager.describe()["a"].state == "connected"
        assert manager.describe()["a"].generation == len(server.pids)


async def test_a_server_that_exits_after_some_calls_is_restarted_for_the_next_call(
    tmp_path: Path,
) -> None:
    server = Rough(tmp_path, "a", {"calls": 3})
    async with scene(tmp_path, server) as manager:
        texts = [await run(manager, "mcp_a_whoami") for _ in range(12)]
        assert texts == [f"a {pid}" for pid in server.pids for _ in range(3)][:12]


@pytest.mark.covers("HST-21")
async def test_more_than_five_losses_suspend_a_server_until_it_is_reconnected(
    tmp_path: Path,
) -> None:
    events: list[StatusEvent] = []
    server = Rough(tmp_path, "a", {"calls": 1})
    async with scene(tmp_path, server) as manager:
        manager.add_status_listener(events.append)
        supervisor = manager.describe()["a"]

        async def lost_and_back() -> None:
            before = supervisor.generation
            assert (await run(manager, "mcp_a_whoami")).startswith("a ")
            await until(lambda: supervisor.generation > before)

        for times in (1, 2):
            for _ in range(5):  # five losses are within the limit
                await lost_and_back()
            assert (await run(manager, "mcp_a_whoami")).startswith("a ")
            await until(lambda: supervisor.state == "suspended")
            began = time.monotonic()
            said = await run(manager, "mcp_a_whoami")
            assert time.monotonic() - began < 0.2
            assert said.startswith('MCP error: server "a" is not connected: suspended')
            assert events[-1].kind == "failed"
            assert not manager.get_tool("mcp_a_whoami").available  # type: ignore[union-attr]
            assert len(server.pids) == times * 6
            await manager.reconnect_server("a")  # a manual reconnect resets the count of losses


async def test_a_program_that_cannot_be_restarted_is_suspended(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a", {}, {"exit": 3})
    async with scene(tmp_path, server) as manager:
        supervisor = manager.describe()["a"]
        server.kill()
        await until(lambda: supervisor.state != "connected")
        while supervisor.state != "suspended":
            assert "MCP error: " in await run(manager, "mcp_a_whoami")
        assert "exited with code 3" in await run(manager, "mcp_a_whoami")
        # the first start, and five restarts that may each have tried both eras
        assert len(server.pids) <= 11


@pytest.mark.covers("HST-43", "HST-23")
async def test_a_call_in_flight_ends_at_once_when_its_server_is_disconnected(
    tmp_path: Path,
) -> None:
    deaf = Rough(tmp_path, "a", {"hang": "tools/call", "deaf": True})
    async with scene(tmp_path, deaf) as manager:
        calls = [asyncio.create_task(run(manager, f"mcp_a_{n}")) for n in ("work", "whoami")]
        await deaf.got("tools/call", 1)
        began = time.monotonic()
        leaving = asyncio.create_task(manager.disconnect_server("a"))
        async with asyncio.timeout(5):
            texts = await asyncio.gather(*calls)
        assert time.monotonic() - began < 0.5
        assert 'server "a" was disconnected' in texts[0]
        assert "was disconnected" in texts[1]
        assert manager.get_all_server_names() == ["calm"]
        await leaving  # the process ignores signals and is killed after a while
        assert time.monotonic() - began < 5
        assert len(deaf.pids) == 1


@pytest.mark.covers("HST-45")
async def test_server_processes_end_even_if_their_disconnection_is_cancelled(
    tmp_path: Path,
) -> None:
    servers = [Rough(tmp_path, name, {"grandchild": True}) for name in "abc"]
    async with scene(tmp_path, *servers) as manager:
        for one, turns in zip(servers, (0, 1, 5), strict=True):
            ending = asyncio.create_task(manager.disconnect_server(one.name))
            for _ in range(turns):
                await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait((ending,))
        # server "a" is still there if its disconnection was cancelled before it started
        if "a" in manager.get_all_server_names():
            await manager.disconnect_server("a")
        assert manager.get_all_server_names() == ["calm"]


async def test_the_children_of_a_killed_server_are_ended(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a", {"grandchild": True})
    async with scene(tmp_path, server) as manager:
        server.kill()
        assert (await run(manager, "mcp_a_whoami")) == f"a {server.pids[1]}"
        orphan, child = (int(pid) for pid in server.notes("grandchild"))
        await until(lambda: not Path(f"/proc/{orphan}").exists(), 5)
        assert Path(f"/proc/{child}").exists()


@pytest.mark.covers("HST-13", "HST-44", "QUA-04")
async def test_a_server_that_hangs_while_connecting_delays_startup_only_by_its_timeout(
    tmp_path: Path,
) -> None:
    stages = ("server/discover", "initialize", "tools/list")
    hanging = [
        Rough(tmp_path, f"h{i}", {"hang": stage, "deaf": True}, timeout=700)
        for i, stage in enumerate(stages)
    ]
    began = time.monotonic()
    config = MCPClientConfig(probe_timeout=0.1)
    async with scene(tmp_path, *hanging, config=config) as manager:
        assert time.monotonic() - began < 3.0
        states = {name: one.state for name, one in manager.describe().items()}
        # A server whose tools cannot be listed is still connected, because calls may work.
        assert states == {"calm": "connected", "h0": "failed", "h1": "failed", "h2": "connected"}
        assert "timed out after 700ms" in str(manager.describe()["h1"].error)
        assert "tools/list" in str(manager.describe()["h2"].tools_error)


async def test_disconnecting_a_hanging_server_ends_all_waits_for_it(tmp_path: Path) -> None:
    hanging = Rough(tmp_path, "a", {"hang": "initialize"})
    async with nothing_left(tmp_path), MCPManager() as manager:
        connecting = asyncio.create_task(manager.connect_servers({"a": hanging.entry}))
        await hanging.got("initialize", 1)
        caller = asyncio.create_task(manager.wait_for_connection("a"))
        given_up = asyncio.create_task(manager.wait_for_connection("a"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait((given_up,))
        assert given_up.cancelled()
        await manager.disconnect_server("a")
        async with asyncio.timeout(1):
            loaded = await connecting
        assert (loaded.connected_servers, loaded.errors) == ([], [])
        with pytest.raises(ConnectFailed, match="the server was disconnected"):
            await caller


async def test_closing_a_manager_while_servers_start_leaves_no_process(
    tmp_path: Path, loop_kind: str
) -> None:
    servers = [Rough(tmp_path, f"s{i}", {"hang": "initialize", "grandchild": True}) for i in (1, 2)]
    async with nothing_left(tmp_path):
        manager = MCPManager(startup="background")
        await manager.connect_servers({one.name: one.entry for one in servers})
        await asyncio.gather(*(one.got("initialize", 1) for one in servers))
        began = time.monotonic()
        await manager.close()
        assert time.monotonic() - began < 5
        loaded = await manager.connect_servers({"late": servers[0].entry})
        assert loaded.errors == [
            {"path": "mcp:late", "error": 'server "late": the manager is closed'}
        ]


async def test_cancelling_a_start_at_any_moment_leaves_no_process(
    tmp_path: Path, loop_kind: str
) -> None:
    server = Rough(tmp_path, "a")

    async def give_up(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await disconnect_server(await connect_to_server("a", server.entry))

    async with nothing_left(tmp_path):  # pipes are also closed, not left to the garbage collector
        await asyncio.gather(*(give_up(n * 0.002) for n in range(60)))


@pytest.mark.covers("HST-22")
async def test_a_server_process_that_does_not_respond_is_replaced(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a")
    config = MCPClientConfig(timeout_seconds=0.3)
    rules = Rules(health_interval=0.1)
    async with scene(tmp_path, server, rules=rules, config=config) as manager:
        # the process stays alive with open pipes, but does not respond
        os.kill(server.pids[0], signal.SIGSTOP)
        await until(lambda: len(server.pids) == 2)
        connection = await manager.wait_for_connection("a")
        assert connection.generation == 2
        pinged = server.notes("got").count("ping")
        await until(lambda: server.notes("got").count("ping") > pinged + 2)
        assert len(server.pids) == 2  # a responsive server is not replaced


@pytest.mark.covers("HST-22")
async def test_a_server_process_that_is_busy_with_a_call_is_not_replaced(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a")  # this server handles one message at a time
    rules, config = Rules(health_interval=0.05), MCPClientConfig(timeout_seconds=0.1)
    async with scene(tmp_path, server, rules=rules, config=config) as manager:
        text = await run(manager, "mcp_a_sleep", {"seconds": 1.0}, timeout=10)
        assert text == f"a {server.pids[0]}"
        assert manager.describe()["a"].generation == 1


async def test_a_call_waits_no_longer_than_its_own_limit_for_a_server(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a", {}, {"hang": "initialize"})
    async with scene(tmp_path, server) as manager:
        server.kill()
        await until(lambda: manager.get_connection_status("a") != "connected")
        began = time.monotonic()
        assert "timeout after 300ms" in await run(manager, "mcp_a_whoami", timeout=0.3)
        assert time.monotonic() - began < 0.6


async def test_the_timeout_of_a_call_covers_all_its_attempts(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a")
    async with scene(tmp_path, server) as manager:
        os.kill(server.pids[0], signal.SIGSTOP)
        # the call is read-only, so it would be retried within a longer timeout
        began = time.monotonic()
        assert "timeout after 300ms" in await run(manager, "mcp_a_whoami", timeout=0.3)
        assert time.monotonic() - began < 0.6
        os.kill(server.pids[0], signal.SIGCONT)
        assert await run(manager, "mcp_a_whoami") == f"a {server.pids[0]}"


async def test_calls_during_a_reconnect_use_the_new_connection(tmp_path: Path) -> None:
    server = Rough(tmp_path, "a")
    async with scene(tmp_path, server) as manager:
        server.kill()
        await until(lambda: manager.get_connection_status("a") == "connecting")
        texts = await asyncio.gather(*(run(manager, "mcp_a_whoami") for _ in range(50)))
        assert set(texts) == {f"a {server.pids[1]}"}
        assert set(await asyncio.gather(run(manager, "mcp_a_work"))) == {f"a {server.pids[1]}"}
        assert len(server.pids) == 2
