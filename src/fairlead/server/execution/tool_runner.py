"""Execution of tools: timeouts, threads, and results for every outcome."""

import asyncio
import logging
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import cached_property
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
from ..results.encode_result import EncodedResult, as_content, error_content
from ..server_config import MCPServerConfig
from .handler_errors import error_for_caller, sensitive_parts
from .request_input import ends_round, missing_capability, questions_of
from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from ...protocol.sealed_state import KeyRing

__all__ = ["ResumedCoroutine", "ToolRunner"]

log = logging.getLogger("fairlead.server")

CLEANUP = 1.0  # seconds that a tool may use for cleanup after its timeout
MOST_LEFT = ABANDONED_CALLS.value

_Work = Coroutine[Any, Any, Any]


class ToolRunner:
    """Runner of tools that enforces their timeouts."""

    def __init__(
        self,
        config: MCPServerConfig,
        meta: dict[str, Any] | None = None,
        state: Callable[[], Any] = lambda: None,
        handler: Handler | None = None,
    ) -> None:
        """`meta` is included in every result for a stateless client; `state` returns the lifespan's
        value.

        `handler` is the handler of the whole server, for tools that read its resources.
        """
        self._handler = handler
        self._config = config
        self._state = state
        self._meta = meta or {}
        self._level = config.log_level.lower()
        self.workers = WorkerThreads()
        self._longest = config.max_message_bytes or sys.maxsize
        # tasks of tools that were cancelled because of their timeout
        self._expired: set[asyncio.Task[Any]] = set()
        # tasks of tools that ignored their first cancellation and were cancelled a second time
        self._stubborn: set[asyncio.Task[Any]] = set()
        # detached coroutines that ignored both cancellations; no caller waits for them
        self._left: set[asyncio.Task[None]] = set()
        self._leave_behind = self._leave  # Bound once, because every call that waits needs it.
        # One timer per event loop: tests and embedding programs may use several loops.
        self._timers: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, Deadlines[asyncio.Task[Any]]
        ] = weakref.WeakKeyDictionary()
        self._timer: Deadlines[asyncio.Task[Any]] | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None

    async def run(self, entry: ToolEntry, exchange: Exchange, tail: bytes) -> bytes:
        """Call a tool. Errors of the tool become a result with `isError`, for the model to read.

        Raises:
            RpcError: `arguments` is not an object, the client lacks a capability that the tool
                needs, or the tool raised this error.
        """
        context = self.context(exchange) if entry.wants_context else None
        try:
            given = exchange.head.arguments
            try:
                arguments = entry.decode(NO_ARGUMENTS if given is UNSET else given)
            except InvalidArguments:
                arguments = _decode_again(entry, given)
            if entry.asynchronous:
                # Most tools never wait and need no timeout. The first step of the
                # coroutine therefore runs without a timer.
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
                # A plain wrapper around a coroutine function returns an awaitable.
                if isinstance(value, Awaitable):
                    value = await self._watched(entry, value, context)
            if context is not None and context.round_ended:
                # The tool caught the cancellation that ended its round.
                return questions_of(context, self._meta)
            # Most results are strings, which need no general conversion.
            if type(value) is str and entry.encode_text is not None:
                result = entry.encode_text(value, tail)
            else:
                convert = entry.convert
                content = as_content(value, tail) if convert is None else convert(value, tail)
                result = _for(exchange, content)
            if len(result) > self._longest:
                raise _too_long(result, self._longest)
            return result
        except asyncio.CancelledError as exc:
            if context is not None and context.round_ended:
                if ends_round(context):
                    return questions_of(context, self._meta)
            # The tool raised CancelledError itself, so no other code will send a response.
            elif not _is_cancelled():
                return self._explained(entry, exchange, context, exc, tail)
            raise
        # SystemExit in a tool must not stop the server.
        except (Exception, SystemExit) as exc:
            return self._explained(entry, exchange, context, exc, tail)
        finally:
            if context is not None:
                context.release()

    def context(self, exchange: Exchange) -> Context:
        """Return the context of a call, for handlers that have a parameter for it."""
        wait = self._config.input_timeout
        return Context(exchange, self._level, self.ring, wait, self._state(), self._handler)

    @cached_property
    def ring(self) -> "KeyRing":
        """The keys that seal the state of calls that request input; loaded on first use."""
        from ...protocol.sealed_state import KeyRing

        return KeyRing.from_environment()

    def run_inline(self, entry: ToolEntry, exchange: Exchange, tail: bytes) -> bytes:
        """Call a tool whose plain function is quick and never blocks. Otherwise like `run`."""
        context = self.context(exchange) if entry.wants_context else None
        try:
            given = exchange.head.arguments
            try:
                arguments = entry.decode(NO_ARGUMENTS if given is UNSET else given)
            except InvalidArguments:
                arguments = _decode_again(entry, given)
            value = entry.call(arguments, context)
            if type(value) is str and entry.encode_text is not None:
                result = entry.encode_text(value, tail)
            else:
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
        """Await a tool for at most its timeout. Time spent waiting for requested input does not
        count.
        """
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
            # The tool may have caught its cancellation and returned a value.
            if task in self._expired:
                raise _timed_out(entry, seconds)
            return value
        except asyncio.CancelledError:
            # The peer may have cancelled the call at the same time: propagate that.
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
        """Cancel a tool again if it ignored the first cancellation, to answer its caller."""
        self._stubborn.add(task)
        task.uncancel()  # `_watched` treats the two cancellations as one.
        task.cancel()

    def _leave(self, coroutine: _Work, waiting: Any) -> bool:
        """Detach a coroutine that ignored both cancellations from its caller.

        Return False if it was not cancelled twice or too many coroutines are detached already.
        """
        task = asyncio.current_task()
        if task not in self._stubborn:
            return False
        # Above the limit the caller waits, which bounds the number of detached coroutines.
        if len(self._left) >= MOST_LEFT:
            ABANDONED_CALLS.hit()
            return False
        left = asyncio.get_running_loop().create_task(
            _to_its_end(ResumedCoroutine(coroutine, waiting))
        )
        # The event loop keeps only weak references to tasks.
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        return True

    @property
    def metrics(self) -> dict[str, int]:
        """Counters of worker threads, and of detached calls that still run."""
        return {**self.workers.metrics, "abandoned_tasks": len(self._left)}

    def _deadlines(self) -> "Deadlines[asyncio.Task[Any]]":
        loop = asyncio.get_running_loop()
        # The timer of the last loop is cached, because nearly every server uses one loop.
        if loop is not self._timer_loop or self._timer is None:
            self._timer_loop = loop
            self._timer = self._timers.setdefault(loop, Deadlines(loop))
        return self._timer

    def _explained(
        self,
        entry: ToolEntry,
        exchange: Exchange,
        context: Context | None,
        exc: BaseException,
        tail: bytes,
    ) -> bytes:
        """Log an error and return it as a result with `isError`.

        Raises:
            RpcError: The error rejects the whole request.
        """
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


