"""Tools of managed servers for agent frameworks: LangChain, Pydantic AI and the OpenAI Agents SDK.

Each module requires its framework's extra, so import the one that you need:
`fairlead.agents.langchain`, `fairlead.agents.pydantic_ai` and `fairlead.agents.openai`.
"""

from .open_call import interrupt_agent

__all__ = ["interrupt_agent"]
