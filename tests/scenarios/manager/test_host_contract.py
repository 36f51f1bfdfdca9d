"""Documented behaviour of a manager: states, events, notifications, roots, reconnecting."""

import asyncio
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.server_entry import read_entry
from fairlead.config.found_server import Source
from fairlead.config.server_filters import ExaFilter
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import Rules
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.provider_adapters import run_anthropic, to_anthropic
from fairlead.manager.tools.tool import DeferredMCPTool
from fairlead.manager.tools.tool_session import ToolSession, create_tool_session
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from fairlead.upstream.status_events import StatusEvent
from tests.support.managed_servers import entry

LIMIT = 20.0

# A server of both eras whose tools change its lists and send notifications.
CHANGING = """
import os, sys
from fairlead import Context, MCPServer

server = MCPServer("changing", rate_limit_rate=0)

@server.tool()
async def roots(ctx: Context) -> str:
    return " ".join(root["uri"] for root in await ctx.roots())

@server.tool()
async def add(kind: str) -> str:
    if kind == "tool":
        server.tool(name="late")(lambda: "x")
    elif kind == "prompt":
        server.prompt(name="late")(lambda: "x")
    else:
        server.resource("late://x", name="late")(lambda: "x")
    return kind

@server.tool()
async def touch() -> str:
    server.resource_updated("note://one")
    return "touched"

@server.tool()
async def die() -> str:
    os._exit(1)

@server.prompt()
async def early() -> str:
    return "early"

@server.resource("note://one")
async def note() -> str:
    return "one"

server.run()
"""

# A server without a library that reads its responses to `tools/list` from a file.
LISTING = """
import json, sys
behaviour = open(sys.argv[1]).read().split()
lists = 0
behaviour[0]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"result": {}}
    if message["method"] == "initialize":
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "listing", "version": "1"}}}
    elif message["method"] == "tools/list":
        how = behaviour[min(lists, len(behaviour) - 1)]
        lists += 1
        if how == "refuse":
            answer = {"error": {"code": -32603, "message": "not now"}}
        elif how == "nonsense":
            answer = {"result": {"tools": 17, "nextCursor": 4}}
        else:
            tool = {"name": how, "inputSchema": {"type": "object"}}
            answer = {"result": {"tools": [tool]}}
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            if how == "twice":  # the list changes while the response is sent
                sys.stdout.write(json.dumps(changed) + "\\n")
    elif message["method"] not in ("ping",):
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\\n")
    sys.stdout.flush()
"""


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.fixture(params=["stateless", "handshake"])
def config(request: pytest.FixtureRequest) -> MCPClientConfig:
    if request.param == "stateless":
        return MCPClientConfig(probe_timeout=LIMIT)
    return MCPClientConfig(protocol_version=NEWEST_HANDSHAKE.value)


def program(tmp_path: Path, text: str, *words: str, **more: Any) -> dict[str, Any]:
    place = tmp_path / f"program_{abs(hash(text))}.py"
    place.write_text(text)
    return {"command": sys.executable, "args": [str(place), *words], **more}


def listing(tmp_path: Path, *behaviour: str, **more: Any) -> dict[str, Any]:
    place = tmp_path / "behaviour"
    place.write_text(" ".join(behaviour))
    return program(tmp_path, LISTING, str(place), **more)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


async def run(manager: MCPManager, name: str, arguments: Any = None) -> str:
    tool = manager.get_tool(name)
    assert tool is not None, [tool.name for tool in manager.get_tools()]
    return (await tool.execute(arguments)).text


