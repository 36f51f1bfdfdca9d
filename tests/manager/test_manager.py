"""A manager with several servers: start-up, supervision, and independence."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.connection.era_cache import known_eras
from fairlead.config.found_server import Source
from fairlead.config.upstream_settings import Rules
from fairlead.errors import ConfigError, FairleadError, RpcError
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.tool import DeferredMCPTool
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from fairlead.upstream.status_events import StatusEvent
from tests.support.managed_servers import entry
from tests.support.stdio_programs import program

LIMIT = 20.0


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


def names_of(manager: MCPManager) -> set[str]:
    return {tool.name for tool in manager.get_tools()}


async def run(manager: MCPManager, name: str, arguments: Any = None) -> str:
    tool = manager.get_tool(name)
    assert tool is not None, names_of(manager)
    return (await tool.execute(arguments)).text


async def test_servers_may_be_given_as_the_content_of_a_configuration_file(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        for key in ("mcpServers", "servers"):
            loaded = await manager.connect_servers({key: {key[:3]: entry(tmp_path, key[:3])}})
            assert loaded.connected_servers[-1] == key[:3]
        named = await manager.connect_servers({"servers": entry(tmp_path, "servers")})
        assert named.connected_servers[-1] == "servers"
        wrong: Any
        for wrong in ("server.py", ["uvx", "server"], None):
            with pytest.raises(TypeError, match="^servers must be a dict with the entry of each"):
                await manager.connect_servers(wrong)


@pytest.mark.covers("HST-03", "HST-12", "HST-19")
async def test_a_server_that_cannot_start_does_not_affect_other_servers(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        loaded = await manager.connect_servers(
            {
                "a": entry(tmp_path, "a"),
                "broken": {"command": "there-is-no-such-program-here"},
                "crash": entry(tmp_path, "crash", "crash"),
                "b": entry(tmp_path, "b"),
                "wrong": {"type": "carrier-pigeon"},
            },
            {"crash": Source(path="/home/x/.mcp.json")},
        )
        assert loaded.connected_servers == ["a", "b"]
        assert [tool.name for tool in loaded.tools] == sorted(tool.name for tool in loaded.tools)
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")
        errors = {error["path"]: error["error"] for error in loaded.errors}
        assert set(errors) == {"mcp:broken", "/home/x/.mcp.json", "mcp:wrong"}
        assert "exits during start-up" in errors["/home/x/.mcp.json"]
        assert errors["/home/x/.mcp.json"].startswith('server "crash": Could not connect: ')
        assert manager.get_connection_status("a") == "connected"
        assert manager.get_connection_status("crash") == "disconnected"


@pytest.mark.covers("HST-14", "HST-15", "HST-52", "DEC-12")
async def test_a_slow_server_has_remembered_tools_until_it_is_connected(tmp_path: Path) -> None:
    cache = MCPToolCache(MemoryStore())
    slow = {"slow": entry(tmp_path, "slow", "slow", "1.0")}
    async with MCPManager(cache=cache) as first:
        await first.connect_servers(slow)  # no tools are remembered, so this waits for the server
        assert first.get_connected_servers() == ["slow"]
    async with MCPManager(cache=cache) as second:
        began = asyncio.get_running_loop().time()
        loaded = await second.connect_servers(slow)
        assert asyncio.get_running_loop().time() - began < 0.9
        assert loaded.connected_servers == []
        assert all(isinstance(tool, DeferredMCPTool) for tool in loaded.tools)
        assert second.pending_connections == {"slow"}
        told: list[int] = []
        second.add_tools_listener(lambda tools: told.append(len(tools)))
        (whoami,) = [t for t in loaded.tools if t.mcp_tool_name == "whoami"]
        assert (await whoami.execute()).text.startswith("slow ")  # the call waits for the server
        assert not any(isinstance(tool, DeferredMCPTool) for tool in second.get_tools())
        await until(lambda: bool(told))


@pytest.mark.covers("HST-14")
async def test_start_up_in_the_background_does_not_wait_for_servers(tmp_path: Path) -> None:
    async with MCPManager(startup="background") as manager:
        began = asyncio.get_running_loop().time()
        await manager.connect_servers({"slow": entry(tmp_path, "slow", "slow", "1.0")})
        assert asyncio.get_running_loop().time() - began < 0.9
        assert manager.get_connection_status("slow") == "connecting"
        await manager.wait_for_connection("slow")
        assert "mcp_slow_whoami" in names_of(manager)


@pytest.mark.covers("HST-13")
async def test_a_server_that_never_responds_fails_after_its_own_timeout(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        loaded = await manager.connect_servers(
            {"silent": entry(tmp_path, "silent", "silent", timeout=600)}
        )
        (error,) = loaded.errors
        assert error["error"] == 'Connection to MCP server "silent" timed out after 600ms'


@pytest.mark.covers("DEC-12", "HST-14")
async def test_start_up_does_not_wait_for_a_server_that_failed_in_the_last_run(
    tmp_path: Path,
) -> None:
    cache = MCPToolCache(MemoryStore())
    servers = {
        "good": entry(tmp_path, "good"),
        "silent": entry(tmp_path, "silent", "silent", timeout=1500),
    }
    async with asyncio.timeout(LIMIT), MCPManager(cache=cache) as manager:
        loaded = await manager.connect_servers(servers)
        assert ["silent" in error["error"] for error in loaded.errors] == [True]
    async with asyncio.timeout(LIMIT), MCPManager(cache=cache) as manager:
        loop = asyncio.get_running_loop()
        began = loop.time()
        loaded = await manager.connect_servers(servers)
        # the start-up limit, not the timeout of the silent server
        assert loop.time() - began < 1.4
        assert any(tool.mcp_server_name == "good" for tool in loaded.tools)
        assert manager.get_connection_status("silent") == "connecting"
        await manager.settled()
        assert manager.get_connection_status("silent") == "disconnected"


@pytest.mark.covers("HST-20", "HST-18", "HST-55")
async def test_a_server_that_exits_is_restarted_and_its_tools_can_be_called_again(
    tmp_path: Path,
) -> None:
    events: list[StatusEvent] = []
    async with MCPManager() as manager:
        manager.add_status_listener(events.append)
        await manager.connect_servers({"a": entry(tmp_path, "a"), "b": entry(tmp_path, "b")})
        whoami = manager.get_tool("mcp_a_whoami")
        assert whoami is not None
        pid = int((await whoami.execute()).text.split()[1])
        others = (await run(manager, "mcp_b_whoami")).split()[1]
        os.kill(pid, signal.SIGKILL)
        again = (await whoami.execute()).text  # the tool is read-only, so the call is repeated
        assert int(again.split()[1]) != pid
        assert (await run(manager, "mcp_b_whoami")).split()[1] == others
        connection = manager.get_connection("a")
        assert connection is not None
        assert connection.generation == 2
        kinds = [event.kind for event in events if event.names == ("a",)]
        assert kinds == ["connected", "reconnecting", "connected"]


@pytest.mark.covers("HST-54", "HST-55")
async def test_a_call_that_may_have_had_an_effect_is_not_repeated(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        assert (await run(manager, "mcp_a_die")).startswith("MCP error: ")
        assert (await run(manager, "mcp_a_fail")).startswith("MCP error: ")
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")


@pytest.mark.covers("HST-21")
async def test_a_crash_loop_suspends_a_server_until_a_manual_reconnect(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        server = manager.describe()["a"]
        for _ in range(10):
            if server.state == "suspended":
                break
            generation = server.generation
            await run(manager, "mcp_a_die")
            await until(lambda g=generation: server.generation > g or server.state == "suspended")
        assert server.state == "suspended"
        assert "suspended after" in (await run(manager, "mcp_a_whoami"))
        assert "mcp_a_whoami" in names_of(manager)  # the tool stays listed
        whoami = manager.get_tool("mcp_a_whoami")
        assert whoami is not None
        assert not whoami.available
        await manager.reconnect_server("a")
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")


@pytest.mark.covers("HST-23", "HST-43")
async def test_a_disconnected_server_is_not_reconnected(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers(
            {"a": entry(tmp_path, "a"), "slow": entry(tmp_path, "slow", "slow", "0.5")},
            startup="background",
        )
        await manager.wait_for_connection("a")
        disconnecting = manager.describe()["slow"]
        await manager.disconnect_server("slow")
        await run(manager, "mcp_a_die")
        gone = manager.describe()["a"]
        await manager.disconnect_server("a")
        assert manager.get_all_server_names() == []
        assert manager.get_tools() == []
        assert (gone.state, disconnecting.state) == ("stopped", "stopped")
        with pytest.raises(FairleadError):
            await gone.ready()


@pytest.mark.covers("HST-30")
async def test_a_new_tool_is_listed_after_the_notification_of_its_server(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    async with MCPManager() as manager:
        manager.add_notification_listener(lambda server, method, _: 1 / 0)
        manager.add_notification_listener(lambda server, method, _: heard.append((server, method)))
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        before = len(manager.get_tools())
        await run(manager, "mcp_a_grow")
        await until(lambda: len(manager.get_tools()) == before + 1)
        assert ("a", "notifications/tools/list_changed") in heard


@pytest.mark.covers("HST-31", "HST-32")
async def test_resources_prompts_and_instructions_of_all_servers_are_listed(tmp_path: Path) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a"), "b": entry(tmp_path, "b")})
        uris = {(server, r["uri"]) for server, r in await manager.list_resources()}
        assert uris == {("a", "note://a"), ("b", "note://b")}
        read = await manager.read_resource("note://b")
        assert read["contents"][0]["text"] == "a note of b"
        assert (await manager.read_resource("page://a/7"))["contents"][0]["text"] == "page 7 of a"
        with pytest.raises(RpcError):
            await manager.read_resource("nobody://x")
        prompt = await manager.get_prompt("b", "greet", {"who": "Ada"})
        assert prompt["messages"][0]["content"]["text"] == "b greets Ada"
        assert manager.get_instructions() == {"a": "use a well", "b": "use b well"}


async def test_a_lazy_server_starts_on_use_and_stops_when_idle(tmp_path: Path) -> None:
    cache = MCPToolCache(MemoryStore())
    servers = {"a": entry(tmp_path, "a", lazy=True)}
    rules = Rules(idle_stop=0.3, health_interval=0)
    async with MCPManager(cache=cache, rules=rules) as manager:
        # no tools are remembered, so the server is started once
        await manager.connect_servers(servers)
        await until(lambda: manager.describe()["a"].state == "idle")
    async with MCPManager(cache=cache, rules=rules) as manager:
        loaded = await manager.connect_servers(servers)
        assert loaded.connected_servers == []
        assert manager.describe()["a"].state == "idle"
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")
        assert manager.describe()["a"].state == "connected"
        await until(lambda: manager.describe()["a"].state == "idle")
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")


async def test_a_call_while_a_lazy_server_stops_succeeds(tmp_path: Path) -> None:
    rules = Rules(idle_stop=0.05, health_interval=0)
    async with MCPManager(rules=rules, lazy=True) as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        server = manager.describe()["a"]
        async with asyncio.timeout(LIMIT):
            while server.state != "idle":
                await asyncio.sleep(0)  # wait until the stop begins
        assert (await run(manager, "mcp_a_whoami")).startswith("a ")


@pytest.mark.covers("HST-16", "HST-44", "HST-45")
async def test_closing_a_manager_stops_all_servers_including_those_added_later(
    tmp_path: Path,
) -> None:
    manager = MCPManager()
    await manager.connect_servers({"a": entry(tmp_path, "a")})
    await manager.connect_servers({"b": entry(tmp_path, "b"), "a": entry(tmp_path, "a")})
    assert manager.get_connected_servers() == ["a", "b"]
    pids = [int((await run(manager, f"mcp_{n}_whoami")).split()[1]) for n in "ab"]
    await manager.close()
    assert manager.get_tools() == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_closed_manager_neither_connects_servers_nor_watches_files(tmp_path: Path) -> None:
    manager = MCPManager()
    await manager.close()
    loaded = await manager.connect_servers(
        {"a": entry(tmp_path, "a")}, {"a": Source(path="/home/x/.mcp.json")}
    )
    assert loaded.errors == [
        {"path": "/home/x/.mcp.json", "error": 'server "a": the manager is closed'}
    ]
    assert manager.describe() == {}
    with pytest.raises(ConfigError, match="the manager is closed"):
        await manager.watch()


async def test_the_error_for_a_program_that_prints_text_shows_the_server_name_and_the_text() -> (
    None
):
    chatty = {"command": "sh", "args": ["-c", "echo Hello; cat > /dev/null"], "timeout": 700}
    async with MCPManager() as manager:
        (error,) = (await manager.connect_servers({"chatty": chatty})).errors
    assert error["error"].startswith(
        'Connection to MCP server "chatty" timed out after 700ms; '
        "the server wrote output that is not JSON-RPC:\n  | Hello\n"
    )


PRINTS = """
    def handle(request):
        print("license expired", flush=True)
        if sys.argv[1] == "exit":
            sys.exit(5)

    serve(handle)
