"""A LangGraph agent for a manager that was created with `on_elicit=interrupt_agent`."""

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send

from fairlead import MCPManager
from fairlead.agents.langchain import LangChainTools


def build_graph(manager: MCPManager, model: Any) -> Any:
    tools = LangChainTools(manager)

    async def ask_model(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools(await tools.current())
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def each_call(state: MessagesState) -> Any:
        # One task per call: a question interrupts only the call that it belongs to.
        return [Send("tools", [call]) for call in state["messages"][-1].tool_calls] or END

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask_model)
    graph.add_node("tools", tools.node())
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", each_call, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


async def run_agent(graph: Any, prompt: str, answer: Callable[[dict[str, Any]], Any]) -> str:
    config = {"configurable": {"thread_id": "1"}}
    state = await graph.ainvoke({"messages": [("user", prompt)]}, config)
    while questions := state.get("__interrupt__"):
        answers = {question.id: answer(question.value) for question in questions}
        state = await graph.ainvoke(Command(resume=answers), config)
    return str(state["messages"][-1].content)