@pytest.mark.covers("HST-10", "HST-11")
async def test_every_server_is_listed_with_its_state(tmp_path: Path) -> None:
    seen: set[tuple[str, str]] = set()

    def look(*_: object) -> None:
        for where in ("connections", "pending_connections", "pending_tool_loads"):
            if "a" in getattr(manager, where):
                seen.add((where, manager.get_connection_status("a")))
        if "a" in manager.pending_reconnections:
            seen.add(("pending_reconnections", manager.get_connection_status("a")))

    async with MCPManager(startup="background") as manager:
        manager.add_status_listener(look)
        manager.upstreams.add_change_listener(look)
        source = Source(path="/x/mcp.json", provider="x")
        servers = {"a": entry(tmp_path, "a"), "failed": {"command": "/no/such/program"}}
        connecting = asyncio.create_task(manager.connect_servers(servers, {"a": source}))
        await until(lambda: "a" in manager.get_all_server_names())
        # a server is listed with its source before it is connected
        assert manager.sources["a"] is source
        await connecting
        await manager.wait_for_connection("a")
        await until(lambda: manager.describe()["failed"].state == "failed")
        assert manager.get_connection_status("failed") == "disconnected"
        assert manager.get_connection_status("nobody") == "disconnected"
        assert manager.get_server_config("a").args == servers["a"]["args"]  # type: ignore[union-attr]
        await run(manager, "mcp_a_die")
        await until(lambda: manager.describe()["a"].generation == 2)
        assert [tool.name for tool in manager.tools] == [t.name for t in manager.get_tools()]
    assert seen == {
        ("pending_connections", "connecting"),
        ("pending_tool_loads", "connecting"),
        ("connections", "connected"),
        ("pending_reconnections", "connecting"),
    }
    assert manager.sources == {}
    assert manager.connections == {}


@pytest.mark.covers("HST-18")
async def test_status_events_report_the_states_of_a_server_in_order(tmp_path: Path) -> None:
    events: list[StatusEvent] = []
    source = Source(path="/x/mcp.json")
    async with MCPManager() as manager:
        manager.add_status_listener(lambda event: 1 / 0)
        stop = manager.add_status_listener(events.append)
        servers = {"a": entry(tmp_path, "a"), "crash": entry(tmp_path, "crash", "crash")}
        await manager.connect_servers(servers, {"crash": source})
        await run(manager, "mcp_a_die")
        await until(lambda: manager.describe()["a"].generation == 2)
        with pytest.raises(ConnectFailed, match="exits during start-up"):
            await manager.reconnect_server("crash")
        await manager.disconnect_server("crash")
        stop()
        await manager.disconnect_server("a")
    told = [(event.kind, event.names) for event in events]
    assert told[0] == ("connecting", ("a", "crash"))
    assert [kind for kind, names in told if names == ("a",)] == [
        "connected",
        "reconnecting",
        "connected",
    ]
    kinds = [kind for kind, names in told if names == ("crash",)]
    assert kinds == ["failed", "connecting", "failed", "disconnected"]
    failed = next(event for event in events if event.kind == "failed")
    assert failed.path == "/x/mcp.json"
    assert "exits during start-up" in str(failed.error)


@pytest.mark.covers("PRO-30")
async def test_servers_receive_the_folder_of_the_host_as_a_root(
    tmp_path: Path, config: MCPClientConfig
) -> None:
    async with MCPManager(tmp_path, config=config) as manager:
        await manager.connect_servers({"a": program(tmp_path, CHANGING)})
        assert await run(manager, "mcp_a_roots") == tmp_path.as_uri()
    async with MCPManager(tmp_path, config=config, on_roots=None) as manager:
        await manager.connect_servers({"a": program(tmp_path, CHANGING)})
        # the tool returns the client's error: roots are not supported
        assert "roots" in await run(manager, "mcp_a_roots")
        assert tmp_path.as_uri() not in await run(manager, "mcp_a_roots")


