"""Agents of the OpenAI Agents SDK with a scripted model and tools of real servers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead import MCPClient, MCPManager
from fairlead.client import Question, accept
from tests.support.agent_servers import PIXEL, AgentServers
from tests.support.optional_packages import import_or_skip

sdk = import_or_skip("agents")
models = import_or_skip("agents.testing")
FairleadServer = import_or_skip("fairlead.agents.openai", needs="agents").FairleadServer

UNTRACED = sdk.RunConfig(tracing_disabled=True)


class Script:
    """An agent whose model makes the calls of one step after the other, and then ends."""

    def __init__(self, *steps: Sequence[tuple[str, dict[str, Any]]]) -> None:
        calls = [[models.function_call(*call, call_id=call[0]) for call in step] for step in steps]
        self.model = models.ScriptedModel([*calls, [models.assistant_message("done")]])

    def agent(self, source: MCPManager | MCPClient, **options: Any) -> Any:
        tools = FairleadServer(source, **options)
        return sdk.Agent("assistant", model=self.model, mcp_servers=[tools])

    @property
    def offered(self) -> list[set[str]]:
        """Return the tool names in each request."""
        return [{tool.name for tool in call.tools} for call in self.model.calls]


async def run(agent: Any, given: Any = "go") -> Any:
    return await sdk.Runner.run(agent, given, run_config=UNTRACED)


def outputs(result: Any) -> dict[str, Any]:
    """Return the tool results that the model gets, by tool name."""
    items = [i.raw_item for i in result.new_items if i.type == "tool_call_output_item"]
    return {item["call_id"]: item["output"] for item in items}


async def test_a_server_that_has_exited_does_not_stop_an_agent(servers: AgentServers) -> None:
    script = Script([("mcp_paint_weather", {"city": "Rome"})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        result = await run(script.agent(manager))
    assert result.final_output == "done"
    assert {name.split("_")[1] for name in script.offered[0]} == {"paint", "fragile", "trains"}
    (output,) = outputs(result)["mcp_paint_weather"]
    assert output == {"type": "input_text", "text": '{"city":"Rome","degrees":21}'}


async def test_structured_content_replaces_the_text_of_a_result_if_so_configured(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_weather", {"city": "Rome"})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        result = await run(script.agent(manager, use_structured_content=True))
    assert outputs(result)["mcp_paint_weather"] == '{"city": "Rome", "degrees": 21}'


async def test_a_server_that_dies_during_a_call_fails_only_that_call(servers: AgentServers) -> None:
    script = Script([("mcp_fragile_die", {}), ("mcp_paint_draw", {}), ("mcp_paint_fail", {})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        result = await run(script.agent(manager))
    found = outputs(result)
    assert "MCP error" in found["mcp_fragile_die"][0]["text"]
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    assert found["mcp_paint_draw"] == [picture]
    assert found["mcp_paint_fail"][0]["text"] == "MCP error: ValueError: out of paint"
    assert result.final_output == "done"


async def test_a_server_that_connects_late_adds_its_tools_to_the_next_turn(
    servers: AgentServers,
) -> None:
    script = Script([("connect", {})], [("mcp_trains_draw", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})

        @sdk.function_tool
        async def connect() -> str:
            await manager.connect_servers({"trains": servers.entry("trains")})
            return "connected"

        agent = script.agent(manager)
        agent.tools.append(connect)
        result = await run(agent)
    assert "mcp_trains_draw" not in script.offered[0]
    assert "mcp_trains_draw" in script.offered[1]
    assert outputs(result)["mcp_trains_draw"][0]["type"] == "input_image"


async def test_cancelling_a_run_cancels_the_request_at_the_server(servers: AgentServers) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        running = asyncio.create_task(run(Script([("mcp_paint_wait", {})]).agent(manager)))
        await servers.noted("waiting")
        running.cancel()
        await servers.noted("cancelled")
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_call_that_the_server_cancels_does_not_cancel_the_run(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_quit", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        result = await run(script.agent(manager))
    assert outputs(result)["mcp_paint_quit"][0]["text"] == "MCP error: CancelledError: "
    assert result.final_output == "done"


async def test_the_callback_of_the_manager_answers_elicitations(servers: AgentServers) -> None:
    asked: list[str] = []

    def answer(question: Question) -> dict[str, Any]:
        asked.append(question.message)
        return accept({"value": 3 if len(asked) == 1 else True})

    script = Script([("mcp_trains_book", {"train": "IC 5"})])
    async with MCPManager(on_elicit=answer) as manager:
        await manager.connect_servers(servers.entries)
        result = await run(script.agent(manager))
    assert asked == ["How many seats on IC 5?", "Book 3 seats?"]
    assert outputs(result)["mcp_trains_book"][0]["text"] == "3 seats on IC 5"


async def test_a_call_that_needs_approval_interrupts_the_run(servers: AgentServers) -> None:
    script = Script([("mcp_paint_draw", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        agent = script.agent(manager, require_approval="always")
        waiting = await run(agent)
        (item,) = waiting.interruptions
        state = waiting.to_state()
        state.approve(item)
        result = await run(agent, state)
    assert outputs(result)["mcp_paint_draw"][0]["type"] == "input_image"


async def test_an_agent_can_use_the_tools_of_a_single_client(servers: AgentServers) -> None:
    script = Script([("mcp_paint_draw", {})])
    entry = servers.entry("paint")
    async with MCPClient.connect_stdio([entry["command"], *entry["args"]]) as client:
        result = await run(script.agent(client))
    assert outputs(result)["mcp_paint_draw"][0]["type"] == "input_image"
