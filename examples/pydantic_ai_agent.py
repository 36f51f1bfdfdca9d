"""Run an agent of Pydantic AI with all configured servers; arguments: model, prompt."""

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests

from fairlead import MCPManager
from fairlead.agents import interrupt_agent
from fairlead.agents.pydantic_ai import FairleadToolset, answer_questions
from fairlead.client import accept


def ask_user(question: dict[str, Any]) -> dict[str, Any]:
    fields = question["requestedSchema"]["properties"]
    return accept({name: input(f"{question['message']} {name}: ") for name in fields})


async def run_agent(manager: MCPManager, model: Any, prompt: str, answer: Any = ask_user) -> str:
    toolset, kinds = FairleadToolset(manager), [str, DeferredToolRequests]
    agent = Agent(model, toolsets=[toolset], output_type=kinds)
    run = await agent.run(prompt)
    while isinstance(run.output, DeferredToolRequests):
        asked = run.output.metadata.items()
        answers = {call: answer(known["mcp_elicitation"]) for call, known in asked}
        results, history = answer_questions(run.output, answers), run.all_messages()
        run = await agent.run(message_history=history, deferred_tool_results=results)
    return run.output


async def main(model: str, prompt: str) -> None:
    async with MCPManager(on_elicit=interrupt_agent) as manager:
        await manager.discover_and_connect()
        print(await run_agent(manager, model, prompt))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