@pytest.mark.covers("HST-30", "HST-31")
async def test_every_list_of_a_manager_is_updated_after_a_change_notification(
    tmp_path: Path, config: MCPClientConfig
) -> None:
    heard: list[str] = []
    async with MCPManager(config=config) as manager:
        manager.add_notification_listener(lambda *_: 1 / 0)
        manager.add_notification_listener(lambda _, method, __: heard.append(method))
        await manager.connect_servers({"a": program(tmp_path, CHANGING)})
        assert [p["name"] for _, p in await manager.list_prompts()] == ["early"]
        assert [r["uri"] for _, r in await manager.list_resources()] == ["note://one"]
        assert await manager.list_resource_templates() == []
        for kind in ("tool", "prompt", "resource"):
            await run(manager, "mcp_a_add", {"kind": kind})
            await until(lambda k=kind: f"notifications/{k}s/list_changed" in heard)  # type: ignore[misc]
        await until(lambda: manager.get_tool("mcp_a_late") is not None)
        assert {p["name"] for _, p in await manager.list_prompts()} == {"early", "late"}
        assert {r["uri"] for _, r in await manager.list_resources()} == {"note://one", "late://x"}


@pytest.mark.covers("HST-20", "HST-30")
async def test_subscriptions_are_restored_after_a_lost_connection(
    tmp_path: Path, config: MCPClientConfig
) -> None:
    heard: list[tuple[str, str, Any]] = []
    async with MCPManager(config=config) as manager:
        manager.add_notification_listener(
            lambda server, method, params: heard.append((server, method, params.get("uri")))
        )
        await manager.connect_servers({"a": program(tmp_path, CHANGING)})
        updated = ("a", "notifications/resources/updated", "note://one")
        await run(manager, "mcp_a_touch")
        await manager.subscribe("note://one")
        assert updated not in heard  # updates of other resources are not sent
        await run(manager, "mcp_a_touch")
        await until(lambda: updated in heard)
        heard.clear()
        await run(manager, "mcp_a_die")
        await manager.wait_for_connection("a")
        await run(manager, "mcp_a_touch")
        await until(lambda: updated in heard)
        # list changes are also received on the new connection
        await run(manager, "mcp_a_add", {"kind": "tool"})
        await until(lambda: manager.get_tool("mcp_a_late") is not None)
        await manager.unsubscribe("note://one")
        heard.clear()
        await run(manager, "mcp_a_touch")
        await run(manager, "mcp_a_add", {"kind": "prompt"})
        await until(lambda: any("prompts" in method for _, method, _ in heard))
        assert updated not in heard


async def test_a_failed_list_request_is_retried(tmp_path: Path) -> None:
    rules = Rules(tools_retry=0.05)
    async with MCPManager(rules=rules) as manager:
        await manager.connect_servers({"a": listing(tmp_path, "refuse", "nonsense", "refuse", "x")})
        assert manager.get_connection_status("a") == "connected"
        await until(lambda: manager.get_tool("mcp_a_x") is not None)
        assert manager.describe()["a"].tools_error is None
        assert manager.describe()["a"].generation == 1


async def test_a_list_change_that_arrives_together_with_the_list_is_not_lost(
    tmp_path: Path,
) -> None:
    async with MCPManager() as manager:
        servers = {"a": listing(tmp_path, "one", "twice", "twice", "last")}
        await manager.connect_servers(servers)
        refreshing = asyncio.create_task(manager.refresh_server_tools("a"))
        await until(lambda: manager.get_tool("mcp_a_last") is not None)
        await refreshing


async def test_exceptions_in_host_callbacks_fail_only_the_affected_server(tmp_path: Path) -> None:
    """Callbacks and stores of a host may raise any exception."""

    async def strange() -> Any:
        raise asyncio.CancelledError

    async def stuck() -> Any:
        await asyncio.Event().wait()

    class Broken(MemoryStore):
        def read(self, key: str) -> bytes | None:
            raise RuntimeError("no store today")

        def write(self, key: str, value: bytes) -> None:
            raise RuntimeError("no store today")

    good = read_entry(entry(tmp_path, "a"))
    async with MCPManager(cache=MCPToolCache(Broken())) as manager:
        loaded = await manager.connect_servers(
            {
                "a": good,
                "strange": ServerSpec(entry=good, resolve=strange),
                "stuck": ServerSpec(entry=good, resolve=stuck, startup_timeout=300),
            }
        )
        assert loaded.connected_servers == ["a"]
        errors = {error["path"]: error["error"] for error in loaded.errors}
        assert set(errors) == {"mcp:strange", "mcp:stuck"}
        assert "timed out after 300ms" in errors["mcp:stuck"]
        with pytest.raises(FairleadError):
            await manager.wait_for_connection("strange")
        with pytest.raises(FairleadError):
            await manager.reconnect_server("strange")


