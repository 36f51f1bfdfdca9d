"""Invalid input from authors, models, users and clients."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from fairlead import Context, MCPServer, mcp_tool
from fairlead.client import MCPClient, MCPClientConfig
from fairlead.server.context.elicitation_forms import ElicitationForm
from fairlead.server.features.tool_modules import load_modules
from tests.support.raw_server_client import META, wire_to

LIMIT = 10.0


async def call(server: MCPServer, name: str, arguments: Any = None) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await server.handle_request(message)
    assert answer is not None
    return answer["result"]  # type: ignore[no-any-return]


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    return json.loads(result["content"][0]["text"])  # type: ignore[no-any-return]


# Author errors, which are detected at registration


def no_json(ok: int, socket: logging.Handler) -> None: ...
def no_json_inside(ok: int, sockets: list[dict[str, logging.Handler]]) -> None: ...
def by_position(ok: int, place: int, /) -> None: ...
def unresolved(ok: int, thing: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def takes_function(ok: int, then: Callable[[], None]) -> None: ...
def wrong_limit(ok: int, when: Annotated[int, msgspec.Meta(description="d"), ...]) -> None: ...


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("function", "parameter", "way_out"),
    [
        (no_json, "socket", "Annotate it with a type that can be represented"),
        (no_json_inside, "sockets", "Annotate it with a type that can be represented"),
        (takes_function, "then", "Annotate it with a type that can be represented"),
        (by_position, "ok", "remove the '/'"),
        (unresolved, "thing", "Import or define it before the function"),
    ],
)
def test_a_signature_without_a_json_schema_is_rejected_with_a_remedy(
    function: Callable[..., Any], parameter: str, way_out: str
) -> None:
    server = MCPServer("s")
    with pytest.raises(TypeError) as refused:
        server.tool()(function)
    said = str(refused.value)
    assert f".{function.__name__}: " in said
    assert f"parameter {parameter!r}" in said
    assert way_out in said
    assert server.tool_count == 0


def test_two_tools_with_the_same_name_are_rejected_with_a_remedy() -> None:
    server = MCPServer("s")
    server.tool("same")(lambda: "first")
    for again in (
        lambda: server.tool("same")(lambda: "second"),
        lambda: server.register_tool("same", {"type": "object"}, lambda: "third"),
    ):
        with pytest.raises(ValueError, match="a tool 'same' is already registered: choose another"):
            again()
    assert server.tool_count == 1


@pytest.mark.covers("SRV-03")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "inputSchema must have the type 'object', not 'objekt'"),
        ({"type": "array"}, "inputSchema must have the type 'object', not 'array'"),
        ({"type": "object", "properties": 5}, r"5 is not of type \"object\" \(at properties\)"),
        ({"properties": {"a": {"type": "strin"}}}, "at properties.a.type"),
        ({"properties": {"a": {"pattern": "("}}}, "at properties.a.pattern"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}}, "/\\$defs/a"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "not followed"),
        ({"required": "a"}, "at required"),
        ({"inputSchema": {"minProperties": -1}}, "at minProperties"),
        ({"inputSchema": True}, "inputSchema must be a dict, not True"),
        ({"inputSchema": {}, "outputSchema": {"type": "strin"}}, "invalid outputSchema"),
        ({"inputSchema": {}, "annotations": 5}, "invalid tool object"),
    ],
)
def test_an_invalid_schema_is_rejected_at_registration(schema: Any, said: str) -> None:
    server = MCPServer("s")
    with pytest.raises(ValueError, match=said) as refused:
        server.register_tool("broken", schema, lambda: "x")
    assert str(refused.value).startswith("broken: ")
    assert server.tool_count == 0


@pytest.mark.covers("SRV-03")
async def test_a_schema_without_a_type_is_published_with_the_type_object() -> None:
    server, schema = MCPServer("s"), {"properties": {"a": {"type": "integer"}}}
    server.register_tool("t", schema, lambda a: a)
    assert schema == {"properties": {"a": {"type": "integer"}}}
    (tool,) = server.registry.list_tools()
    assert json.loads(bytes(tool.input_schema)) == {"type": "object", **schema}


@pytest.mark.covers("SRV-52")
def test_a_decorated_function_with_an_invalid_schema_is_skipped_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import types

    module = types.ModuleType("marked_tools")
    module.bad = mcp_tool(schema={"required": 5})(lambda: "x")  # type: ignore[attr-defined]
    module.good = mcp_tool("good")(lambda: "x")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "marked_tools", module)
    server = MCPServer("s")
    load_modules(server.registry, ["marked_tools"])
    (skipped,) = caplog.messages
    assert "invalid inputSchema" in skipped
    assert [tool.name for tool in server.registry.list_tools()] == ["good"]


# Errors of models


@dataclass
class Point:
    x: float
    y: float = 0.0


@pytest.mark.covers("SRV-22", "SRV-30")
@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity", "INF", "n\\u0061n", "1e999"])
async def test_strings_that_are_not_json_numbers_are_rejected_as_numbers(text: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def numbers(
        number: float = 0.0,
        several: list[float] = [],  # noqa: B006
        point: Point | None = None,
        named: str = "",
    ) -> str:
        return repr((number, several, point, named))

    written = f'"{text}"'
    for arguments, field in (
        (f'{{"number":{written}}}', "number"),
        (f'{{"several":[1,{written}]}}', "several.1"),
        (f'{{"point":{{"x":{written}}}}}', "point"),
    ):
        error = error_of(await call(server, "numbers", msgspec.Raw(arguments.encode())))
        assert error["code"] == "VALIDATION_ERROR"
        assert [e["field"].partition(".x")[0] for e in error["field_errors"]] == [field]
    result = await call(server, "numbers", {"named": "nan", "number": "1.5"})
    assert result["content"][0]["text"] == "(1.5, [], None, 'nan')"


async def test_prompt_arguments_that_are_not_json_numbers_are_rejected() -> None:
    server = MCPServer("s")

    @server.prompt()
    def scaled(factor: float) -> str:
        return str(factor)

    async with wire_to(server) as wire:
        for text, fits in (("1.5", True), ("nan", False), ("-inf", False)):
            given = {"name": "scaled", "arguments": {"factor": text}, "_meta": META}
            assert ("result" in await wire.ask("prompts/get", given)) is fits


# Behaviour of tools


@pytest.mark.covers("SRV-29")
async def test_a_result_that_does_not_match_its_schema_is_an_error_with_the_location() -> None:
    server = MCPServer("s")

    @server.tool()
    async def point() -> Point:
        return {"x": "far"}  # type: ignore[return-value]

    server.register_tool(
        "given",
        {"inputSchema": {}, "outputSchema": {"type": "object", "required": ["a"]}},
        lambda: {"b": 1},
    )
    for name, said in (("point", "x"), ("given", '"a" is a required property')):
        error = error_of(await call(server, name))
        assert error["code"] == "EXECUTION_ERROR"
        assert "does not match the output schema" in error["message"]
        assert said in error["message"]


@pytest.mark.covers("SRV-25")
@pytest.mark.parametrize("how", ["async", "sync", "inline"])
@pytest.mark.parametrize(
    "exc",
    [ValueError("v"), SystemExit(3), asyncio.CancelledError(), StopIteration(), RecursionError()],
)
async def test_a_call_is_answered_if_the_tool_raises_any_exception(
    how: str, exc: BaseException
) -> None:
    if how == "async" and isinstance(exc, StopIteration):
        return  # Python converts StopIteration in a coroutine to a RuntimeError
    if how == "inline" and isinstance(exc, asyncio.CancelledError):
        return  # looks like a cancellation by the event loop
    server = MCPServer("s")

    async def later() -> str:
        raise exc

    def now() -> str:
        raise exc

    server.tool("t", inline=how == "inline")(later if how == "async" else now)
    async with wire_to(server) as wire:
        answer = await wire.ask("tools/call", {"name": "t", "_meta": META})
        error = error_of(answer["result"])
        assert error["code"] == "EXECUTION_ERROR"
        assert type(exc).__name__ in error["message"]


async def test_a_call_is_answered_if_the_tool_awaits_a_cancelled_future() -> None:
    server = MCPServer("s")

    @server.tool()
    async def waits() -> str:
        other = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(other.cancel)
        await other
        return "never"

    async with wire_to(server) as wire:
        error = error_of((await wire.ask("tools/call", {"name": "waits", "_meta": META}))["result"])
        assert error["message"].startswith("CancelledError")


@pytest.mark.covers("SRV-24", "SRV-27")
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_call_times_out_even_if_the_tool_ignores_its_cancellation(how: str) -> None:
    server = MCPServer("s", default_tool_timeout=0.05)
    let_go, thread_let_go = asyncio.Event(), threading.Event()
    ended: list[str] = []

    @server.tool()
    async def stubborn() -> str:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        ended.append("async")
        return "too late"

    @server.tool()
    def stuck() -> str:
        assert thread_let_go.wait(LIMIT)
        ended.append("sync")
        return "too late"

    async with wire_to(server) as wire:
        name = "stubborn" if how == "async" else "stuck"
        error = error_of((await wire.ask("tools/call", {"name": name, "_meta": META}))["result"])
        assert (error["code"], ended) == ("TIMEOUT", [])
        workers = server.metrics()["workers"]
        assert workers["abandoned_tasks" if how == "async" else "abandoned"] == 1
        let_go.set()
        thread_let_go.set()
        async with asyncio.timeout(LIMIT):
            while not ended or any(
                server.metrics()["workers"][name] for name in ("abandoned_tasks", "abandoned")
            ):
                await asyncio.to_thread(lambda: None)


@pytest.mark.covers("SRV-24")
async def test_a_tool_may_clean_up_after_its_timeout() -> None:
    server = MCPServer("s", default_tool_timeout=0.02)
    cleaned: list[bool] = []

    @server.tool()
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(lambda: None)
            cleaned.append(True)
        return ""

    async with wire_to(server) as wire:
        error = error_of((await wire.ask("tools/call", {"name": "tidy", "_meta": META}))["result"])
        assert (error["code"], cleaned) == ("TIMEOUT", [True])


@pytest.mark.parametrize("inline", [False, True])
async def test_a_result_of_100_megabytes_is_an_error_and_not_sent(inline: bool) -> None:
    server = MCPServer("s")
    server.tool("huge", inline=inline)(lambda: "x" * 100_000_000)
    server.tool("big", inline=inline)(lambda: "x" * 10_000_000)
    async with wire_to(server) as wire:
        result = (await wire.ask("tools/call", {"name": "huge", "_meta": META}))["result"]
        assert "over max_message_bytes (16777216)" in error_of(result)["message"]
        result = (await wire.ask("tools/call", {"name": "big", "_meta": META}))["result"]
        assert len(result["content"][0]["text"]) == 10_000_000


def test_output_printed_by_a_tool_does_not_affect_the_protocol() -> None:
    program = """
