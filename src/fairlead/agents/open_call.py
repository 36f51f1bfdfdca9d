"""Tool calls that stay open while a server's question interrupts the agent's run."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any

import msgspec

from ..client.input.answers import Question, cancel
from ..manager.tools.tool import MCPTool
from ..manager.tools.tool_result import ToolResult, result_from_error

__all__ = ["CallTurns", "OpenCall", "PosedQuestion", "interrupt_agent"]

# The call to which the current task belongs. A stateless server's questions are asked in that task.
_current: "ContextVar[OpenCall | None]" = ContextVar("open_call", default=None)


async def interrupt_agent(question: Question) -> Mapping[str, Any]:
    """Interrupt the agent's run with a server's question, and return the answer.

    Pass this function as `on_elicit` to a manager or client. Outside of a call that an agent can
    interrupt, the answer is `cancel()`.
    """
    call = _current.get()
    return cancel() if call is None else await call.ask(question)


class CallTurns:
    """The `on_elicit` of a handshake-era connection, whose questions do not name a call.

    Calls run in turn, so that a question belongs to the call whose turn it is. A call gives up its
    turn while it waits for an answer.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: OpenCall | None = None

    async def __call__(self, question: Question) -> Mapping[str, Any]:
        return cancel() if self._holder is None else await self._holder.ask(question)

    async def take(self, call: "OpenCall") -> None:
        """Wait for the call's turn."""
        await self._lock.acquire()
        self._holder = call

    def release(self, call: "OpenCall") -> None:
        """End a call's turn, if it has the turn."""
        if self._holder is call:
            self._holder = None
            self._lock.release()


class PosedQuestion:
    """A server's question that the agent's user has to answer."""

    def __init__(self, question: Question, tool: MCPTool) -> None:
        self.question = question
        self.answer: asyncio.Future[Mapping[str, Any]] = asyncio.Future()
        self._tool = tool

    def describe(self) -> dict[str, Any]:
        """Return the question as JSON data, with the names of the server and the tool."""
        asked = {k: v for k, v in msgspec.to_builtins(self.question).items() if v is not None}
        origin = {"server": self._tool.mcp_server_name, "tool": self._tool.mcp_tool_name}
        return {"type": "mcp_elicitation", **origin, **asked}

    def give(self, answer: Mapping[str, Any]) -> bool:
        """Answer the question, unless it has an answer already.

        Return False if the question was cancelled, because its time limit has passed.
        """
        if not self.answer.done():
            self.answer.set_result(answer)
        return not self.answer.cancelled()


class OpenCall:
    """A call that runs in its own task, with the questions that its server has asked so far."""

    def __init__(
        self,
        tool: MCPTool,
        arguments: Mapping[str, Any],
        find_turns: Callable[[MCPTool], Awaitable[CallTurns | None]],
    ) -> None:
        self._tool = tool
        self._arguments = arguments
        self._find_turns = find_turns
        self._turns: CallTurns | None = None
        self._questions: list[PosedQuestion] = []
        self._changed = asyncio.Event()
        context = copy_context()
        context.run(_current.set, self)
        self._task = asyncio.get_running_loop().create_task(self._run(), context=context)
        self._task.add_done_callback(lambda _: self._changed.set())

    @property
    def over(self) -> bool:
        """True if the call has a result or was cancelled."""
        return self._task.done()

    def is_of(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if this is a call of the given tool with the given arguments."""
        return self._tool.name == name and self._arguments == arguments

    async def question(self, number: int) -> PosedQuestion | None:
        """Wait for a question by its number, starting at 0, and return it; return None if the call
        ended without asking it.
        """
        while number >= len(self._questions) and not self.over:
            self._changed.clear()
            await self._changed.wait()
        return self._questions[number] if number < len(self._questions) else None

    async def result(self) -> ToolResult:
        """Return the call's result. A failure is also returned as a result for the model."""
        await asyncio.wait((self._task,))
        if self._task.cancelled():
            server, tool = self._tool.mcp_server_name, self._tool.mcp_tool_name
            return result_from_error(
                "the call was cancelled", server_name=server, mcp_tool_name=tool
            )
        return self._task.result()

    async def cancel(self) -> None:
        """Cancel the call, and with it the request to the server."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def ask(self, question: Question) -> Mapping[str, Any]:
        """Return the answer to the server's question."""
        posed = PosedQuestion(question, self._tool)
        self._questions.append(posed)
        self._changed.set()
        if self._turns is None:
            return await posed.answer
        self._turns.release(self)
        try:
            return await posed.answer
        finally:
            await self._turns.take(self)
            if self.over:  # cancelled while the question was open
                self._turns.release(self)

    async def _run(self) -> ToolResult:
        self._turns = await self._find_turns(self._tool)
        if self._turns is None:
            return await self._tool.execute(self._arguments)
        await self._turns.take(self)
        try:
            return await self._tool.execute(self._arguments)
        finally:
            self._turns.release(self)
