"""Call arguments reach the server unchanged on every route."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.cli.client.call_arguments import parse
from fairlead.gateway import Gateway
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.manager import MCPManager
from fairlead.manager.tools.provider_adapters import run_anthropic, run_openai
from fairlead.manager.tools.tool_callables import as_callables
from tests.support.examples import examples

LIMIT = 30.0

# A server that answers a call with the text of the line it received.
ECHO = """
import json, sys

LISTED = {"name": "echo", "inputSchema": {"type": "object", "properties": {
    "title": {"type": "string", "default": "untitled"},
    "note": {"type": ["string", "null"]},
    "options": {"type": "object"},
    "items": {"type": "array"},
    "count": {"type": "integer"},
}}}
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}},
                                "serverInfo": {"name": "echo", "version": "1"}}
        case "tools/list":
            answer["result"] = {"tools": [LISTED]}
        case "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": line}]}
        case "ping":
            answer["result"] = {}
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"""

Call = Callable[[dict[str, Any]], Awaitable[Any]]


def spelled(arguments: Any) -> str:
    """Return a text that differs whenever types, signs, order or values differ."""
    return json.dumps(arguments)


def echoed(text: str) -> str:
    return spelled(json.loads(text)["params"]["arguments"])


def config(version: str) -> MCPClientConfig:
    return MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT, max_retries=0)


@contextlib.asynccontextmanager
async def serving(server: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


class Received:
    """An interceptor that answers each call with the arguments of the call."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.message.method != "tools/call":
            return await proceed(exchange)
        line = '{"params": {"arguments": ' + bytes(exchange.head.arguments).decode() + "}}"  # type: ignore[arg-type]
        return json.dumps({"content": [{"type": "text", "text": line}]}).encode()


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


async def open_routes(stack: contextlib.AsyncExitStack, entry: dict[str, Any]) -> dict[str, Call]:
    """Return one call function per route; each returns the line that the server received."""
    enter = stack.enter_async_context
    routes: dict[str, Call] = {}

    def client_route(client: MCPClient, tool: str = "echo") -> Call:
        async def call(arguments: dict[str, Any]) -> str:
            return text_of(await client.call_tool(tool, arguments))

        return call

    command = [entry["command"], *entry["args"]]
    routes["client"] = client_route(await enter(MCPClient.connect_stdio(command, config("auto"))))

    manager = await enter(MCPManager())
    await manager.connect_servers({"echo": entry})
    await manager.wait_for_connection("echo")
    (tool,) = manager.get_tools()

    async def execute(arguments: dict[str, Any]) -> str:
        return (await tool.execute(arguments)).text

    async def openai_text(arguments: dict[str, Any]) -> str:
        call = {"id": "1", "function": {"name": tool.name, "arguments": json.dumps(arguments)}}
        return str((await run_openai(manager.get_tool, call))["content"])

    async def openai_object(arguments: dict[str, Any]) -> str:
        call = {"id": "1", "function": {"name": tool.name, "arguments": arguments}}
        return str((await run_openai(manager.get_tool, call))["content"])

    async def anthropic(arguments: dict[str, Any]) -> str:
        use = {"id": "1", "name": tool.name, "input": arguments}
        return text_of(await run_anthropic(manager.get_tool, use))

    async def function(arguments: dict[str, Any]) -> str:
        return await as_callables([tool])[tool.name](**arguments)

    routes |= {"manager": execute, "openai text": openai_text, "openai object": openai_object}
    routes |= {"anthropic": anthropic, "function": function}

    gateway = await enter(Gateway())
    await gateway.connect({"echo": entry})
    url = await enter(serving(gateway))
    for version in ("2025-11-25", "auto"):
        merged = await enter(MCPClient.connect_http(url, config(version)))
        alone = await enter(MCPClient.connect_http(f"{url}/echo", config(version)))
        routes[f"gateway {version}"] = client_route(merged, "echo_echo")
        routes[f"gateway at its own path {version}"] = client_route(alone)

    searching = await enter(Gateway(search=True))
    await searching.connect({"echo": entry})
    found = await enter(MCPClient.connect_inprocess(searching, config("2025-11-25")))

    async def search(arguments: dict[str, Any]) -> str:
        wrapped = {"name": "echo_echo", "arguments": arguments}
        return text_of(await found.call_tool("call_tool", wrapped))

    routes["search mode"] = search

    server = MCPServer("own", rate_limit_rate=0, interceptors=[Received()])
    server.tool(name="echo")(lambda: "never reached")
    own = await enter(serving(server))
    base = own.removesuffix("/mcp")
    web = await enter(aiohttp.ClientSession())

    async def rest(arguments: dict[str, Any]) -> str:
        async with web.post(f"{base}/tools/echo/call", json=arguments) as answer:
            assert answer.status == 200, await answer.text()
            return text_of(await answer.json())

    async def frame(arguments: dict[str, Any]) -> str:
        async with web.ws_connect(f"{base}/ws") as socket:
            await socket.send_json({"id": 1, "name": "echo", "arguments": arguments})
            said = await socket.receive_json(timeout=LIMIT)
            return text_of(said["result"])

    routes |= {"rest": rest, "tool-call frame": frame}
    return routes


