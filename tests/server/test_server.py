"""Tests of an MCP server in both eras, over real connections."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from fairlead import Context, MCPServer, MCPServerConfig, MCPToolError, RpcError
from fairlead.errors import MCPErrorCode
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.types.content import ImageContent, TextContent
from fairlead.protocol.types.tools import CallToolResult, ToolAnnotations
from fairlead.server.schema.header_annotation import Header
from fairlead.transport.memory import memory_pair
from tests.support.in_memory_client import META, ask, client_of
from tests.support.raw_server_client import wire_to


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    return str(block["text"])


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    return json.loads(text_of(result))  # type: ignore[no-any-return]


@pytest.mark.covers("SRV-02", "SRV-29", "DEC-04")
async def test_tools_are_listed_and_called_in_every_revision(version: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def greet(name: str, times: int = 1) -> str:
        """Greet a person."""
        return f"hello {name} " * times

    assert await greet("x", 1) == "hello x "  # the decorator returns the function unchanged
    async with client_of(server, version) as client:
        (tool,) = await client.list_tools()
        assert tool == {
            "name": "greet",
            "description": "Greet a person.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "times": {"type": "integer", "default": 1},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "string"}},
                "required": ["result"],
            },
        }
        assert text_of(await client.call_tool("greet", {"name": "you"})) == "hello you "
        if version != "auto":
            assert client.protocol_version == version


@pytest.mark.covers("SRV-29", "SRV-34")
async def test_return_values_of_tools_become_content_blocks() -> None:
    server = MCPServer("s")
    values: dict[str, Any] = {
        "none": None,
        "number": 3,
        "mapping": {"a": [1, None, "é"]},
        "strings": ["a", "b"],
        "text": TextContent(text="t"),
        "blocks": ["caption", ImageContent(data="AAAA", mime_type="image/png")],
        "whole": CallToolResult(content=[], structured_content=_raw({"x": 1})),
        "surrogate": "half \ud83d emoji",
    }

    @server.tool()
    async def give(key: str) -> Any:
        return values[key]

    async with client_of(server) as client:

        async def content(key: str) -> list[dict[str, Any]]:
            return (await client.call_tool("give", {"key": key}))["content"]  # type: ignore[no-any-return]

        assert await content("none") == [{"type": "text", "text": ""}]
        assert await content("number") == [{"type": "text", "text": "3"}]
        assert json.loads((await content("mapping"))[0]["text"]) == {"a": [1, None, "é"]}
        assert await content("strings") == [{"type": "text", "text": '["a","b"]'}]
        assert await content("text") == [{"type": "text", "text": "t"}]
        assert await content("blocks") == [
            {"type": "text", "text": "caption"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        ]
        assert await content("surrogate") == [{"type": "text", "text": "half \ufffd emoji"}]
        whole = await client.call_tool("give", {"key": "whole"})
        assert whole["structuredContent"] == {"x": 1}
        # A result has at least one content block.
        assert whole["content"] == [{"type": "text", "text": ""}]
        assert whole["resultType"] == "complete"


def _raw(value: Any):  # type: ignore[no-untyped-def]
    import msgspec

    return msgspec.Raw(msgspec.json.encode(value))


@pytest.mark.covers("SRV-20", "SRV-22", "DEC-16")
async def test_invalid_arguments_cause_an_error_result_that_lists_every_problem(
    version: str,
) -> None:
    server = MCPServer("s")

    @server.tool()
    async def book(seats: int, when: str, window: bool = False) -> str:
        return "booked"

    async with client_of(server, version) as client:
        error = error_of(await client.call_tool("book", {"seats": "many", "extra": 1}))
        assert error["code"] == "VALIDATION_ERROR"
        assert error["tool_name"] == "book"
        assert error["correlation_id"]
        problems = {(e["field"], e["constraint"]) for e in error["field_errors"]}
        assert ("seats", '"many" is not of type "integer"') in problems
        assert any('"when" is a required property' in constraint for _, constraint in problems)
        assert any("'extra' was unexpected" in constraint for _, constraint in problems)


@pytest.mark.covers("SRV-30")
async def test_numbers_and_booleans_in_strings_are_converted() -> None:
    server = MCPServer("s")

    @server.tool()
    async def types(a: int, b: float, c: bool, d: list[int], e: str | None = None) -> str:
        return repr((a, b, c, d, e))

    async with client_of(server) as client:
        arguments = {"a": "3", "b": "1.5", "c": "true", "d": ["1", 2]}
        assert text_of(await client.call_tool("types", arguments)) == "(3, 1.5, True, [1, 2], None)"


@pytest.mark.covers("SRV-20", "SRV-21", "SRV-25", "SRV-31")
async def test_a_failing_tool_causes_an_error_result_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = MCPServer("s")

    @server.tool()
    async def breaks() -> str:
        raise KeyError("lost")

    @server.tool()
    def leaves() -> str:
        raise SystemExit(3)

    @server.tool()
    async def chooses() -> str:
        raise MCPToolError("not for you", code="ACCESS_DENIED", suggestion="ask Bob")

    @server.tool()
    async def refuses() -> str:
        raise RpcError(-32602, "invalid params")

    async with client_of(server) as client:
        broken = error_of(await client.call_tool("breaks"))
        assert (broken["code"], broken["message"]) == ("EXECUTION_ERROR", "KeyError: 'lost'")
        assert error_of(await client.call_tool("leaves"))["message"] == "SystemExit: 3"
        chosen = error_of(await client.call_tool("chooses"))
        assert chosen["code"] == "ACCESS_DENIED"
        assert chosen["suggestion"] == "ask Bob"
        again = client.tool_error(await client.call_tool("chooses"))
        assert again is not None
        assert (again.code, again.message) == ("ACCESS_DENIED", "not for you")
        with pytest.raises(RpcError, match="invalid params"):
            await client.call_tool("refuses")
    assert {code.value for code in MCPErrorCode} == {
        "VALIDATION_ERROR",
        "EXECUTION_ERROR",
        "TIMEOUT",
        "NOT_FOUND",
        "RATE_LIMITED",
        "CIRCUIT_OPEN",
        "DEPENDENCY_MISSING",
        "ACCESS_DENIED",
        "INTERNAL",
    }
    assert "KeyError: 'lost'" in caplog.text
    assert "not for you" in caplog.text


@pytest.mark.covers("SRV-24", "SRV-27", "SRV-13")
@pytest.mark.parametrize("kind", ["async", "sync", "stubborn"])
async def test_a_tool_that_runs_too_long_is_cancelled_and_returns_an_error(kind: str) -> None:
    server = MCPServer("s", per_tool_timeouts={"slow": 0.05})
    ended = asyncio.Event()

    async def wait() -> str:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return ""

    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        ended.set()
        return "too late"

    def block() -> str:
        time.sleep(0.5)
        return ""

    function = {"async": wait, "sync": block, "stubborn": stubborn}[kind]
    server.tool("slow")(function)
    async with client_of(server) as client:
        error = error_of(await client.call_tool("slow"))
        assert (error["code"], error["message"]) == (
            "TIMEOUT",
            "Tool 'slow' timed out after 0.05s",
        )
        if kind != "sync":
            assert ended.is_set()  # the handler has been cancelled


@pytest.mark.covers("SRV-17", "ARC-08")
async def test_a_slow_tool_does_not_delay_other_calls(loop_kind: str) -> None:
    server = MCPServer("s")
    release = asyncio.Event()

    @server.tool()
    async def slow() -> str:
        await release.wait()
        return "slow"

    @server.tool()
    def blocking() -> str:
        time.sleep(0.2)
        return "blocking"

    @server.tool()
    async def quick() -> str:
        return "quick"

    async with client_of(server) as client:
        waiting = [asyncio.create_task(client.call_tool("slow")) for _ in range(50)]
        blocked = asyncio.create_task(client.call_tool("blocking"))
        assert text_of(await client.call_tool("quick")) == "quick"
        assert not blocked.done()
        release.set()
        await asyncio.gather(*waiting, blocked)


@pytest.mark.covers("PRO-32")
async def test_a_cancelled_call_cancels_its_handler() -> None:
    server = MCPServer("s")
    started, ended = asyncio.Event(), asyncio.Event()

    @server.tool()
    async def slow() -> str:
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return ""

    async with client_of(server) as client:
        task = asyncio.create_task(client.call_tool("slow"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


@pytest.mark.covers("SRV-28", "PRO-33", "PRO-35")
async def test_a_handler_sends_progress_and_log_messages(version: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def work(steps: int, anything: Context) -> str:
        for step in range(steps):
            await anything.progress(step + 1, steps, f"step {step + 1}")
        await anything.progress(0)  # Decreasing progress is dropped.
        await anything.debug("too fine")
        await anything.warning({"disk": "full"})
        return f"{anything.client} {anything.protocol_version} {anything.request_id}"

    logs: list[Any] = []
    steps: list[Any] = []
    async with client_of(server, version) as client:
        (tool,) = await client.list_tools()
        # The context is not an argument of the tool.
        assert list(tool["inputSchema"]["properties"]) == ["steps"]
        client.on_log = lambda level, data, logger: logs.append((level, data))
        await client.set_log_level("info")
        result = await client.call_tool(
            "work", {"steps": 2}, on_progress=lambda *said: steps.append(said)
        )
        words = (None, None) if version == "2024-11-05" else ("step 1", "step 2")
        assert steps == [(1, 2, words[0]), (2, 2, words[1])]
        assert logs == [("warning", {"disk": "full"})]
        assert text_of(result).startswith(f"fairlead {client.protocol_version} ")


async def test_a_stateless_caller_without_a_log_level_receives_no_log_messages() -> None:
    server = MCPServer("s")

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.error("hello?")
        with pytest.raises(ValueError, match="unknown log level 'loud'"):
            await ctx.log("loud", "x")
        return "done"

    heard: list[Any] = []
    async with client_of(server) as client:
        client.on_notification = lambda method, params: heard.append(method)
        await client.call_tool("talk")
    assert heard == []


async def test_a_synchronous_handler_can_send_progress() -> None:
    server = MCPServer("s")

    @server.tool()
    def work(ctx: Context) -> str:
        ctx.wait(ctx.progress(1, 2))
        return ctx.correlation_id

    steps: list[Any] = []
    async with client_of(server) as client:
        result = await client.call_tool("work", on_progress=lambda *said: steps.append(said))
        assert steps == [(1, 2, None)]
        assert len(text_of(result)) == 16


async def test_inline_tools_run_in_the_event_loop() -> None:
    server = MCPServer("s")
    import threading

    main = threading.get_ident()

    @server.tool(inline=True)
    def where(n: int) -> str:
        if n < 0:
            raise ValueError("negative")
        return str(threading.get_ident() == main)

    async with client_of(server) as client:
        assert text_of(await client.call_tool("where", {"n": 1})) == "True"
        assert error_of(await client.call_tool("where", {"n": -1}))["code"] == "EXECUTION_ERROR"
        assert error_of(await client.call_tool("where", {}))["code"] == "VALIDATION_ERROR"
    with pytest.raises(TypeError, match="inline is not supported"):

        @server.tool(inline=True)
        async def no() -> str:
            return ""


@pytest.mark.covers("SRV-01", "SRV-13", "DEC-26")
def test_a_server_accepts_a_configuration_object_or_settings() -> None:
    assert MCPServer().name == "fairlead-mcp-server"
    assert MCPServer("weather").name == "weather"
    assert MCPServer("weather", version="2").config.version == "2"
    assert MCPServer(MCPServerConfig(name="x")).name == "x"
    with pytest.raises(TypeError, match="not both"):
        MCPServer(MCPServerConfig(), version="2")
    with pytest.raises(TypeError):
        MCPServer(no_such_setting=1)
    config = MCPServerConfig()
    assert (config.transport, config.default_tool_timeout, config.rate_limit_rate) == (
        "stdio",
        60.0,
        50.0,
    )
    assert (config.rate_limit_burst, config.warm_up, config.log_level) == (100, True, "INFO")
    assert (config.version, config.input_timeout) == ("1.0.0", 600.0)


@pytest.mark.covers("SRV-15", "PRO-34")
async def test_lists_are_paged_in_order_of_registration(version: str) -> None:
    server = MCPServer("s", page_size=7)
    for number in range(23):
        server.register_tool(f"t{number:02}", {"type": "object"}, lambda: "x")
        server.register_resource(f"r://{number}", f"r{number}", content_provider="x")
        server.register_prompt(f"p{number:02}", template="x")
    async with client_of(server, version) as client:
        assert [t["name"] for t in await client.list_tools()] == [f"t{n:02}" for n in range(23)]
        assert len(await client.list_resources()) == 23
        assert len(await client.list_prompts()) == 23
    first = (await ask(server, "tools/list"))["result"]
    assert len(first["tools"]) == 7
    server.remove_tool("t00")
    assert (server.tool_count, server.resource_count, server.prompt_count) == (22, 23, 23)
    assert (await ask(server, "tools/list"))["result"]["tools"][0]["name"] == "t01"


async def test_duplicate_and_unknown_tool_names_are_rejected() -> None:
    server = MCPServer("s")
    server.tool("same")(lambda: "1")
    with pytest.raises(ValueError, match="a tool 'same' is already registered"):
        server.tool("same")(lambda: "2")
    with pytest.raises(KeyError):
        server.remove_tool("never")


@pytest.mark.covers("SRV-03")
async def test_arguments_of_a_tool_with_a_given_schema_are_validated() -> None:
    server = MCPServer("s")
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "x-keep": {"me": 1.50}}},
        "required": ["n"],
    }
    before = json.dumps(schema)

    async def double(n: int) -> int:
        """Twice as much."""
        return n * 2

    server.register_tool("double", schema, double, title="Double")
    server.register_tool(
        "whole", {"description": "D", "inputSchema": schema, "annotations": {}}, double
    )
    assert json.dumps(schema) == before
    async with client_of(server) as client:
        first, second = await client.list_tools()
        assert first == {
            "name": "double",
            "title": "Double",
            "description": "Twice as much.",
            "inputSchema": schema,
        }
        assert (second["name"], second["description"]) == ("whole", "D")
        assert text_of(await client.call_tool("double", {"n": 4})) == "8"
        assert (
            error_of(await client.call_tool("double", {"n": 1}))["field_errors"][0]["field"] == "n"
        )


def test_references_in_schemas_are_never_fetched() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}
    with pytest.raises(ValueError, match="not followed"):
        MCPServer("s").register_tool("t", schema, lambda a: a)


async def test_interceptors_of_a_server_handle_every_request() -> None:
    seen: list[str] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(f"{exchange.method} {exchange.target}")
        return await proceed(exchange)

    async def deny(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target == "secret":
            raise RpcError(-32602, "'secret' is not available here")
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[watch, deny])
    server.tool("secret")(lambda: "x")
    server.tool("open")(lambda: "y")
    async with client_of(server) as client:
        await client.list_tools()
        assert text_of(await client.call_tool("open")) == "y"
        with pytest.raises(RpcError, match="not available here"):
            await client.call_tool("secret")
    assert seen == [
        "server/discover None",
        "tools/list None",
        "tools/call open",
        "tools/call secret",
    ]


async def test_annotations_and_meta_are_sent_in_revisions_that_have_them() -> None:
    server = MCPServer("s")
    server.tool(
        "t",
        title="T",
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"com.example/x": 1},
    )(lambda: "x")
    async with client_of(server, "auto") as client:
        (tool,) = await client.list_tools()
        assert tool["annotations"] == {"readOnlyHint": True}
        assert tool["_meta"] == {"com.example/x": 1}
    async with client_of(server, "2024-11-05") as client:
        (tool,) = await client.list_tools()
        assert set(tool) == {"name", "inputSchema"}


async def test_a_return_type_without_a_json_form_is_rejected_at_registration() -> None:
    server = MCPServer("s")
    with pytest.raises(TypeError, match=r"bad: parameter 'x' has no JSON form"):

        @server.tool()
        def bad(x: logging.Logger) -> str:
            return ""

    with pytest.raises(TypeError, match="positional-only"):

        @server.tool()
        def worse(x: int, /) -> str:
            return ""


async def test_one_connection_serves_both_eras() -> None:
    server = MCPServer("s")
    server.tool("t")(lambda: "x")
    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)
    got: asyncio.Queue[Any] = asyncio.Queue()
    reading = asyncio.create_task(left.run(got.put_nowait))
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c"}}

    def send(number: int, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        left.write(json.dumps(message).encode() + b"\n")

    send(1, "initialize", hello)
    send(2, "tools/list", {})  # sent in the same chunk as the handshake
    send(3, "tools/list", {"_meta": META})
    send(4, "server/discover", {"_meta": META})
    answers = {}
    async with asyncio.timeout(5):
        while len(answers) < 4:
            message = await got.get()
            answers[message.id] = json.loads(bytes(message.result))
    assert answers[1]["protocolVersion"] == "2025-06-18"
    assert "resultType" not in answers[2]
    assert answers[3]["resultType"] == "complete"
    assert "supportedVersions" in answers[4]
    await peer.close()
    await left.close()
    await reading


@pytest.mark.covers("SRV-28")
async def test_a_handler_reads_resources_of_its_server_on_behalf_of_its_caller(
    version: str,
) -> None:
    async def guard(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target == "mem://secret":
            raise RpcError(-32602, "not for you")
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[guard])
    server.register_resource("mem://secret", "secret", content_provider="x")

    @server.resource("mem://{name}")
    async def greeting(name: str) -> list[str | bytes]:
        return [f"hello {name}", b"\0"]

    @server.tool()
    async def look(uri: str, ctx: Context) -> Any:
        return await ctx.read_resource(uri)

    @server.tool()
    def look_in_thread(ctx: Context) -> str:
        return str(ctx.wait(ctx.read_resource("mem://you"))[0]["text"])

    async with client_of(server, version) as client:
        got = json.loads(text_of(await client.call_tool("look", {"uri": "mem://you"})))
        assert got == [
            {"uri": "mem://you", "mimeType": "text/plain", "text": "hello you"},
            {"uri": "mem://you", "mimeType": "text/plain", "blob": "AA=="},
        ]
        assert text_of(await client.call_tool("look_in_thread")) == "hello you"
        for uri, why in (("mem://secret", "not for you"), ("other://x", "Resource not found")):
            with pytest.raises(RpcError, match=why):
                await client.call_tool("look", {"uri": uri})


@pytest.mark.covers("SRV-08")
def test_run_stdio_serves_stdin_until_its_end() -> None:
    program = """
