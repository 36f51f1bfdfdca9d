"""Tools of managed servers, in the form that a host passes to its model."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...errors import FairleadError, InputNotGiven, RpcError, TransportError
from ...transport import timeouts
from .tool_result import (
    ToolResult,
    named_error,
    normalize_arguments,
    result_from_error,
    result_from_response,
)

__all__ = ["CallTool", "DeferredMCPTool", "MCPTool", "ProxyTool"]

log = logging.getLogger("fairlead.manager")

PROXY_TIMEOUT = 60.0  # seconds for a tool call, unless `timeout` is given

# Calls a tool. Takes server, tool, arguments and options, and returns the unchanged result.
CallTool = Callable[..., Awaitable[dict[str, Any]]]


class MCPTool:
    """A connected server's tool. It remains usable after a reconnect."""

    __slots__ = (
        "_available",
        "_call",
        "_provider",
        "mcp_server_name",
        "mcp_tool_name",
        "name",
        "source",
    )
    deferred = False

    def __init__(
        self,
        name: str,
        server: str,
        definition: Mapping[str, Any],
        call: CallTool,
        *,
        provider: str | None = None,
        provider_name: str | None = None,
        available: Callable[[], bool] = lambda: True,
    ) -> None:
        # A catalog may have thousands of tools, so the other properties are computed on access.
        self.name = name
        self.mcp_server_name = server
        self.mcp_tool_name: str = definition["name"]
        self.source = definition  # the definition from the server
        self._call = call
        self._provider = provider, provider_name
        self._available = available

    @property
    def label(self) -> str:
        """Server and tool name, for display."""
        return f"{self.mcp_server_name}: {self._title or self.mcp_tool_name}"

    @property
    def description(self) -> str:
        """The description from which a model decides whether to use the tool."""
        return str(self.source.get("description") or self._title or self.mcp_tool_name)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, which always has the type `object` and `properties`.

        Providers reject a request if a tool has any other schema.
        """
        schema = self.source.get("inputSchema")
        kind = schema.get("type", "object") if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping) or (kind != "object" and "object" not in _several(kind)):
            return {"type": "object", "properties": {}}
        if not isinstance(schema.get("properties"), Mapping):
            return {**schema, "type": "object", "properties": {}}
        if isinstance(schema, dict) and schema.get("type") == "object":
            return schema
        return {**schema, "type": "object"}

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The server's hints about the tool, such as `readOnlyHint`."""
        hints = self.source.get("annotations")
        return hints if isinstance(hints, Mapping) else {}

    @property
    def _title(self) -> str | None:
        return self.source.get("title") or self.annotations.get("title")

    @property
    def _about(self) -> dict[str, Any]:
        return {
            "server_name": self.mcp_server_name,
            "mcp_tool_name": self.mcp_tool_name,
            "provider": self._provider[0],
            "provider_name": self._provider[1],
        }

    @property
    def available(self) -> bool:
        """True if the server is connected, or would connect on a call."""
        return self._available()

    @property
    def path(self) -> str:
        """The origin for display: `mcp:<server> via <program>`, or `mcp:<tool>`."""
        via = self._provider[1]
        server = self.mcp_server_name
        return f"mcp:{server} via {via}" if via else f"mcp:{self.mcp_tool_name}"

    async def execute(
        self, arguments: Any = None, *, timeout: float | None = None, **options: Any
    ) -> ToolResult:
        """Call the tool. Failures become a result for the model; a cancellation is propagated."""
        try:
            result = await self._call(
                self.mcp_server_name,
                self.mcp_tool_name,
                normalize_arguments(arguments, self.parameters),
                timeout=timeout,
                **options,
            )
        except (FairleadError, OSError) as exc:
            log.info("%s failed: %s", self.name, exc)
            return result_from_error(_problem(exc, self.mcp_server_name), **self._about)
        return result_from_response(result, **self._about)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _problem(exc: Exception, server: str) -> str:
    """Return the message of a failure, without the prefix that `result_from_error` adds."""
    if isinstance(exc, RpcError) and not isinstance(exc, InputNotGiven):
        return f"{exc.message} (code {exc.code})"
    return named_error(server, exc) if isinstance(exc, TransportError) else str(exc)


def _several(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else []


class DeferredMCPTool(MCPTool):
    """A tool remembered from the last run. A call waits until its server has connected."""

    __slots__ = ()
    deferred = True


class ProxyTool:
    """A tool for a worker that uses the connections of another manager.

    The current tool is looked up for each call, so the proxy remains usable after a reload.
    """

    def __init__(self, tool: MCPTool, find: Callable[[str], MCPTool | None]) -> None:
        self.name = tool.name
        self.label = tool.label
        self.description = tool.description
        self.parameters = tool.parameters
        self.mcp_server_name = tool.mcp_server_name
        self.mcp_tool_name = tool.mcp_tool_name
        self._about = {"server_name": tool.mcp_server_name, "mcp_tool_name": tool.mcp_tool_name}
        self._find = find

    async def execute(self, arguments: Any = None, *, timeout: float = PROXY_TIMEOUT) -> ToolResult:
        """Call the tool that currently has this name."""
        tool = self._find(self.name)
        if tool is None:
            return result_from_error(f"{self.name} is no longer available", **self._about)
        try:
            async with timeouts.timeout(timeout):
                return await tool.execute(arguments)
        except TimeoutError:
            return result_from_error(f"no response within {timeout:g} s", **self._about)
