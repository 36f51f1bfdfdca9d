"""Calls through a tool source without a framework: elicitations, late answers and errors."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPManager, MCPServer
from fairlead.agents import interrupt_agent
from fairlead.agents.open_call import PosedQuestion
from fairlead.agents.tool_source import LATE_ANSWER, ToolSource
from fairlead.client import accept, decline
from fairlead.limits import INTERRUPTED_CALLS
from tests.support.agent_servers import AgentServers

HANDSHAKE = MCPClientConfig(protocol_version="2025-11-25")
LIMIT = 20.0


class Interrupt(Exception):
    """The exception with which a framework interrupts a call."""


def interrupt(number: int, posed: PosedQuestion) -> Mapping[str, Any]:
    raise Interrupt(posed.question.message)


def trains(servers: AgentServers, **options: Any) -> Any:
    entry = servers.entry("trains")
    return MCPClient.connect_stdio([entry["command"], *entry["args"]], **options)


async def book(source: ToolSource, train: str, ask: Any = interrupt, key: str = "") -> str:
    return (await source.run("mcp_trains_book", {"train": train}, key or train, ask)).text


async def test_an_interrupted_call_is_cancelled_if_it_is_repeated_with_other_arguments(
    servers: AgentServers,
) -> None:
    async with trains(servers, on_elicit=interrupt_agent) as client:
        source = ToolSource(client)
        with pytest.raises(Interrupt, match="IC 5"):
            await book(source, "IC 5", key="same")
        with pytest.raises(Interrupt, match="IC 6"):
            await book(source, "IC 6", key="same")
    assert servers.notes == ["reserved IC 5", "reserved IC 6"]


async def test_a_handshake_call_that_waits_for_an_answer_does_not_block_other_calls(
    servers: AgentServers,
) -> None:
    async with trains(servers, on_elicit=interrupt_agent, config=HANDSHAKE) as client:
        source = ToolSource(client)
        with pytest.raises(Interrupt, match="IC 5"):
            await book(source, "IC 5")
        async with asyncio.timeout(LIMIT):
            result = await source.run("mcp_trains_weather", {"city": "x"}, "w", interrupt)
            assert result.text == '{"city":"x","degrees":21}'
            assert await book(source, "IC 5", lambda *_: decline()) == "no seats were booked"


async def test_cancelling_a_handshake_call_unblocks_the_next_call(servers: AgentServers) -> None:
    async with trains(servers, on_elicit=interrupt_agent, config=HANDSHAKE) as client:
        source = ToolSource(client)
        waiting = asyncio.create_task(source.run("mcp_trains_wait", {}, "w", interrupt))
        await servers.noted("waiting")
        booking = asyncio.create_task(book(source, "IC 5", lambda *_: decline()))
        waiting.cancel()
        await servers.noted("cancelled")
        async with asyncio.timeout(LIMIT):
            assert await booking == "no seats were booked"


@pytest.mark.parametrize("config", [None, HANDSHAKE], ids=["stateless", "handshake"])
async def test_the_oldest_interrupted_call_is_cancelled_at_the_limit(
    servers: AgentServers, monkeypatch: pytest.MonkeyPatch, config: MCPClientConfig | None
) -> None:
    monkeypatch.setattr(INTERRUPTED_CALLS, "value", 1)
    async with trains(servers, on_elicit=interrupt_agent, config=config) as client:
        source = ToolSource(client)
        for train in ("IC 5", "IC 6"):
            with pytest.raises(Interrupt, match=train):
                await book(source, train)
        assert await book(source, "IC 6", lambda *_: decline()) == "no seats were booked"
        with pytest.raises(Interrupt):
            await book(source, "IC 5")  # the cancelled call starts again
    assert servers.notes == ["reserved IC 5", "reserved IC 6", "reserved IC 5"]


async def test_an_elicitation_outside_of_an_agent_is_cancelled(servers: AgentServers) -> None:
    async with trains(servers, on_elicit=interrupt_agent) as client:
        result = await client.call_tool("book", {"train": "IC 5"})
    assert result["content"][0]["text"] == "no seats were booked"


async def test_calling_an_unknown_tool_returns_an_error_result_to_the_model(
    servers: AgentServers,
) -> None:
    async with MCPManager() as manager:
        source = ToolSource(manager)
        ran = await source.run("gone", {}, "k", interrupt)
        assert ran == await source.execute("gone", {})
    assert (ran.details.is_error, ran.text) == (True, "MCP error: unknown tool 'gone'")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langgraph", "langchain"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("openai", "agents", "openai-agents"),
    ],
)
def test_the_error_for_a_missing_framework_names_the_extra_to_install(
    module: str, package: str, extra: str
) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
try:
    import fairlead.agents.{module}
except ImportError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"run `pip install 'fairlead[{extra}]'`" in done.stdout, done.stderr


def test_the_agents_package_can_be_imported_without_a_framework() -> None:
    program = "import fairlead.agents, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & {"agents", "langchain_core", "langgraph", "pydantic_ai", "openai"} == set()


def clerk(free: asyncio.Event, waited: asyncio.Event) -> MCPServer:
    server = MCPServer("clerk")

    @server.tool()
    async def file(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("Which drawer?", str)
        except Exception:
            waited.set()
            await free.wait()
            return "filed without an answer"
        return f"filed: {answer.data}"

    @server.tool()
    async def count() -> int:
        return 1

    return server


def left(number: int, posed: PosedQuestion) -> Mapping[str, Any]:
    return accept({"value": "left"})


async def test_an_answer_that_arrives_after_its_question_timed_out_is_ignored_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    free, waited = asyncio.Event(), asyncio.Event()
    config = MCPClientConfig(protocol_version="2025-11-25", input_timeout=0.2)
    target = clerk(free, waited)
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(target, config, on_elicit=interrupt_agent) as client,
    ):
        source = ToolSource(client)
        with pytest.raises(Interrupt, match="drawer"):
            await source.run("mcp_clerk_file", {}, "k", interrupt)
        await waited.wait()
        late = asyncio.create_task(source.run("mcp_clerk_file", {}, "k", left))
        free.set()
        counted = await source.run("mcp_clerk_count", {}, "c", interrupt)
        assert (await late).text == f"filed without an answer\n{LATE_ANSWER}"
        assert counted.details.structured_content == {"result": 1}
    assert "'file' of server 'clerk': the answer to a question of the server arrived" in caplog.text


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_an_answer_that_arrives_after_the_call_has_ended_repeats_the_call_with_a_warning(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    free, waited = asyncio.Event(), asyncio.Event()
    free.set()
    config = MCPClientConfig(protocol_version=version, input_timeout=0.2)
    target = clerk(free, waited)
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(target, config, on_elicit=interrupt_agent) as client,
    ):
        source = ToolSource(client)
        with pytest.raises(Interrupt, match="drawer"):
            await source.run("mcp_clerk_file", {}, "k", interrupt)
        (call,) = source._interrupted.values()
        await call.result()
        assert (await source.run("mcp_clerk_file", {}, "k", left)).text == "filed: left"
    assert "'mcp_clerk_file': the call ended before the answer" in caplog.text


async def test_only_a_manager_or_a_connected_client_is_accepted_as_a_tool_source() -> None:
    attempt = MCPClient.connect(MCPServer("s"))
    for wrong in ("server.py", MCPServer("s"), {"a": {"command": "uvx"}}, attempt):
        with pytest.raises(
            TypeError, match="^expected an MCPManager or a connected MCPClient, not"
        ):
            ToolSource(wrong)  # type: ignore[arg-type]
