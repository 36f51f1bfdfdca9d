"""LangGraph agents with a scripted model and tools of real servers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPManager
from fairlead.agents import interrupt_agent
from fairlead.client import accept, decline
from tests.support.agent_servers import PIXEL, AgentServers
from tests.support.optional_packages import import_or_skip

langgraph_types = import_or_skip("langgraph.types")
graphs = import_or_skip("langgraph.graph")
checkpoints = import_or_skip("langgraph.checkpoint.memory")
messages = import_or_skip("langchain_core.messages")
tool_functions = import_or_skip("langchain_core.utils.function_calling")
LangChainTools = import_or_skip("fairlead.agents.langchain", needs="langgraph").LangChainTools

ERAS = pytest.mark.parametrize("version", ["auto", "2025-11-25"])
THREAD = {"configurable": {"thread_id": "1"}}


class Script:
    """A graph whose model makes the calls of one step after the other, and then ends."""

    def __init__(self, *steps: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._steps = list(steps)
        self.offered: list[set[str]] = []  # tool names in each request

    def graph(self, source: MCPManager | MCPClient, saver: Any = None) -> Any:
        tools = LangChainTools(source)

        async def model(state: Any) -> Any:
            offered = [tool_functions.convert_to_openai_tool(t) for t in await tools.current()]
            self.offered.append({tool["function"]["name"] for tool in offered})
            return {"messages": [self._respond()]}

        def each_call(state: Any) -> Any:
            calls = state["messages"][-1].tool_calls
            return [langgraph_types.Send("tools", [call]) for call in calls] or graphs.END

        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("model", model)
        graph.add_node("tools", tools.node())
        graph.add_edge(graphs.START, "model")
        graph.add_conditional_edges("model", each_call, ["tools", graphs.END])
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=saver or checkpoints.InMemorySaver())

    def _respond(self) -> Any:
        calls = self._steps.pop(0) if self._steps else ()
        named = [{"name": n, "args": args, "id": f"c{i}"} for i, (n, args) in enumerate(calls)]
        return messages.AIMessage("" if calls else "done", tool_calls=named)


async def run(graph: Any, given: Any = None) -> Any:
    return await graph.ainvoke(given or {"messages": [("user", "go")]}, THREAD)


def results(state: Any) -> dict[str, Any]:
    return {m.name: m for m in state["messages"] if isinstance(m, messages.ToolMessage)}


async def test_a_server_that_has_exited_does_not_stop_a_graph(servers: AgentServers) -> None:
    script = Script([("mcp_paint_weather", {"city": "Rome"})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        state = await run(script.graph(manager))
    assert {name.split("_")[1] for name in script.offered[0]} == {"paint", "fragile", "trains"}
    message = results(state)["mcp_paint_weather"]
    assert (message.content, message.status) == ('{"city":"Rome","degrees":21}', "success")
    assert message.artifact["structured_content"] == {"city": "Rome", "degrees": 21}
    assert state["messages"][-1].content == "done"


async def test_a_server_that_dies_during_a_call_fails_only_that_call(servers: AgentServers) -> None:
    script = Script([("mcp_fragile_die", {}), ("mcp_paint_draw", {}), ("mcp_paint_fail", {})])
    async with MCPManager() as manager:
        await manager.connect_servers(servers.entries)
        found = results(await run(script.graph(manager)))
    assert found["mcp_fragile_die"].status == "error"
    assert "MCP error" in found["mcp_fragile_die"].content
    picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    assert found["mcp_paint_draw"].content == [picture]
    assert found["mcp_paint_fail"].status == "error"
    assert found["mcp_paint_fail"].content == "MCP error: ValueError: out of paint"


async def test_a_server_that_connects_late_adds_its_tools_to_the_next_step(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_draw", {})], [("mcp_trains_draw", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        graph = script.graph(manager)
        async for update in graph.astream({"messages": [("user", "go")]}, THREAD):
            if "tools" in update:
                await manager.connect_servers({"trains": servers.entry("trains")})
        state = (await graph.aget_state(THREAD)).values
    assert "mcp_trains_draw" not in script.offered[0]
    assert "mcp_trains_draw" in script.offered[1]
    assert results(state)["mcp_trains_draw"].status == "success"


async def test_cancelling_a_graph_cancels_the_request_at_the_server(servers: AgentServers) -> None:
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        running = asyncio.create_task(run(Script([("mcp_paint_wait", {})]).graph(manager)))
        await servers.noted("waiting")
        running.cancel()
        await servers.noted("cancelled")
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_call_that_the_server_cancels_does_not_cancel_the_graph(
    servers: AgentServers,
) -> None:
    script = Script([("mcp_paint_quit", {})])
    async with MCPManager() as manager:
        await manager.connect_servers({"paint": servers.entry("paint")})
        state = await run(script.graph(manager))
    message = results(state)["mcp_paint_quit"]
    assert (message.status, message.content) == ("error", "MCP error: CancelledError: ")
    assert state["messages"][-1].content == "done"


@ERAS
async def test_elicitations_of_a_server_interrupt_the_graph(
    servers: AgentServers, version: str
) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"}), ("mcp_paint_weather", {"city": "x"})])
    config = MCPClientConfig(protocol_version=version)
    async with MCPManager(on_elicit=interrupt_agent, config=config) as manager:
        await manager.connect_servers(servers.entries)
        graph = script.graph(manager)
        state = await run(graph)
        asked = []
        for content in ({"value": 3}, {"value": True}):
            (question,) = state["__interrupt__"]
            asked.append([question.value[key] for key in ("server", "tool", "message")])
            state = await run(graph, langgraph_types.Command(resume=accept(content)))
    assert asked == [
        ["trains", "book", "How many seats on IC 5?"],
        ["trains", "book", "Book 3 seats?"],
    ]
    assert results(state)["mcp_trains_book"].content == "3 seats on IC 5"
    assert results(state)["mcp_paint_weather"].status == "success"
    # The call stayed open, so the server executed it once.
    assert servers.notes == ["reserved IC 5"]


@ERAS
async def test_parallel_calls_with_elicitations_get_their_own_answers(
    servers: AgentServers, version: str
) -> None:
    trains = ("IC 5", "IC 6", "IC 7")
    script = Script([("mcp_trains_book", {"train": train}) for train in trains])
    config = MCPClientConfig(protocol_version=version)
    async with MCPManager(on_elicit=interrupt_agent, config=config) as manager:
        await manager.connect_servers({"trains": servers.entry("trains")})
        graph = script.graph(manager)
        state = await run(graph)
        seats = {
            question.id: accept({"value": int(question.value["message"][-2])})
            for question in state["__interrupt__"]
        }
        state = await run(graph, langgraph_types.Command(resume=seats))
        sure = {question.id: accept({"value": True}) for question in state["__interrupt__"]}
        state = await run(graph, langgraph_types.Command(resume=sure))
    booked = {m.content for m in state["messages"] if isinstance(m, messages.ToolMessage)}
    assert booked == {"5 seats on IC 5", "6 seats on IC 6", "7 seats on IC 7"}
    assert sorted(servers.notes) == ["reserved IC 5", "reserved IC 6", "reserved IC 7"]


async def test_an_answer_after_a_restart_repeats_the_call(servers: AgentServers) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"})])
    saver, state = checkpoints.InMemorySaver(), None
    for answer in (None, accept({"value": 3}), accept({"value": True})):
        async with MCPManager(on_elicit=interrupt_agent) as manager:
            await manager.connect_servers({"trains": servers.entry("trains")})
            given = answer and langgraph_types.Command(resume=answer)
            state = await run(script.graph(manager, saver), given)
    assert results(state)["mcp_trains_book"].content == "3 seats on IC 5"


async def test_the_callback_of_the_manager_answers_elicitations(servers: AgentServers) -> None:
    script = Script([("mcp_trains_book", {"train": "IC 5"})])
    async with MCPManager(on_elicit=lambda _: decline()) as manager:
        await manager.connect_servers({"trains": servers.entry("trains")})
        state = await run(script.graph(manager))
    assert results(state)["mcp_trains_book"].content == "no seats were booked"


async def test_a_tool_called_outside_of_a_graph_returns_its_content_or_raises(
    servers: AgentServers,
) -> None:
    entry = servers.entry("paint")
    command = [entry["command"], *entry["args"]]
    async with MCPClient.connect_stdio(command, on_elicit=interrupt_agent) as client:
        tools = {tool.name: tool for tool in await LangChainTools(client).current()}
        assert (
            await tools["mcp_paint_weather"].ainvoke({"city": "x"}) == '{"city":"x","degrees":21}'
        )
        # Outside of a graph, an elicitation is cancelled.
        booked = await tools["mcp_paint_book"].ainvoke({"train": "IC 5"})
        assert booked == "no seats were booked"
        with pytest.raises(Exception, match="out of paint"):
            await tools["mcp_paint_fail"].ainvoke({})
        with pytest.raises(NotImplementedError, match="ainvoke"):
            tools["mcp_paint_fail"].invoke({})
