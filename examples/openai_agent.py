"""Run an agent of the OpenAI Agents SDK with all configured servers; arguments: model, prompt."""

import asyncio
import sys
from typing import Any

from agents import Agent, Runner

from fairlead import MCPManager
from fairlead.agents.openai import FairleadServer
from fairlead.client import Question, accept, decline


def ask_user(question: Question) -> dict[str, Any]:
    yes = input(f"{question.message} [y/N] ").lower() == "y"
    return accept(question.defaults) if yes else decline()


async def run_agent(manager: MCPManager, model: Any, prompt: str, **options: Any) -> str:
    agent = Agent("assistant", model=model, mcp_servers=[FairleadServer(manager)])
    return str((await Runner.run(agent, prompt, **options)).final_output)


async def main(model: str, prompt: str) -> None:
    async with MCPManager(on_elicit=ask_user) as manager:
        await manager.discover_and_connect()
        print(await run_agent(manager, model, prompt))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