class Running:
    """An event loop in a thread, with every route opened."""

    def __init__(self, folder: Path) -> None:
        program = folder / "echo.py"
        program.write_text(ECHO)
        self.entry = {"command": sys.executable, "args": [str(program)]}
        self.loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._ended = asyncio.Event()
        self._opened = threading.Event()
        self.routes: dict[str, Call] = {}
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=[self._main()])
        self._thread.start()
        assert self._opened.wait(LIMIT)

    async def _main(self) -> None:
        try:
            async with self._stack:
                self.routes = await open_routes(self._stack, self.entry)
                self._opened.set()
                await self._ended.wait()
        finally:
            self._opened.set()

    def call(self, route: str, arguments: dict[str, Any]) -> str:
        """Return the line that the server received on this route."""
        work = asyncio.wait_for(self.routes[route](arguments), LIMIT)
        return str(asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(LIMIT)
        self.loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    it = Running(tmp_path_factory.mktemp("echo"))
    yield it
    it.close()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.0, -0.0, 0, 2**63, 2**64, -(2**63) - 1, 10**40, 1e300, 5e-324]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
keys = st.one_of(st.sampled_from(["title", "note", "options", "items", "count"]), texts)
objects = st.dictionaries(keys, values, max_size=5)

ROUTES = [
    *("client", "manager", "openai text", "openai object", "anthropic", "function"),
    *("gateway 2025-11-25", "gateway auto", "search mode", "rest", "tool-call frame"),
    *("gateway at its own path 2025-11-25", "gateway at its own path auto"),
]
MANAGED = {"manager", "openai text", "openai object", "anthropic", "function"}
NO_NULL = {"title", "options", "items", "count"}  # optional arguments whose schemas forbid null


@pytest.mark.covers("HST-56")
@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=objects)
@example({"title": "", "note": "", "options": {}, "items": [], "count": 0})
@example({"note": None, "unknown": None, "options": {"title": None, "x": [None, {}]}})
@example({"z": 1, "a": 1.0, "m": -0.0, "": "", "count": 10**40})
@example({})
def test_arguments_reach_the_server_unchanged_on_every_route(
    running: Running, route: str, arguments: dict[str, Any]
) -> None:
    if route in MANAGED:
        arguments = {k: v for k, v in arguments.items() if v is not None or k not in NO_NULL}
    assert echoed(running.call(route, arguments)) == spelled(arguments)


@pytest.mark.covers("HST-56")
@pytest.mark.parametrize("route", sorted(MANAGED))
def test_a_null_is_omitted_where_the_schema_forbids_it(running: Running, route: str) -> None:
    given = {"title": None, "note": None, "options": None, "items": None, "count": None, "x": None}
    assert echoed(running.call(route, given)) == spelled({"note": None, "x": None})


@settings(max_examples=examples(100))
@given(arguments=objects)
def test_json_arguments_on_the_command_line_are_parsed_unchanged(arguments: dict[str, Any]) -> None:
    assert spelled(parse([], json.dumps(arguments)).fit({})) == spelled(arguments)
    words = {key: value for key, value in arguments.items() if key and not set(key) & {"=", ":"}}
    given = parse([f"{key}:={json.dumps(value)}" for key, value in words.items()], None)
    assert spelled(given.fit({})) == spelled(words)


def test_an_argument_without_a_value_on_the_command_line_is_an_empty_string(
    running: Running,
) -> None:
    command = [sys.executable, "-m", "fairlead", "call", "echo", "title=", "note=null"]
    done = subprocess.run(
        [*command, "options:={}", "--", *[running.entry["command"], *running.entry["args"]]],  # type: ignore[list-item]
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(echoed(done.stdout)) == {"title": "", "note": None, "options": {}}
