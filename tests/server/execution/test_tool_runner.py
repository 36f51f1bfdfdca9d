"""Tools that are run: arguments, limits of size and time, and what ignores its end."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.limits import ABANDONED_CALLS
from tests.support.in_memory_client import META, ask
from tests.support.virtual_time import VirtualTime


async def call(server: MCPServer, name: str, **params: Any) -> dict[str, Any]:
    return await ask(server, "tools/call", {"name": name, "_meta": META, **params})


def problem(answer: dict[str, Any]) -> dict[str, Any]:
    """The error of a result."""
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
async def test_arguments_may_be_absent(name: str, params: dict[str, Any], text: str) -> None:
    answer = await call(server_with_tools(), name, **params)
    assert answer["result"]["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
async def test_arguments_that_are_wrong_are_refused_or_explained(name: str) -> None:
    server = server_with_tools()
    refused = await call(server, name, arguments=[1])
    assert refused["error"]["code"] == -32602
    assert refused["error"]["message"] == "arguments is an object"
    error = problem(await call(server, name, arguments={"text": [1]}))
    assert error["code"] == "VALIDATION_ERROR"
    assert error["tool_name"] == name


async def test_an_inline_tool_may_have_a_context() -> None:
    answer = await call(server_with_tools(), "inline_context", arguments={"text": "a"})
    assert answer["result"]["content"] == [{"type": "text", "text": "2026-07-28 a"}]


@pytest.mark.parametrize("name", ["inline", "waiting", "threaded"])
async def test_a_result_has_a_limited_size(name: str) -> None:
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
async def test_a_wrong_value_is_shown_if_it_is_short(length: int) -> None:
    server = MCPServer("s")

    @server.tool()
    def add(n: int) -> int:
        return n

    given = "x" * length
    [shown] = problem(await call(server, "add", arguments={"n": given}))["field_errors"]
    assert shown["value"] == (given if length == 198 else f'"{given}…')


@pytest.mark.parametrize(("seconds", "late"), [(0.5, False), (4.9, False), (5.1, True)])
async def test_a_tool_has_its_time(virtual_time: VirtualTime, seconds: float, late: bool) -> None:
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
async def test_a_tool_that_ignores_its_end_is_left_behind_after_a_second(
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


async def test_only_so_many_tools_are_left_behind(
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


async def test_a_cancellation_of_the_tool_s_own_is_a_failure() -> None:
    server = MCPServer("s")

    @server.tool()
    async def broken() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    assert problem(await call(server, "broken"))["message"].startswith("CancelledError")


async def test_the_rate_limit_is_explained_once(caplog: pytest.LogCaptureFixture) -> None:
    server = server_with_tools(rate_limit_rate=0.001, rate_limit_burst=1)
    assert "isError" not in (await call(server, "inline"))["result"]
    for name in ("inline", "waiting", "inline"):
        error = problem(await call(server, name))
        assert (error["code"], error["tool_name"]) == ("RATE_LIMITED", name)
        assert error["message"] == f"Too many calls: '{name}' was not run"
    assert caplog.text.count("refused by the rate limit") == 1
