"""Tools of managed servers for agent frameworks: LangChain, Pydantic AI and the OpenAI Agents SDK.

Each module needs the extra of its framework, so it is imported by its own name:
`fairlead.agents.langchain`, `fairlead.agents.pydantic_ai` and `fairlead.agents.openai`.
"""

from .open_call import interrupt_agent

__all__ = ["interrupt_agent"]
