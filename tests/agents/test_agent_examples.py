"""The agent examples, with scripted models and real servers."""

import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead import MCPManager
from fairlead.agents import interrupt_agent
from fairlead.client import Question, accept
from tests.support.agent_servers import AgentServers
from tests.support.optional_packages import import_or_skip

EXAMPLES = Path(__file__).parents[2] / "examples"
BOOK, TRAIN = "mcp_trains_book", {"train": "IC 5"}


def example(name: str) -> dict[str, Any]:
    file = EXAMPLES / name
    assert len(file.read_text().splitlines()) <= 40
    return runpy.run_path(str(file))


@asynccontextmanager
async def connected(servers: AgentServers, on_elicit: Any) -> AsyncIterator[MCPManager]:
    async with MCPManager(on_elicit=on_elicit) as manager:
        await manager.connect_servers(servers.entries)
        yield manager


def answer(message: str) -> dict[str, Any]:
    return accept({"value": 3 if message.startswith("How many") else True})


async def test_the_pydantic_ai_example_answers_elicitations(servers: AgentServers) -> None:
    messages = import_or_skip("pydantic_ai.messages")
    models = import_or_skip("pydantic_ai.models.function")

    def respond(history: Any, info: Any) -> Any:
        results = [part for part in history[-1].parts if part.part_kind == "tool-return"]
        if results:
            return messages.ModelResponse([messages.TextPart(results[0].content)])
        return messages.ModelResponse([messages.ToolCallPart(BOOK, TRAIN)])

    run_agent = example("pydantic_ai_agent.py")["run_agent"]
    async with connected(servers, interrupt_agent) as manager:
        model = models.FunctionModel(respond)
        said = await run_agent(manager, model, "go", lambda asked: answer(asked["message"]))
    assert said == "3 seats on IC 5"


async def test_the_langchain_example_answers_elicitations(servers: AgentServers) -> None:
    chats = import_or_skip("langchain_core.language_models")
    messages = import_or_skip("langchain_core.messages")

    class Chat(chats.GenericFakeChatModel):  # type: ignore[misc, name-defined]
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            assert BOOK in {tool.name for tool in tools}
            return self

    call = {"name": BOOK, "args": TRAIN, "id": "1"}
    model = Chat(messages=iter([messages.AIMessage("", tool_calls=[call]), "done"]))
    code = example("langchain_agent.py")
    async with connected(servers, interrupt_agent) as manager:
        graph = code["build_graph"](manager, model)
        said = await code["run_agent"](graph, "go", lambda asked: answer(asked["message"]))
    assert said == "done"
    state = (await graph.aget_state({"configurable": {"thread_id": "1"}})).values
    assert state["messages"][-2].content == "3 seats on IC 5"


async def test_the_openai_example_answers_elicitations(servers: AgentServers) -> None:
    sdk, models = import_or_skip("agents"), import_or_skip("agents.testing")
    calls = [models.function_call(BOOK, TRAIN, call_id="1")]
    model = models.ScriptedModel([calls, [models.assistant_message("done")]])

    def on_elicit(question: Question) -> dict[str, Any]:
        return answer(question.message)

    run_agent = example("openai_agent.py")["run_agent"]
    async with connected(servers, on_elicit) as manager:
        untraced = sdk.RunConfig(tracing_disabled=True)
        assert await run_agent(manager, model, "go", run_config=untraced) == "done"
    (output,) = model.calls[-1].input[-1]["output"]
    assert output["text"] == "3 seats on IC 5"