@pytest.mark.covers("HST-15", "HST-59", "QUA-04")
async def test_a_server_that_fails_after_connecting_causes_an_event_and_fails_its_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = MCPToolCache(MemoryStore())
    gate = tmp_path / "behaviour"
    servers = {"a": listing(tmp_path, "x"), "b": entry(tmp_path, "b")}
    async with MCPManager(cache=cache) as manager:
        await manager.connect_servers(servers)
    os.unlink(gate)
    os.mkfifo(gate)  # the restarted server waits for this pipe and then exits
    events: list[StatusEvent] = []
    async with MCPManager(cache=cache) as manager:
        manager.add_status_listener(events.append)
        loaded = await manager.connect_servers(servers)
        assert loaded.errors == []
        assert "a" not in loaded.connected_servers
        tool = manager.get_tool("mcp_a_x")
        assert isinstance(tool, DeferredMCPTool)
        waiting = asyncio.create_task(tool.execute())
        await asyncio.to_thread(gate.write_text, "")  # the server fails because the file is empty
        said = (await waiting).text
        assert said.startswith('MCP error: server "a" is not connected: ')
        assert "IndexError" in said  # the error quotes the last line of the server's stderr
        assert [event.kind for event in events if event.names == ("a",)] == ["failed"]
        # the tool stays registered and reports the error
        assert manager.get_tool("mcp_a_x") is tool
        assert not tool.available
        assert "mcp_a_x" in {one["name"] for one in to_anthropic(manager.get_tools())}
        answer = await run_anthropic(manager.get_tool, {"id": "1", "name": "mcp_a_x", "input": {}})
        assert answer["is_error"]
        assert (await run(manager, "mcp_b_whoami")).startswith("b ")
    assert any("IndexError" in record.getMessage() for record in caplog.records)


@pytest.mark.covers("DEC-21")
async def test_an_explicitly_given_server_is_connected_despite_discovery_filters(
    tmp_path: Path,
) -> None:
    exa = entry(tmp_path, "exa", "https://mcp.exa.ai/mcp")
    from fairlead.config.discovery import load_all_mcp_configs

    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"exa": exa}})
    )
    found = load_all_mcp_configs(tmp_path, home=tmp_path / "home", filters=[ExaFilter()])
    assert found.configs == {}  # the filter hides the server from discovery
    async with MCPManager() as manager:
        loaded = await manager.connect_servers({"exa": exa})
        assert loaded.connected_servers == ["exa"]


async def test_a_server_may_start_slower_than_the_request_timeout(tmp_path: Path) -> None:
    config = MCPClientConfig(timeout_seconds=0.5)
    async with MCPManager(config=config) as manager:
        slow = entry(tmp_path, "slow", "slow", "1.0", timeout=15_000)
        loaded = await manager.connect_servers({"slow": slow})
        assert loaded.errors == []
        connection = manager.get_connection("slow")
        assert connection is not None
        # requests keep their own timeout after the slow start
        assert connection.client.transport.timeout == 0.5


