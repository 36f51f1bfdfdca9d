"""The tools of a manager or client, looked up whenever a framework needs them."""

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from msgspec import structs

from ..client import MCPClient
from ..errors import FairleadError
from ..limits import INTERRUPTED_CALLS
from ..manager.manager import MCPManager
from ..manager.tools.catalog import ToolCatalog
from ..manager.tools.tool import MCPTool
from ..manager.tools.tool_result import ToolResult, result_from_error
from ..protocol.revisions import find_revision
from .open_call import CallTurns, OpenCall, PosedQuestion, interrupt_agent

__all__ = ["Ask", "ToolSource"]

log = logging.getLogger("fairlead.manager")

# Added to the result of a call that ended without the answer of the user.
LATE_ANSWER = (
    "The answer of the user arrived too late, so this result does not take it into account."
)

# A callback for the questions of a server. It takes the number of the question within its call, and
# returns the answer or raises the exception with which a framework interrupts a run.
Ask = Callable[[int, PosedQuestion], Mapping[str, Any]]


class ToolSource:
    """The current tools of a manager or client, and calls that can be interrupted and resumed."""

    def __init__(self, source: MCPManager | MCPClient) -> None:
        """Use the tools of a manager or client.

        Raises:
            TypeError: The source is something else, such as a client that is not connected.
        """
        if not isinstance(source, MCPManager | MCPClient):
            raise TypeError(
                f"expected an MCPManager or a connected MCPClient, not {source!r}: use "
                "`async with MCPClient.connect(target) as client:` and pass the client"
            )
        self._source = source
        self._catalog = ToolCatalog(self._call, lambda _: {})  # used if the source is a client
        self._interrupted: dict[Hashable, OpenCall] = {}

    async def tools(self) -> list[MCPTool]:
        """Return the currently available tools.

        If a client cannot list them, return its last list.
        """
        if isinstance(self._source, MCPManager):
            return self._source.get_tools()
        try:
            listed = await self._source.list_tools()
        except (FairleadError, OSError) as exc:
            log.warning("the tools could not be listed; the last list is used: %s", exc)
            return list(self._catalog.tools)
        name = self._source.server.get("serverInfo", {}).get("name")
        return list(self._catalog.build([(str(name or "server"), listed, False)]))

    async def find(self, name: str) -> MCPTool | None:
        """Return the tool that currently has this name, or None."""
        if isinstance(self._source, MCPManager):
            return self._source.get_tool(name)
        if name not in self._catalog.by_name:
            await self.tools()
        return self._catalog.by_name.get(name)

    async def execute(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Failures become a result for the model; a cancellation is propagated."""
        tool = await self.find(name)
        return _unknown(name) if tool is None else await tool.execute(arguments)

    async def run(
        self, name: str, arguments: Mapping[str, Any], key: Hashable, ask: Ask
    ) -> ToolResult:
        """Call a tool as `execute` does, and answer the questions of its server with `ask`.

        If `ask` raises an exception, the call stays open, and the next `run` with the same key
        continues it: `ask` gets all questions again, even those that were answered. If the call has
        ended in the meantime, it is repeated.
        """
        call = await self._resumed(key, name, arguments)
        if call is None:
            tool = await self.find(name)
            if tool is None:
                return _unknown(name)
            call = OpenCall(tool, dict(arguments), self._turns)
        interrupted, number, late = False, 0, False
        try:
            while (posed := await call.question(number)) is not None:
                interrupted = True
                late = not posed.give(ask(number, posed)) or late
                interrupted, number = False, number + 1
            result = await call.result()
            return _with_late_answer(result) if late else result
        finally:
            if interrupted:
                await self._keep(key, call)
            elif not call.over:
                await call.cancel()

    async def _resumed(
        self, key: Hashable, name: str, arguments: Mapping[str, Any]
    ) -> OpenCall | None:
        """Return the interrupted call with this key, if it is the same call and still open."""
        call = self._interrupted.pop(key, None)
        if call is None:
            return None
        if call.over:
            log.warning(
                "tool %r: the call ended before the answer to a question of its server arrived; "
                "the tool is called again",
                name,
            )
            return None
        if call.is_of(name, arguments):
            return call
        await call.cancel()
        return None

    async def _keep(self, key: Hashable, call: OpenCall) -> None:
        """Keep an interrupted call open; the number of open calls is limited."""
        self._interrupted = {k: one for k, one in self._interrupted.items() if not one.over}
        self._interrupted[key] = call
        if len(self._interrupted) > INTERRUPTED_CALLS.value:
            INTERRUPTED_CALLS.hit()
            await self._interrupted.pop(next(iter(self._interrupted))).cancel()

    async def _turns(self, tool: MCPTool) -> CallTurns | None:
        """Return the lock for calls that must run in turn;
        None if input requests name their call.
        """
        client = await self._client_of(tool)
        if client is None or (found := find_revision(client.protocol_version or "")) is None:
            return None
        if client.on_elicit is interrupt_agent and found.handshake:
            client.on_elicit = CallTurns()
        return client.on_elicit if isinstance(client.on_elicit, CallTurns) else None

    async def _client_of(self, tool: MCPTool) -> MCPClient | None:
        if not isinstance(self._source, MCPManager):
            return self._source
        try:
            return (await self._source.wait_for_connection(tool.mcp_server_name)).client
        except (FairleadError, OSError):
            return None  # the call fails with the same error

    async def _call(
        self, server: str, tool: str, arguments: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        assert isinstance(self._source, MCPClient)
        result: dict[str, Any] = await self._source.call_tool(tool, arguments, **options)
        return result


def _with_late_answer(result: ToolResult) -> ToolResult:
    """Return a result with a note that an answer of the user arrived too late for the call."""
    log.warning(
        "tool %r of server %r: the answer to a question of the server arrived too late, and was "
        "not sent; increase input_timeout to wait longer",
        result.details.mcp_tool_name,
        result.details.server_name,
    )
    note = {"type": "text", "text": LATE_ANSWER}
    return structs.replace(result, content=[*result.content, note])


def _unknown(name: str) -> ToolResult:
    return result_from_error(f"unknown tool {name!r}", server_name="", mcp_tool_name=name)
