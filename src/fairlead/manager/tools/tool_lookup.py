"""Sources of the tools that a model calls: a manager, a client or a function."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ...client import MCPClient
from .tool import MCPTool

__all__ = ["ToolLookup", "find_tool", "tool_of_client"]


@runtime_checkable
class ToolOwner(Protocol):
    """An object with tools, such as an `MCPManager`."""

    def get_tool(self, name: str) -> MCPTool | None:
        """Return the tool with this name, or None."""


ToolLookup: TypeAlias = Callable[[str], MCPTool | None] | ToolOwner | MCPClient


def find_tool(source: ToolLookup, name: str) -> MCPTool | None:
    """Return the tool with this name, or None. For a client, the server decides if it exists.

    Raises:
        TypeError: The source is neither a manager, nor a client, nor a function.
    """
    if isinstance(source, MCPClient):
        return tool_of_client(source, {"name": name})
    if isinstance(source, ToolOwner):
        return source.get_tool(name)
    if not callable(source):
        raise TypeError(f"expected a manager, a client or a function, not {source!r}")
    return source(name)


def tool_of_client(client: MCPClient, definition: Mapping[str, Any]) -> MCPTool:
    """Return a tool of a client's server; its name is not changed."""

    async def call(_: str, tool: str, arguments: Mapping[str, Any], **options: Any) -> Any:
        return await client.call_tool(tool, arguments, **options)

    name = client.server.get("serverInfo", {}).get("name")
    return MCPTool(definition["name"], str(name or "server"), definition, call)
