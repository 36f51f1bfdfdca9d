"""Tools of managed servers for LangChain and LangGraph; requires the extra `langchain`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, ToolException
    from langgraph.prebuilt import ToolNode
    from langgraph.types import interrupt
except ImportError as exc:
    raise ImportError(
        "fairlead.agents.langchain needs langchain-core and langgraph: "
        "run `pip install 'fairlead[langchain]'`"
    ) from exc

from ..client import MCPClient, cancel
from ..manager.manager import MCPManager
from ..manager.tools.tool import MCPTool
from ..manager.tools.tool_result import ToolResult
from .content_parts import TextPart, content_parts, result_artifact
from .open_call import PosedQuestion
from .tool_source import ToolSource

__all__ = ["LangChainTools"]


class LangChainTools:
    """The tools of a manager or client, looked up for each model request and each call.

    tools = LangChainTools(manager)
    model = model.bind_tools(await tools.current())
    graph.add_node("tools", tools.node())
    """

    def __init__(self, source: MCPManager | MCPClient) -> None:
        self._source = ToolSource(source)

    async def current(self) -> list[BaseTool]:
        """Return the currently available tools, for `bind_tools`."""
        return [_tool(self._source, tool) for tool in await self._source.tools()]

    def node(self, **options: Any) -> ToolNode:
        """Return a node that calls the tools that are available at the time of the call.

        `options` are passed to `ToolNode`. To interrupt each call separately, send every tool call
        to the node with a `Send`.
        """
        return ToolNode([], awrap_tool_call=self.wrap_tool_call, **options)

    async def wrap_tool_call(self, request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call a tool of the source, otherwise the node's own tool; used as `awrap_tool_call`."""
        tool = await self._source.find(request.tool_call["name"])
        if tool is not None:
            request = request.override(tool=_tool(self._source, tool))
        return await execute(request)


class _Tool(BaseTool):
    source: ToolSource
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # The arguments are one mapping, because their names may equal those of parameters.
        arguments = tool_input if isinstance(tool_input, dict) else {}
        return (), {"arguments": arguments, "tool_call_id": tool_call_id}

    def _run(self, **_: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use `ainvoke`")

    async def _arun(
        self, arguments: dict[str, Any], tool_call_id: str | None, config: RunnableConfig
    ) -> tuple[Any, Any]:
        place = config.get("configurable", {})
        key = (place.get("thread_id"), place.get("checkpoint_ns"), tool_call_id)
        result = await self.source.run(self.name, arguments, key, _ask)
        return _message(result, self.name, tool_call_id)


def _tool(source: ToolSource, tool: MCPTool) -> BaseTool:
    about = {"mcp_server": tool.mcp_server_name, "annotations": dict(tool.annotations)}
    return _Tool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        metadata=about,
        source=source,
    )


def _ask(_: int, posed: PosedQuestion) -> Mapping[str, Any]:
    """Interrupt the graph, or return the answer if the graph was resumed with an answer."""
    try:
        answer: Mapping[str, Any] = interrupt(posed.describe())
    except (RuntimeError, KeyError):
        return cancel()  # the call is not part of a graph
    return answer


def _message(result: ToolResult, name: str, tool_call_id: str | None) -> tuple[Any, Any]:
    """Return content and artifact, as a message if a model requested the call."""
    parts, artifact = content_parts(result), result_artifact(result)
    content: Any = [_block(part) for part in parts]
    if all(isinstance(part, TextPart) for part in parts):
        content = result.text
    if tool_call_id is None:
        if result.details.is_error:
            raise ToolException(result.text)
        return content, artifact
    status = "error" if result.details.is_error else "success"
    return ToolMessage(
        content=content, artifact=artifact, name=name, tool_call_id=tool_call_id, status=status
    ), None


def _block(part: Any) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": part.kind, "base64": part.base64, "mime_type": part.mime_type}