class ResumedCoroutine:
    """The rest of a suspended coroutine; can be awaited like the whole coroutine.

    A coroutine that continues to wait after it was cancelled may be cleaning up, so it is awaited
    further, until `leave(coroutine, waiting)` returns True and takes it over.
    """

    __slots__ = ("_coroutine", "_leave", "_waiting")

    def __init__(
        self, coroutine: _Work, waiting: Any, leave: Callable[[_Work, Any], bool] | None = None
    ) -> None:
        self._coroutine = coroutine
        self._waiting = waiting
        self._leave = leave

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        while True:
            try:
                try:
                    # The coroutine yielded `waiting`, and the task must receive the same object.
                    sent = yield waiting
                except asyncio.CancelledError as exc:
                    waiting = self._coroutine.throw(exc)
                    if self._leave is not None and self._leave(self._coroutine, waiting):
                        raise
                except BaseException as exc:
                    waiting = self._coroutine.throw(exc)
                else:
                    waiting = self._coroutine.send(sent)
            except StopIteration as done:
                return done.value


def _for(exchange: Exchange, content: EncodedResult) -> bytes:
    """Convert a result to the revision of the caller."""
    # Plain results look the same in all revisions.
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
        log.debug("a tool failed after its caller stopped waiting for it", exc_info=True)


def _too_long(result: bytes, longest: int) -> MCPToolError:
    return MCPToolError(
        f"The result takes {len(result)} bytes, over max_message_bytes ({longest})",
        suggestion="Request less data at once",
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
    """Decode arguments that were rejected. Some clients send null for no arguments.

    Raises:
        RpcError: -32602, the arguments are not an object.
        InvalidArguments: The arguments do not match the schema.
    """
    text = b"{}" if isinstance(given, UnsetType) else bytes(given)
    if text == b"null":
        return entry.decode(NO_ARGUMENTS)
    if not text.startswith(b"{"):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object")
    return entry.decode(Raw(text))


def _short(value: Any) -> Any:
    """Return the value, or the start of its JSON text if it is long."""
    text = to_json(value)
    return value if len(text) <= 200 else text[:200].decode("utf-8", "replace") + "…"
