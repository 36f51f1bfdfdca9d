"""Agents of Pydantic AI with a scripted model and tools of real servers."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPManager
from fairlead.agents import interrupt_agent
from fairlead.client import accept, decline
from tests.support.agent_servers import PIXEL, AgentServers
from tests.support.optional_packages import import_or_skip

pydantic_ai = import_or_skip("pydantic_ai")
toolsets = import_or_skip("fairlead.agents.pydantic_ai", needs="pydantic_ai")
function_models = import_or_skip("pydantic_ai.models.function")
messages = import_or_skip("pydantic_ai.messages")

ERAS = pytest.mark.parametrize("version", ["auto", "2025-11-25"])


class Script:
    """A model that makes the calls of one step after the other, and then ends."""

    def __init__(self, *steps: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._steps = list(steps)
        self.offered: list[set[str]] = []  # tool names in each request
        self.returns: list[Any] = []  # tool results
        self.model = function_models.FunctionModel(self._respond)

    def _respond(self, history: Any, info: Any) -> Any:
        self.offered.append({tool.name for tool in info.function_tools})
        self.returns += [p for p in history[-1].parts if p.part_kind == "tool-return"]
        if not self._steps:
            return messages.ModelResponse([messages.TextPart("done")])
        calls = [messages.ToolCallPart(name, args) for name, args in self._steps.pop(0)]
        return messages.ModelResponse(calls)

    def agent(self, source: MCPManager | MCPClient, **options: Any) -> Any:
        toolset = toolsets.FairleadToolset(source)
        return pydantic_ai.Agent(self.model, toolsets=[toolset], **options)


async def test_a_server_that_has_exited_does_not_stop_an_agent(servers: AgentServers) -> None:
    script = Script([("mcp_paint_weather", {"city": "Rome"})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        run = await script.agent(manager).run("go")
    assert run.output == "done"
    assert {name.split("_")[1] for name in script.offered[0]} == {"paint", "fragile", "trains"}
    (part,) = script.returns
    assert part.content == '{"city":"Rome","degrees":21}'
    assert part.metadata["structured_content"] == {"city": "Rome", "degrees": 21}


async def test_a_server_that_dies_during_a_call_fails_only_that_call(servers: AgentServers) -> None:
    script = Script([("mcp_fragile_die", {}), ("mcp_paint_draw", {}), ("mcp_paint_fail", {})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        await script.agent(manager).run("go")
    died, drawn, failed = script.returns
    assert died.outcome == "failed"
    assert "MCP error" in died.content
    (picture,) = drawn.content
    assert (picture.data, picture.media_type) == (base64.b64decode(PIXEL), "image/png")
    assert (failed.outcome, failed.content) == ("failed", "MCP error: ValueError: out of paint")


async def test_a_server_that_connects_late_adds_its_tools_to_the_next_step(
    servers: AgentServers,
) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        script = Script([("connect", {})], [("mcp_trains_weather", {"city": "Rome"})])
        agent = script.agent(manager)

        @agent.tool_plain
        async def connect() -> str:
            await manager.connect_servers({"trains": servers.entry("trains")})
            return "connected"

        await agent.run("go")
    assert "mcp_trains_weather" not in script.offered[0]
    assert "mcp_trains_weather" in script.offered[1]
    assert [part.outcome for part in script.returns] == ["success", "success"]


async def test_cancelling_a_run_cancels_the_request_at_the_server(servers: AgentServers) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        run = asyncio.create_task(Script([("mcp_paint_wait", {})]).agent(manager).run("go"))
        await servers.noted("waiting")
        run.cancel()
        await servers.noted("cancelled")
        with pytest.raises(asyncio.CancelledError):
            await run


async def test_a_call_that_the_server_cancels_does_not_cancel_the_run(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_quit", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        await script.agent(manager).run("go")
    [ended] = script.returns
    assert (ended.outcome, ended.content) == ("failed", "MCP error: CancelledError: ")


@ERAS
async def test_elicitations_of_a_server_defer_the_call_until_they_are_answered(
    servers: AgentServers, version: str
) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"}), ("mcp_paint_weather", {"city": "x"})])
    config = MCPClientConfig(protocol_version=version)
    async with MCPManager(on_elicit=interrupt_agent, config=config) as manager:
        await manager.connect_servers(servers.entries)
        agent = script.agent(manager, output_type=[str, pydantic_ai.DeferredToolRequests])
        run = await agent.run("go")
        asked = []
        for content in ({"value": 3}, {"value": True}):
            (call,) = run.output.approvals
            question = run.output.metadata[call.tool_call_id]["mcp_elicitation"]
            asked.append((question["server"], question["tool"], question["message"]))
            answers = toolsets.answer_questions(run.output, {call.tool_call_id: accept(content)})
            history = run.all_messages()
            run = await agent.run(message_history=history, deferred_tool_results=answers)
    assert run.output == "done"
    assert asked == [
        ("trains", "book", "How many seats on IC 5?"),
        ("trains", "book", "Book 3 seats?"),
    ]
    assert "3 seats on IC 5" in [part.content for part in script.returns]
    # The call stayed open, so the server executed it once.
    assert servers.notes == ["reserved IC 5"]


async def test_an_answer_after_a_restart_repeats_the_call(servers: AgentServers) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"})])
    history = requests = None
    output = [str, pydantic_ai.DeferredToolRequests]
    for answer in (accept({"value": 3}), accept({"value": True}), None):
        async with MCPManager(on_elicit=interrupt_agent) as manager:
            await manager.connect_servers({"trains": servers.entry("trains")})
            agent = script.agent(manager, output_type=output)
            if requests is None:
                run = await agent.run("go")
            else:
                run = await agent.run(message_history=history, deferred_tool_results=requests)
        history = run.all_messages()
        if answer is not None:
            (call,) = run.output.approvals
            requests = toolsets.answer_questions(run.output, {call.tool_call_id: answer})
    assert run.output == "done"
    assert script.returns[-1].content == "3 seats on IC 5"


async def test_the_callback_of_the_manager_answers_elicitations(servers: AgentServers) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"})])
    async with MCPManager(on_elicit=lambda _: decline()) as manager:
        await manager.connect_servers({"trains": servers.entry("trains")})
        await script.agent(manager).run("go")
    assert script.returns[-1].content == "no seats were booked"


async def test_an_agent_keeps_the_tools_of_a_client_whose_server_has_died(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_die", {})], [("mcp_paint_draw", {})])
    entry = servers.entry("paint")
    async with MCPClient.connect_stdio([entry["command"], *entry["args"]]) as client:
        await script.agent(client).run("go")
    assert script.offered[0] == script.offered[-1]
    assert [part.outcome for part in script.returns] == ["failed", "failed"]