@pytest.mark.covers("HST-41", "HST-45")
async def test_a_registry_that_rejects_one_tool_keeps_the_other_tools(tmp_path: Path) -> None:
    class Picky:
        def __init__(self) -> None:
            self.tools: dict[str, Any] = {}

        def add(self, tool: Any) -> None:
            if tool.name == "mcp_b_whoami":
                raise ValueError("not this one")
            self.tools[tool.name] = tool

        def remove(self, name: str) -> None:
            del self.tools[name]  # raises an error for unknown names

    async with MCPManager() as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        registry = Picky()
        async with ToolSession(manager, registry=registry, owned=False) as session:
            await session.refresh_mcp_tools(manager.get_tools())
            before = dict(registry.tools)
            assert before
            with pytest.raises(ValueError, match="not this one"):
                await manager.connect_servers({"b": entry(tmp_path, "b")})
                await session.refresh_mcp_tools(manager.get_tools())
            assert registry.tools == before
        assert registry.tools == {}
        # the manager was passed to the session, so its servers stay connected
        assert manager.get_connected_servers() == ["a", "b"]


@pytest.mark.covers("HST-52")
async def test_a_lazy_server_starts_once_for_concurrent_calls(tmp_path: Path) -> None:
    cache, rules = MCPToolCache(MemoryStore()), Rules(idle_stop=0.1, health_interval=0)
    servers = {"a": entry(tmp_path, "a", lazy=True)}
    async with MCPManager(cache=cache, rules=rules) as manager:
        await manager.connect_servers(servers)
        supervisor = manager.describe()["a"]
        for _ in range(5):
            await until(lambda: supervisor.state == "idle")
            assert manager.connections == {}
            generation = supervisor.generation
            texts = await asyncio.gather(*(run(manager, "mcp_a_whoami") for _ in range(10)))
            assert len(set(texts)) == 1
            assert supervisor.generation == generation + 1
            resource = await manager.read_resource("note://a", server="a")
            assert resource["contents"][0]["text"] == "a note of a"


PUBLIC = {
    "fairlead": """MCPServer MCPServerConfig MCPClient MCPClientConfig MCPClientError MCPManager
        MCPTool DeferredMCPTool MCPToolCache MCPToolError MCPTransport mcp_tool Context RpcError
        discover_and_load_mcp_tools discover_mcp_servers FairleadError""",
    "fairlead.client": """StdioTransport HttpTransport WebSocketTransport create_transport
        call_mcp parse_sse""",
    "fairlead.manager": """MCPServerConnection MCPServerEntry connect_to_server list_tools call_tool
        disconnect_server load_all_mcp_configs validate_server_config MCPManager MCPTool
        DeferredMCPTool MCPToolCache Rules Source StatusEvent ToolSession create_tool_session
        discover_and_load_mcp_tools discover_mcp_servers""",
    "fairlead.server": "MCPToolRegistry",
    "fairlead.interceptor": "RateLimiter CircuitBreaker",
    "fairlead.protocol.envelope": """McpMessage MessageEnvelope TransportContext SessionContext
        Direction""",
    "fairlead.protocol.contracts": """TOOL_ERROR_SCHEMA TOOL_REQUEST_SCHEMA TOOL_RESPONSE_SCHEMA
        validate_tool_error validate_tool_request validate_tool_response""",
}


@pytest.mark.covers("ARC-11")
@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_importable_from_their_documented_module(module: str) -> None:
    home = importlib.import_module(module)
    names = PUBLIC[module].split()
    assert [name for name in names if name not in home.__all__] == []
    assert [name for name in names if getattr(home, name, None) is None] == []