import asyncio
from fairlead import MCPServer
server = MCPServer("s")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    await server.run_stdio()
    print("after it")  # stdout is restored

asyncio.run(main())
"""
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(message).encode() + b"\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    answer, after = done.stdout.splitlines()
    assert json.loads(answer)["result"]["content"][0]["text"] == "3"
    assert after == b"after it"


def test_running_calls_are_finished_after_the_end_of_stdin() -> None:
    program = """
import asyncio
from fairlead import MCPServer
server = MCPServer("s")
turn = asyncio.Semaphore(1)

@server.tool()
async def work(what: int) -> int:
    async with turn:  # the calls together exceed the time limit of one
        await asyncio.sleep(0.6)
    return what

@server.tool()
async def hang() -> None:
    await asyncio.Event().wait()

server.run()
"""

    def call(number: int, name: str, **arguments: Any) -> str:
        params = {"name": name, "arguments": arguments, "_meta": META}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        return json.dumps(message) + "\n"

    asked = [call(n, "work", what=n) for n in range(5)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="".join([*asked, call(9, "hang")]).encode(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3, 4]


def test_a_tool_is_described_by_the_first_line_of_its_docstring() -> None:
    server = MCPServer("s")

    @server.tool()
    def one() -> None:
        """First line.

        More.
        """

    server.tool(name="two")(lambda: "x")
    assert server.describe_tools() == [("one", "First line."), ("two", "")]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "t: inputSchema must have the type 'object', not 'array'"),
        ([], "t: inputSchema must be a dict"),
    ],
    ids=["array", "list"],
)
def test_an_input_schema_must_have_the_type_object(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        MCPServer("s").register_tool("t", schema, lambda: "x")


@pytest.mark.parametrize(
    ("hints", "problem"),
    [
        ({"cache_ttl": -0.001}, "cache_ttl must be 0 or more seconds, not -0.001"),
        ({"cache_scope": "all"}, "cache_scope must be 'private' or 'public', not 'all'"),
    ],
    ids=["negative", "unknown"],
)
def test_invalid_cache_hints_are_rejected(hints: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        MCPServer("s").register_resource("r://1", "one", content_provider="1", **hints)
    MCPServer("s").register_resource("r://1", "one", content_provider="1", cache_ttl=0)


async def test_closing_a_server_closes_its_streams_and_connections() -> None:
    server = MCPServer("s")
    key = "io.modelcontextprotocol/subscriptionId"
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
    async with wire_to(server) as wire:
        wire.send("subscriptions/listen", wanted, id="l")
        await wire.next()
        ending = asyncio.create_task(server.end_streams())
        assert (await wire.next())["result"]["_meta"] == {key: "l"}
        await ending
        await wire.ask("tools/list", {"_meta": META})  # The connection stays open after the errors.
        assert server.metrics()["connections"] == 1
        await server.close()
        assert server.metrics()["connections"] == 0


async def test_metrics_count_connections_and_malformed_messages_and_include_mounted_servers() -> (
    None
):
    server = MCPServer("s")
    assert server.metrics() == {
        "connections": 0,
        "malformed": 0,
        "workers": {
            "threads": 0,
            "busy": 0,
            "abandoned": 0,
            "abandoned_ever": 0,
            "abandoned_tasks": 0,
        },
        "rate_limit": {"allowed": 0, "limited": 0, "limited_by_tool": {}, "tokens": 100.0},
        "mounted": [],
    }
    async with wire_to(server) as one, wire_to(server) as other:
        one.left.write(b"no json\n")
        await one.next()
        await other.ask("tools/list", {"_meta": META})
        metrics = server.metrics()
        assert (metrics["connections"], metrics["malformed"]) == (2, 1)
    outer = MCPServer("outer", rate_limit_rate=0)
    outer.mount(server, "i")
    assert outer.metrics()["rate_limit"] is None
    assert outer.metrics()["mounted"] == [server.metrics()]


@pytest.mark.parametrize("how", ["attach", "running", "cold"])
async def test_server_tools_are_warmed_up_only_once(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MCPServer("s", warm_up=how != "cold")
    server.tool("t")(lambda: "x")
    warmed: list[str] = []
    entry = server.registry.get("t")
    assert entry is not None
    monkeypatch.setattr(entry, "warm_up", lambda: warmed.append("tool"))
    for _ in range(2):
        if how == "running":
            async with server.running():
                pass
        else:
            async with wire_to(server):
                pass
    assert warmed == ([] if how == "cold" else ["tool"])


def test_header_arguments_of_a_tool_are_returned() -> None:
    server = MCPServer("s")

    @server.tool()
    def here(region: Annotated[str, Header("Region")]) -> None: ...

    (header,) = server.tool_param_headers("here", ANONYMOUS)
    assert (header.header, header.path) == ("Region", ("region",))
    assert server.tool_param_headers("nothing", ANONYMOUS) == ()


@pytest.mark.parametrize("intercepted", [False, True])
async def test_requests_are_answered_inline_unless_there_are_interceptors(
    intercepted: bool,
) -> None:
    async def pass_on(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[pass_on] if intercepted else [])
    server.tool("t", inline=True)(lambda: "x")
    assert ("tools/list" in server.inline_methods) is not intercepted
    assert ("tools/call" in server.inline_methods) is not intercepted


async def test_run_stdio_serves_stdin_and_stdout_as_a_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = memory_pair()
    limits: list[int] = []

    @contextlib.asynccontextmanager
    async def open_stdio(*, limit: int) -> AsyncIterator[Any]:
        limits.append(limit)
        assert loaded == ["loaded"]  # modules are imported first, because they may print
        yield right

    monkeypatch.setattr("fairlead.transport.stdio.own_stdio.open_stdio", open_stdio)
    server, loaded = MCPServer("s", max_message_bytes=12_345), list[str]()
    monkeypatch.setattr(server, "load_configured", lambda: loaded.append("loaded"))
    running = asyncio.create_task(server.run_stdio())
    got: asyncio.Queue[Any] = asyncio.Queue()
    reading = asyncio.create_task(left.run(got.put_nowait))
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    left.write(json.dumps(message).encode() + b"\n")
    async with asyncio.timeout(5):
        assert (await got.get()).id == 1
        await left.close()
        await running
        await reading
    assert limits == [12_345]


@pytest.mark.covers("CON-07", "DEC-16")
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (
            "tools/call",
            {"name": "creat_note"},
            "Unknown tool: creat_note; did you mean 'create_note'? tools/list returns the "
            "available tools",
        ),
        (
            "prompts/get",
            {"name": "Summarise"},
            "Unknown prompt: Summarise; did you mean 'summarize'? prompts/list returns the "
            "available prompts",
        ),
        (
            "resources/read",
            {"uri": "note://index"},
            "Resource not found: note://index; did you mean 'notes://index'? resources/list "
            "or resources/templates/list returns the available resources",
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "summarise"},
                "argument": {"name": "a", "value": ""},
            },
            "Unknown prompt: summarise; did you mean 'summarize'? prompts/list returns the "
            "available prompts",
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "note://{id}"},
                "argument": {"name": "id", "value": ""},
            },
            "Unknown resource template: note://{id}; did you mean 'notes://{id}'? "
            "resources/templates/list returns the available resource templates",
        ),
    ],
)
async def test_the_error_for_an_unknown_name_has_the_closest_one_and_the_list(
    method: str, params: dict[str, Any], message: str
) -> None:
    async def pass_on(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    for interceptors in ([], [pass_on]):
        server = MCPServer("s", interceptors=interceptors)
        server.tool("create_note")(lambda: "")
        server.prompt("summarize")(lambda a="": a)
        server.resource("notes://index")(lambda: "")
        server.resource("notes://{id}", name="note")(lambda id: id)
        server.completion("summarize", "a")(lambda typed: [typed])
        answer = await ask(server, method, params)
        if interceptors:  # interceptors may hide entries, so no name is suggested
            assert "did you mean" not in answer["error"]["message"]
        else:
            assert answer["error"]["message"] == message
