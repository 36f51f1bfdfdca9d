"""Tools of managed servers as a Pydantic AI toolset; requires the extra `pydantic-ai`."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

try:
    from pydantic_ai import (
        AbstractToolset,
        ApprovalRequired,
        BinaryContent,
        DeferredToolRequests,
        DeferredToolResults,
        RunContext,
        ToolDefinition,
        ToolFailed,
        ToolReturn,
    )
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as exc:
    raise ImportError(
        "fairlead.agents.pydantic_ai needs pydantic-ai-slim: "
        "run `pip install 'fairlead[pydantic-ai]'`"
    ) from exc

from ..client import MCPClient
from ..manager.manager import MCPManager
from ..manager.tools.tool import MCPTool
from ..manager.tools.tool_result import ToolResult
from .content_parts import MediaPart, TextPart, content_parts, result_artifact
from .open_call import PosedQuestion
from .tool_source import ToolSource

__all__ = ["FairleadToolset", "answer_questions"]

# The server checks the arguments against its own schema.
_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class FairleadToolset(AbstractToolset[AgentDepsT]):
    """The tools of a manager or client, looked up for each step of a run.

    agent = Agent(model, toolsets=[FairleadToolset(manager)])
    """

    def __init__(self, source: MCPManager | MCPClient, *, id: str | None = None) -> None:
        self._source = ToolSource(source)
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the currently available tools."""
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=_definition(tool),
                max_retries=ctx.max_retries,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in await self._source.tools()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Call a tool.

        Raises:
            ToolFailed: The call failed; the model gets the reason.
            ApprovalRequired: The server has a question. `answer_questions` resumes the run.
        """
        known: Mapping[str, Any] = (ctx.tool_call_approved and ctx.tool_call_metadata) or {}
        key = known.get("mcp_call") or uuid4().hex
        answers = list(known.get("mcp_answers") or ())

        def ask(number: int, posed: PosedQuestion) -> Mapping[str, Any]:
            if number < len(answers):
                return dict(answers[number])
            asked = {"mcp_elicitation": posed.describe()}
            raise ApprovalRequired({**asked, "mcp_call": key, "mcp_answers": answers})

        return _returned(await self._source.run(name, tool_args, key, ask))


def answer_questions(
    requests: DeferredToolRequests, answers: Mapping[str, Mapping[str, Any]]
) -> DeferredToolResults:
    """Return the results that resume a run with the user's answers to servers' questions.

    `answers` maps tool call ids to the return values of `accept`, `decline` and `cancel`.
    """
    metadata = {}
    for call_id, answer in answers.items():
        known = requests.metadata[call_id]
        metadata[call_id] = {**known, "mcp_answers": [*known["mcp_answers"], answer]}
    return requests.build_results(approvals=dict.fromkeys(answers, True), metadata=metadata)


def _definition(tool: MCPTool) -> ToolDefinition:
    about = {"mcp_server": tool.mcp_server_name, "annotations": dict(tool.annotations)}
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.parameters,
        metadata=about,
    )


def _returned(result: ToolResult) -> ToolReturn:
    if result.details.is_error:
        raise ToolFailed(result.text)
    parts = content_parts(result)
    value: Any = [_content(part) for part in parts]
    if all(isinstance(part, TextPart) for part in parts):
        value = result.text
    return ToolReturn(value, metadata=result_artifact(result))


def _content(part: TextPart | MediaPart) -> Any:
    if isinstance(part, TextPart):
        return part.text
    return BinaryContent(part.data, media_type=part.mime_type)
