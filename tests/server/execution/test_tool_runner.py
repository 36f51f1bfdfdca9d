"""Tests of tool execution: arguments, size and time limits, and ignored cancellations."""

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest

from fairlead import Context, MCPServer, MCPServerConfig, MCPToolError
from fairlead.limits import ABANDONED_CALLS
from fairlead.server.execution.tool_runner import ToolRunner
from fairlead.server.features.tool_entry import tool_from_function
from tests.support.in_memory_client import META, ask
from tests.support.raw_server_client import wire_to
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


async def call(server: MCPServer, name: str, **params: Any) -> dict[str, Any]:
    return await ask(server, "tools/call", {"name": name, "_meta": META, **params})


def problem(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the decoded error of an error result."""
    result = answer["result"]
    assert result["isError"] is True
    return json.loads(result["content"][0]["text"])  # type: ignore[no-any-return]


def server_with_tools(**settings: Any) -> MCPServer:
    server = MCPServer("s", **settings)

    @server.tool(inline=True)
    def inline(text: str = "none") -> str:
        return text

    @server.tool(inline=True)
    def inline_context(ctx: Context, text: str = "none") -> str:
        return f"{ctx.protocol_version} {text}"

    @server.tool()
    async def waiting(text: str = "none") -> str:
        await asyncio.sleep(0)
        return text

    @server.tool()
    def threaded(text: str = "none") -> str:
        return text

    return server


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
@pytest.mark.parametrize(
    ("params", "text"),
    [({}, "none"), ({"arguments": None}, "none"), ({"arguments": {"text": "a"}}, "a")],
    ids=["absent", "null", "given"],
)
async def test_a_tool_without_required_parameters_may_be_called_without_arguments(
    name: str, params: dict[str, Any], text: str
) -> None:
    answer = await call(server_with_tools(), name, **params)
    assert answer["result"]["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
async def test_arguments_must_be_an_object_that_matches_the_schema(
    name: str,
) -> None:
    server = server_with_tools()
    refused = await call(server, name, arguments=[1])
    assert refused["error"]["code"] == -32602
    assert refused["error"]["message"] == "params.arguments must be an object"
    error = problem(await call(server, name, arguments={"text": [1]}))
    assert error["code"] == "VALIDATION_ERROR"
    assert error["tool_name"] == name


async def test_an_inline_tool_may_have_a_context_parameter() -> None:
    answer = await call(server_with_tools(), "inline_context", arguments={"text": "a"})
    assert answer["result"]["content"] == [{"type": "text", "text": "2026-07-28 a"}]


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
async def test_the_size_of_a_tool_result_is_limited(name: str) -> None:
    whole = await call(server_with_tools(), name, arguments={"text": "x" * 1000})
    size = len(json.dumps(whole["result"], separators=(",", ":")))
    fits = server_with_tools(max_message_bytes=size)
    assert await call(fits, name, arguments={"text": "x" * 1000}) == whole
    small = server_with_tools(max_message_bytes=size - 1)
    error = problem(await call(small, name, arguments={"text": "x" * 1000}))
    assert error["message"] == (
        f"The result takes {size} bytes, over max_message_bytes ({size - 1})"
    )


@pytest.mark.parametrize("length", [198, 199])
async def test_long_invalid_arguments_are_shortened_in_the_error(length: int) -> None:
    server = MCPServer("s")

    @server.tool()
    def add(n: int) -> int:
        return n

    given = "x" * length
    [shown] = problem(await call(server, "add", arguments={"n": given}))["field_errors"]
    assert shown["value"] == (given if length == 198 else f'"{given}…')


@pytest.mark.parametrize(("seconds", "late"), [(0.5, False), (4.9, False), (5.1, True)])
async def test_a_tool_that_exceeds_its_timeout_returns_an_error(
    virtual_time: VirtualTime, seconds: float, late: bool
) -> None:
    server = MCPServer("s", per_tool_timeouts={"slow": 5})

    @server.tool()
    async def slow() -> str:
        await asyncio.sleep(seconds)
        return "done"

    begun = virtual_time.now
    answer = await call(server, "slow")
    assert virtual_time.now - begun == pytest.approx(min(seconds, 5))
    if late:
        assert problem(answer)["message"] == "Tool 'slow' timed out after 5s"
    else:
        assert answer["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize(
    ("cleanup", "expected", "left"), [(0.5, 5.5, 0), (0.9, 5.9, 0), (60, 6.0, 1)]
)
async def test_a_tool_that_ignores_its_timeout_is_detached_after_a_second(
    virtual_time: VirtualTime, cleanup: float, expected: float, left: int
) -> None:
    server, ended = MCPServer("s", per_tool_timeouts={"slow": 5}), asyncio.Event()

    @server.tool()
    async def slow() -> str:
        begun = virtual_time.now
        while virtual_time.now < begun + 5 + cleanup:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(begun + 5 + cleanup - virtual_time.now)
        ended.set()
        return "too late"

    begun = virtual_time.now
    error = problem(await call(server, "slow"))
    assert (error["code"], error["message"]) == ("TIMEOUT", "Tool 'slow' timed out after 5s")
    assert virtual_time.now - begun == pytest.approx(expected)
    runner = server._runner
    assert runner.metrics["abandoned_tasks"] == left
    assert (runner._expired, runner._stubborn) == (set(), set())
    await ended.wait()
    await asyncio.sleep(0)
    assert runner.metrics["abandoned_tasks"] == 0


async def test_the_number_of_detached_tool_calls_is_limited(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.server.execution.tool_runner.MOST_LEFT", 1)
    server = MCPServer("s", per_tool_timeouts={"slow": 5})

    @server.tool()
    async def slow() -> str:
        begun = virtual_time.now
        while virtual_time.now < begun + 60:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(begun + 60 - virtual_time.now)
        return "too late"

    hits, begun = ABANDONED_CALLS.hits, virtual_time.now
    problem(await call(server, "slow"))
    assert virtual_time.now - begun == pytest.approx(6)
    assert ABANDONED_CALLS.hits == hits
    problem(await call(server, "slow"))
    assert virtual_time.now - begun == pytest.approx(66)
    assert ABANDONED_CALLS.hits == hits + 1
    await asyncio.sleep(60)


async def test_a_cancelled_error_raised_by_a_tool_becomes_an_error_result() -> None:
    server = MCPServer("s")

    @server.tool()
    async def broken() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    assert problem(await call(server, "broken"))["message"].startswith("CancelledError")


async def test_repeated_refusals_by_the_rate_limit_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = server_with_tools(rate_limit_rate=0.001, rate_limit_burst=1)
    assert "isError" not in (await call(server, "inline"))["result"]
    for name in ("inline", "waiting", "inline"):
        error = problem(await call(server, name))
        assert (error["code"], error["tool_name"]) == ("RATE_LIMITED", name)
        assert error["message"] == f"Too many calls: '{name}' was not run"
    assert caplog.text.count("refused by the rate limit") == 1


@pytest.mark.parametrize("meta", [META, None], ids=["stateless", "handshake"])
async def test_an_inline_tool_runs_without_a_task_and_only_once(meta: Any) -> None:
    server, calls = MCPServer("s"), list[int]()
    assert "tools/call" not in server.inline_methods

    @server.tool()
    def threaded() -> None: ...

    assert "tools/call" not in server.inline_methods

    @server.tool(inline=True)
    def divide(n: int) -> int:
        calls.append(n)
        return 6 // n

    assert "tools/call" in server.inline_methods
    own = {} if meta is None else {"_meta": meta}
    async with wire_to(server) as wire:
        if meta is None:
            await wire.greet()

        async def ask(n: int) -> dict[str, Any]:
            params = {"name": "divide", "arguments": {"n": n}, **own}
            return (await wire.ask("tools/call", params))["result"]  # type: ignore[no-any-return]

        good, bad = await ask(2), await ask(0)
    assert calls == [2, 0]
    assert good["content"] == [{"type": "text", "text": "3"}]
    assert (good.get("resultType"), bad.get("resultType")) == (
        ("complete", "complete") if meta else (None, None)
    )
    error = json.loads(bad["content"][0]["text"])
    assert error["message"] == "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
@pytest.mark.parametrize("kind", ["own", "chosen", "invalid"])
async def test_the_log_level_of_a_tool_failure_depends_on_its_kind(
    name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = MCPServer("s")

    def fail(n: int) -> None:
        if kind == "chosen":
            raise MCPToolError("not for you", code="ACCESS_DENIED", correlation_id="own")
        raise KeyError("lost")

    async def waiting(n: int) -> None:
        await asyncio.sleep(0)
        fail(n)

    if name == "waiting":
        server.tool("fails")(waiting)
    else:
        server.tool("fails", inline=name == "inline")(fail)
    arguments = {"n": "many" if kind == "invalid" else 1}
    error = problem(await call(server, "fails", arguments=arguments))
    (record,) = [one for one in caplog.records if one.name == "fairlead.server"]
    code, level = {
        "own": ("EXECUTION_ERROR", logging.ERROR),
        "chosen": ("ACCESS_DENIED", logging.WARNING),
        "invalid": ("VALIDATION_ERROR", logging.WARNING),
    }[kind]
    assert (error["code"], error["tool_name"], record.levelno) == (code, "fails", level)
    assert (record.exc_info is not None) is (kind == "own")
    assert record.correlation_id == error["correlation_id"]  # type: ignore[attr-defined]
    assert (error["correlation_id"] == "own") is (kind == "chosen")


@pytest.mark.parametrize("late", [False, True])
async def test_an_awaitable_returned_by_a_plain_function_is_awaited(late: bool) -> None:
    async def later() -> str:
        await (asyncio.Event().wait() if late else asyncio.sleep(0))
        return "done"

    def wrapper() -> Any:
        return later()

    entry = tool_from_function(wrapper, name="t", timeout=0.05 if late else 30)
    given = exchange(params={"name": "t"})
    result = json.loads(await ToolRunner(MCPServerConfig()).run(entry, given, b"}"))
    if late:
        assert problem({"result": result})["message"] == "Tool 't' timed out after 0.05s"
    else:
        assert result == {"content": [{"type": "text", "text": "done"}]}


@pytest.mark.parametrize("limit", [0, None], ids=["no limit", "server limit"])
async def test_a_tool_with_a_timeout_of_zero_has_no_time_limit(
    virtual_time: VirtualTime, limit: float | None
) -> None:
    server = MCPServer("s", default_tool_timeout=5)

    @server.tool(timeout=limit)
    async def slow(ctx: Context) -> str:
        await asyncio.sleep(50)
        return "done"

    answer = await call(server, "slow")
    if limit is None:
        assert problem(answer)["message"] == "Tool 'slow' timed out after 5s"
    else:
        assert answer["result"]["content"][0]["text"] == "done"


async def test_the_failure_of_a_detached_tool_is_logged(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fairlead.server")
    server, ended = MCPServer("s", default_tool_timeout=5), asyncio.Event()

    @server.tool()
    async def slow() -> str:
        end = virtual_time.now + 20
        while virtual_time.now < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(end - virtual_time.now)
        ended.set()
        raise KeyError("late")

    assert problem(await call(server, "slow"))["code"] == "TIMEOUT"
    await ended.wait()
    await asyncio.sleep(0)
    assert server.metrics()["workers"]["abandoned_tasks"] == 0
    (failed,) = [one for one in caplog.records if "tool failed after" in one.getMessage()]
    assert failed.exc_info


def test_tools_and_their_timeouts_work_in_successive_event_loops() -> None:
    server = server_with_tools()

    @server.tool(timeout=0.02)
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def both() -> None:
        async with asyncio.timeout(5):
            answer = await call(server, "waiting", arguments={"text": "a"})
            assert answer["result"]["content"][0]["text"] == "a"
            assert problem(await call(server, "stuck"))["code"] == "TIMEOUT"

    for _ in range(2):
        asyncio.run(both())


async def test_a_tool_runner_works_without_a_server() -> None:
    runner = ToolRunner(MCPServerConfig(max_message_bytes=0, log_level="ERROR", input_timeout=3))
    context = runner.context(exchange())
    assert (context.state, context.correlation_id) == (None, context.correlation_id)
    assert runner.ring is runner.ring
    assert runner.metrics == {
        "threads": 0,
        "busy": 0,
        "abandoned": 0,
        "abandoned_ever": 0,
        "abandoned_tasks": 0,
    }
    entry = tool_from_function(lambda: "x" * 100, name="t", inline=True)
    assert len(runner.run_inline(entry, exchange(params={"name": "t"}), b"}")) > 100


@pytest.mark.parametrize("wants_context", [False, True], ids=["plain", "context"])
async def test_the_timeout_is_removed_when_the_tool_call_ends(
    virtual_time: VirtualTime, wants_context: bool
) -> None:
    runner, contexts = ToolRunner(MCPServerConfig(default_tool_timeout=5)), list[Context]()

    async def quick() -> str:
        await asyncio.sleep(1)
        return "done"

    async def quick_context(ctx: Context) -> str:
        contexts.append(ctx)
        return await quick()

    entry = tool_from_function(quick_context if wants_context else quick)
    result = json.loads(await runner.run(entry, exchange(params={}), b"}"))
    assert result["content"][0]["text"] == "done"
    for context in contexts:  # as if a task that the tool left running had requested input
        context.clock.pause()
        context.clock.resume()
    await asyncio.sleep(60)  # the expired timeout must not cancel this task


@pytest.mark.parametrize("wants_context", [False, True], ids=["plain", "context"])
async def test_a_cancellation_by_the_caller_takes_precedence_over_the_timeout(
    virtual_time: VirtualTime, wants_context: bool
) -> None:
    runner = ToolRunner(MCPServerConfig(default_tool_timeout=5))

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)

    async def cleans_up_context(ctx: Context) -> None:
        await cleans_up()

    entry = tool_from_function(cleans_up_context if wants_context else cleans_up)
    task = asyncio.create_task(runner.run(entry, exchange(params={}), b"}"))
    await asyncio.sleep(5.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_input_required_result_contains_the_server_info() -> None:
    server = MCPServer("s")

    @server.tool()
    async def ask_for_name(ctx: Context) -> str:
        return str((await ctx.elicit("Who?", str)).data)

    asks = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    params = {"name": "ask_for_name", "_meta": {**META, **asks}}
    result = (await ask(server, "tools/call", params))["result"]
    assert result["resultType"] == "input_required"
    assert result["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}
    }


async def test_a_missing_capability_causes_an_error_or_an_error_result_depending_on_the_era() -> (
    None
):
    server = MCPServer("s")

    @server.tool()
    async def ask_for_name(ctx: Context) -> str:
        return str((await ctx.elicit("Who?", str)).data)

    refused = (await call(server, "ask_for_name"))["error"]
    assert (refused["code"], refused["data"]) == (
        -32021,
        {"requiredCapabilities": {"elicitation": {}}},
    )
    error = problem(await ask(server, "tools/call", {"name": "ask_for_name"}))
    assert error["code"] == "DEPENDENCY_MISSING"


async def test_an_inline_tool_with_a_context_runs_without_a_task() -> None:
    server = server_with_tools(max_message_bytes=300)
    async with wire_to(server) as wire:
        for size, fits in ((10, True), (1000, False)):
            params = {"name": "inline_context", "arguments": {"text": "x" * size}, "_meta": META}
            result = (await wire.ask("tools/call", params))["result"]
            text = result["content"][0]["text"]
            assert (text == f"2026-07-28 {'x' * size}") is fits
            assert ("over max_message_bytes (300)" in text) is not fits


def test_the_result_size_of_an_inline_tool_is_limited() -> None:
    entry = tool_from_function(lambda: "x", name="t", inline=True)
    size = len(b'{"content":[{"type":"text","text":"x"}]}')
    for limit, fits in ((size, True), (size - 1, False)):
        runner = ToolRunner(MCPServerConfig(max_message_bytes=limit))
        result = json.loads(runner.run_inline(entry, exchange(params={}), b"}"))
        assert ("isError" not in result) is fits


async def test_a_tool_that_catches_the_end_of_its_input_round_still_requests_input() -> None:
    server = MCPServer("s")

    @server.tool()
    async def stubborn(ctx: Context) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await ctx.elicit("Who?", str)
        return "without an answer"

    asks = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    params = {"name": "stubborn", "_meta": {**META, **asks}}
    result = (await ask(server, "tools/call", params))["result"]
    assert result["resultType"] == "input_required"


@pytest.mark.parametrize("kind", ["inline", "waiting", "threaded"])
async def test_text_returned_by_a_tool_with_an_output_schema_is_structured(kind: str) -> None:
    server = MCPServer("s")

    def plain() -> str:
        return "text"

    async def waiting() -> str:
        return "text"

    function = waiting if kind == "waiting" else plain
    server.tool("t", output_schema=True, inline=kind == "inline")(function)
    result = (await call(server, "t"))["result"]
    assert result["structuredContent"] == {"result": "text"}