@pytest.mark.covers("HST-17")
async def test_the_query_methods_of_a_manager_return_its_servers_and_tools(tmp_path: Path) -> None:
    home = tmp_path / "home" / ".cursor"
    home.mkdir(parents=True)
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry(tmp_path, "a")}}))
    async with MCPManager(tmp_path) as manager:
        found = await manager.discover_and_connect(loading={"home": tmp_path / "home", "env": {}})
        assert found.connected_servers == ["a"]
        await manager.connect_servers({"b": entry(tmp_path, "b")}, {"b": Source(provider="x")})
        assert manager.get_all_server_names() == manager.get_connected_servers() == ["a", "b"]
        assert manager.get_source("a") == Source(
            "cursor", "Cursor", str(home / "mcp.json"), "user", 1
        )
        assert manager.get_source("b") == Source(provider="x")
        assert manager.get_server_config("b") == read_entry(entry(tmp_path, "b"))
        for unknown in (manager.get_source, manager.get_server_config, manager.get_connection):
            assert unknown("nobody") is None
        first = await manager.wait_for_connection("a")
        assert manager.get_connection("a") == first
        assert {tool.mcp_server_name for tool in manager.get_tools()} == {"a", "b"}
        before = manager.describe()["a"].tools
        await manager.refresh_server_tools("a")
        assert manager.describe()["a"].tools is not before
        await manager.refresh_all_tools()
        await manager.reconnect_server("a")
        again = manager.get_connection("a")
        assert again is not None
        assert (again.generation, again.client is first.client) == (2, False)
        await manager.disconnect_server("a")
        for asked in (
            manager.wait_for_connection("a"),
            manager.refresh_server_tools("a"),
            manager.reconnect_server("a"),
        ):
            with pytest.raises(FairleadError, match="Unknown server 'a'; known servers: b"):
                await asked
        await manager.disconnect_server("a")  # a second disconnection has no effect
        await manager.disconnect_all()
        assert (manager.get_all_server_names(), manager.get_tools()) == ([], [])


async def test_a_single_server_connection_can_be_used_without_a_manager(tmp_path: Path) -> None:
    from fairlead.manager import call_tool, connect_to_server, disconnect_server, list_tools

    before = threading.active_count()
    connection = await connect_to_server("a", entry(tmp_path, "a"))
    try:
        assert "whoami" in {tool["name"] for tool in await list_tools(connection)}
        result = await call_tool(connection, "whoami")
        assert result["content"][0]["text"].startswith("a ")
        assert connection.latency is not None
    finally:
        await disconnect_server(connection)
    assert not connection.client.connected
    with pytest.raises(ConnectFailed, match='"silent" timed out after 300ms'):
        await connect_to_server("silent", entry(tmp_path, "silent", "silent", timeout=300))
    assert threading.active_count() < before + 10


# A server that logs at the requested level and exits on request.
LOGGING = """
import os
from fairlead import Context, MCPServer

server = MCPServer("logging", rate_limit_rate=0)

@server.tool()
async def speak(ctx: Context) -> str:
    await ctx.log("debug", "quiet")
    await ctx.log("error", "loud")
    return "said"

@server.tool()
async def die() -> str:
    os._exit(1)

server.run()
"""


async def test_the_log_level_is_restored_after_a_lost_connection(
    tmp_path: Path, config: MCPClientConfig
) -> None:
    heard: list[Any] = []

    def hear(server: str, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/message":
            heard.append(params["data"])

    async def spoken() -> list[Any]:
        heard.clear()
        assert await run(manager, "mcp_a_speak") == "said"
        await until(lambda: "loud" in heard)
        return heard

    async with MCPManager(config=config) as manager:
        manager.add_notification_listener(hear)
        await manager.connect_servers({"a": program(tmp_path, LOGGING)})
        await manager.set_log_level("error")
        assert await spoken() == ["loud"]
        await manager.set_log_level("debug", server="a")
        assert await spoken() == ["quiet", "loud"]
        await run(manager, "mcp_a_die")
        await manager.wait_for_connection("a")
        assert await spoken() == ["quiet", "loud"]
        with pytest.raises(FairleadError, match="Unknown server 'b'"):
            await manager.set_log_level("debug", server="b")


async def test_a_tool_session_on_a_given_manager_does_not_close_the_manager(
    tmp_path: Path,
) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"a": entry(tmp_path, "a")})
        session = await create_tool_session(manager=manager)
        names = {tool.name for tool in manager.get_tools()}
        assert {tool.name for tool in session.mcp_tools} == names
        await session.close()
        assert session.mcp_tools == []
        assert manager.get_connected_servers() == ["a"]