import os, sys
from fairlead import MCPServer
server = MCPServer("s")

@server.tool()
def noisy(how: str) -> str:
    print("{not json")
    sys.stdout.write("no end of line")
    sys.stdout.flush()
    os.write(1, b"to the descriptor\\n")
    os.system("echo from a child")
    return "done"

server.run()
"""
    params = {"name": "noisy", "arguments": {"how": "loud"}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(message).encode() + b"\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["result"]["content"][0]["text"] == "done"
    for words in (b"{not json", b"no end of line", b"to the descriptor", b"from a child"):
        assert words in done.stderr


# Responses from users and their clients


@dataclass
class Person:
    name: str
    age: int
    height: float = 1.7


@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        {"name": "Ada", "age": "many"},
        {"name": 5, "age": 36},
        {"name": "Ada"},
        {"name": "Ada", "age": 36, "height": "nan"},
        {"name": "Ada", "age": 36, "height": "inf"},
        {"name": "Ada", "age": [36]},
    ],
)
async def test_an_elicited_value_of_a_wrong_type_does_not_reach_the_tool(
    version: str, typed: bool, content: dict[str, Any]
) -> None:
    server, got = MCPServer("s"), []

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(
            "Please enter your name.", Person if typed else ElicitationForm(Person).schema
        )
        got.append(answer)
        return "thanks"

    config = MCPClientConfig(protocol_version=version)
    asking = MCPClient.connect_inprocess(
        server, config, on_elicit=lambda question: {"action": "accept", "content": content}
    )
    async with asking as client:
        from fairlead import RpcError

        with pytest.raises(RpcError, match="does not match the requested schema") as refused:
            await client.call_tool("ask")
        assert refused.value.code == -32602
    assert got == []


@pytest.mark.parametrize("typed", [True, False])
def test_elicited_numbers_in_strings_are_converted(typed: bool) -> None:
    form = ElicitationForm(Person if typed else ElicitationForm(Person).schema)
    answer = form.read(
        msgspec.Raw(b'{"action":"accept","content":{"name":"Ada","age":"36","height":"1.6"}}')
    )
    expected = {"name": "Ada", "age": 36, "height": 1.6}
    assert answer.data == (Person(**expected) if typed else expected)  # type: ignore[arg-type]


def test_a_form_with_an_invalid_schema_is_rejected() -> None:
    with pytest.raises(TypeError, match="invalid JSON Schema of a form"):
        ElicitationForm({"type": "objekt"})
