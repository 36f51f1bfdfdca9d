"""Running a tool: in time, in the right place, and with a result whatever happens in it."""

import asyncio
import logging
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, UnsetType

from ...errors import CannotAsk, MCPErrorCode, MCPToolError, RpcError
from ...interceptor import Exchange, Handler
from ...limits import ABANDONED_CALLS
from ...observe.log_filter import ABOUT
from ...peer import Deadlines
from ...protocol.downgrade.results import downgrade_result
from ...protocol.schema.validation import InvalidArguments
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from ..context.correlation_id import correlation_id
from ..features.tool_entry import NO_ARGUMENTS, ToolEntry
from ..results.encode_result import EncodedResult, as_content, error_content, text_result
from ..server_config import MCPServerConfig
from .handler_errors import error_for_caller, sensitive_parts
from .request_input import ends_round, missing_capability, questions_of
from .started_coroutine import ResumedCoroutine
from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from ...protocol.sealed_state import KeyRing

__all__ = ["ToolRunner"]

log = logging.getLogger("fairlead.server")

CLEANUP = 1.0  # seconds that a tool may take to clean up after its time is over
MOST_LEFT = ABANDONED_CALLS.value


class ToolRunner:
    """Executes tools under their time limits."""

    def __init__(
        self,
        config: MCPServerConfig,
        meta: dict[str, Any] | None = None,
        state: Callable[[], Any] | None = None,
        handler: Handler | None = None,
    ) -> None:
        """`meta` stands in every result for a stateless caller, `state` is what handlers share.

        `handler` is that of the server, for tools that use what else it has.
        """
        self._handler = handler
        self._config = config
        self._state = state
        self._meta = meta or {}
        self._ring: KeyRing | None = None
        self._level = config.log_level.lower()
        self.workers = WorkerThreads()
        self._longest = config.max_message_bytes or sys.maxsize
        self._expired: set[asyncio.Task[Any]] = set()  # cancelled by us, because of their time
        self._stubborn: set[asyncio.Task[Any]] = set()  # and again, because they went on
        self._left: set[asyncio.Task[None]] = set()  # what is left of those, without a caller
        self._leave_behind = self._leave  # made once, because every call that waits needs it
        # One timer per loop: tests and embedders may use a server from several.
        self._timers: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, Deadlines[asyncio.Task[Any]]
        ] = weakref.WeakKeyDictionary()
        self._timer: Deadlines[asyncio.Task[Any]] | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None

    async def run(self, entry: ToolEntry, exchange: Exchange, tail: bytes) -> bytes:
        """Call a tool. What goes wrong in it is a result, for the model to read.

        Raises:
            RpcError: -32602, if `arguments` is no object.
        """
        context = self.context(exchange) if entry.wants_context else None
        try:
            given = exchange.head.arguments
            try:
                arguments = entry.decode(NO_ARGUMENTS if given is UNSET else given)
            except InvalidArguments:
                arguments = _decode_again(entry, given)
            if entry.asynchronous:
                # Most tools that are quick never wait: those need no time limit. So the first
                # step is taken here, and only what comes after it is watched.
                coroutine = entry.call(arguments, context)
                try:
                    waiting = coroutine.send(None)
                except StopIteration as done:
                    value = done.value
                else:
                    rest = ResumedCoroutine(coroutine, waiting, self._leave_behind)
                    value = await self._watched(entry, rest, context)
            elif entry.inline:
                value = entry.call(arguments, context)
            else:
                value = await self._watched(
                    entry, self.workers.run(entry.call, arguments, context), context
                )
                if isinstance(value, Awaitable):  # a coroutine function in a plain wrapper
                    value = await self._watched(entry, value, context)
            if context is not None and context.round_ended:
                return questions_of(context, self._meta)  # it caught its cancellation
            convert = entry.convert
            if type(value) is str and convert is None:
                result = text_result(value, tail)
            else:
                content = as_content(value, tail) if convert is None else convert(value, tail)
                result = _for(exchange, content)
            if len(result) > self._longest:
                raise _too_long(result, self._longest)
            return result
        except asyncio.CancelledError as exc:
            if context is not None and context.round_ended:
                if ends_round(context):
                    return questions_of(context, self._meta)
            elif not _is_cancelled():  # the tool's own doing, and nobody else would answer
                return self._explained(entry, exchange, context, exc, tail)
            raise
        except (Exception, SystemExit) as exc:
            return self._explained(entry, exchange, context, exc, tail)
        finally:
            if context is not None:
                context.release()

    def context(self, exchange: Exchange) -> Context:
        """What a handler that wants to know about its call is given."""
        state = None if self._state is None else self._state()
        wait = self._config.input_timeout
        return Context(exchange, self._level, self.ring, wait, state, self._handler)

    @property
    def ring(self) -> "KeyRing":
        """What seals the state of calls that ask; made when the first one does."""
        if self._ring is None:
            from ...protocol.sealed_state import KeyRing

            self._ring = KeyRing.from_environment()
        return self._ring

    def run_inline(self, entry: ToolEntry, exchange: Exchange, tail: bytes) -> bytes:
        """The same for a plain function that is quick and never blocks."""
        context = self.context(exchange) if entry.wants_context else None
        try:
            given = exchange.head.arguments
            try:
                arguments = entry.decode(NO_ARGUMENTS if given is UNSET else given)
            except InvalidArguments:
                arguments = _decode_again(entry, given)
            value = entry.call(arguments, context)
            convert = entry.convert
            content = as_content(value, tail) if convert is None else convert(value, tail)
            result = _for(exchange, content)
            if len(result) > self._longest:
                raise _too_long(result, self._longest)
            return result
        except (Exception, SystemExit) as exc:
            return self._explained(entry, exchange, context, exc, tail)

    async def _watched(
        self, entry: ToolEntry, work: Awaitable[Any], context: Context | None = None
    ) -> Any:
        """Wait for a tool, but not longer than it may take; waiting for a person does not count."""
        seconds = self._config.timeout_of(entry.name) if entry.timeout is None else entry.timeout
        if not seconds:
            return await work
        task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        timer = self._deadlines()
        if context is None:
            timer.add(task, seconds, self._expire)
        else:
            context.clock.start(timer, task, seconds, self._expire)
        try:
            value = await work
            if task in self._expired:
                raise _timed_out(entry, seconds)  # it caught its cancellation and went on
            return value
        except asyncio.CancelledError:
            # Ours and nobody else's: a cancellation from the peer that meets it goes on.
            if task not in self._expired or task.uncancel() > 0:
                raise
            raise _timed_out(entry, seconds) from None
        finally:
            if context is not None:
                context.clock.stop()
            timer.remove(task)
            self._expired.discard(task)
            self._stubborn.discard(task)

    def _expire(self, task: asyncio.Task[Any]) -> None:
        self._expired.add(task)
        self._deadlines().add(task, CLEANUP, self._give_up)
        task.cancel()

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """It was cancelled and goes on: its caller gets an answer all the same."""
        self._stubborn.add(task)
        task.uncancel()  # so that the two count as one
        task.cancel()

    def _leave(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> bool:
        """Let a coroutine that ignored our cancellations go on without its caller."""
        task = asyncio.current_task()
        if task not in self._stubborn:
            return False
        if len(self._left) >= MOST_LEFT:
            ABANDONED_CALLS.hit()
            return False
        left = asyncio.get_running_loop().create_task(
            _to_its_end(ResumedCoroutine(coroutine, waiting))
        )
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        return True

    @property
    def metrics(self) -> dict[str, int]:
        """The threads of synchronous functions, and what does not end although it should."""
        return {**self.workers.metrics, "abandoned_tasks": len(self._left)}

    def _deadlines(self) -> "Deadlines[asyncio.Task[Any]]":
        loop = asyncio.get_running_loop()
        if loop is not self._timer_loop or self._timer is None:
            self._timer_loop = loop
            self._timer = self._timers.setdefault(loop, Deadlines(loop))
        return self._timer

    # Every error is logged before it is returned.

    def _explained(
        self,
        entry: ToolEntry,
        exchange: Exchange,
        context: Context | None,
        exc: BaseException,
        tail: bytes,
    ) -> bytes:
        """A result that says what went wrong; a refusal of the whole request stays one."""
        cause: BaseException | None = None
        match exc:
            case RpcError():
                raise error_for_caller(exc, exchange, context) from exc.__cause__
            case MCPToolError():
                error = exc
            case CannotAsk() if exchange.caller.stateless:
                raise error_for_caller(missing_capability(exc), exchange, context) from exc
            case CannotAsk():
                error = MCPToolError(str(exc), code=MCPErrorCode.DEPENDENCY_MISSING)
            case InvalidArguments():
                error = _invalid(entry, exc)
            case _:
                error, cause = MCPToolError(f"{type(exc).__name__}: {exc}"), exc
        error.tool_name = error.tool_name or entry.name
        if error.correlation_id is None:
            given = correlation_id(exchange) if context is None else context.correlation_id
            error.correlation_id = given
        log.log(
            logging.WARNING if cause is None else logging.ERROR,
            "%s [%s]: %s",
            entry.name,
            error.correlation_id,
            error,
            exc_info=cause,
            extra={"correlation_id": error.correlation_id, ABOUT: sensitive_parts(exchange)},
        )
        return error_content(error, tail).result


def _for(exchange: Exchange, content: EncodedResult) -> bytes:
    """A result in words that the caller's revision knows."""
    if content.plain:
        return content.result
    return downgrade_result("tools/call", content.result, exchange.caller.revision)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _to_its_end(rest: ResumedCoroutine) -> None:
    try:
        await rest
    except Exception:
        log.debug("a tool that was given up has failed", exc_info=True)


def _too_long(result: bytes, longest: int) -> MCPToolError:
    return MCPToolError(
        f"The result takes {len(result)} bytes, over max_message_bytes ({longest})",
        suggestion="Ask for less at once",
    )


def _timed_out(entry: ToolEntry, seconds: float) -> MCPToolError:
    message = f"Tool '{entry.name}' timed out after {seconds:g}s"
    return MCPToolError(message, code=MCPErrorCode.TIMEOUT)


def _invalid(entry: ToolEntry, exc: InvalidArguments) -> MCPToolError:
    problems = [
        {"field": e.field, "constraint": e.constraint}
        | ({} if e.value is None else {"value": _short(e.value)})
        for e in exc.errors
    ]
    return MCPToolError(
        f"Invalid arguments for tool '{entry.name}': {exc}",
        code=MCPErrorCode.VALIDATION_ERROR,
        field_errors=problems,
    )


def _decode_again(entry: ToolEntry, given: Raw | UnsetType) -> Any:
    """Arguments that did not fit. Some clients write null for none; other values are no arguments.

    Raises:
        RpcError: -32602, if they are no object.
        InvalidArguments: if they are.
    """
    text = b"{}" if isinstance(given, UnsetType) else bytes(given)
    if text == b"null":
        return entry.decode(NO_ARGUMENTS)
    if not text.startswith(b"{"):
        raise RpcError(INVALID_PARAMS, "arguments is an object")
    return entry.decode(Raw(text))


def _short(value: Any) -> Any:
    """Enough of a value to recognize it."""
    text = to_json(value)
    return value if len(text) <= 200 else text[:200].decode("utf-8", "replace") + "…"