"""


@pytest.mark.parametrize(
    ("mode", "start"),
    [
        ("exit", 'MCP error: server "notes": Transport closed: the server exited with code 5 ('),
        ("stay", 'MCP error: server "notes": Request timeout after 700ms (tools/call); '),
    ],
)
async def test_the_error_of_a_call_names_the_server_and_shows_what_it_printed(
    tmp_path: Path, mode: str, start: str
) -> None:
    command, *args = program(tmp_path, PRINTS)
    async with asyncio.timeout(20), MCPManager() as manager:
        await manager.connect_servers({"notes": {"command": command, "args": [*args, mode]}})
        [tool] = manager.get_tools()
        said = (await tool.execute(timeout=10.0 if mode == "exit" else 0.7)).text
    assert said.startswith(start)
    assert said.endswith("the server wrote output that is not JSON-RPC:\n  | license expired")


async def test_a_server_that_does_not_list_its_tools_is_reported_with_what_it_printed(
    tmp_path: Path,
) -> None:
    silent = """
        for line in sys.stdin:
            request = json.loads(line)
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/list":
                print("no database", flush=True)
            elif "id" in request:
                refuse(request)
    """
    command, *args = program(tmp_path, silent)
    config = {"command": command, "args": args, "timeout": 1500}
    async with asyncio.timeout(20), MCPManager() as manager:
        report = await manager.connect_servers({"notes": config})
    [error] = report.errors
    assert error["error"].startswith('server "notes": Request timeout after ')
    assert error["error"].endswith(
        "(tools/list); the server wrote output that is not JSON-RPC:\n  | no database"
    )
