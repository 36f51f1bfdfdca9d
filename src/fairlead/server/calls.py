"""Running a tool: in time, in the right place, and with a result whatever happens in it."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from ..errors import CannotAsk, MCPErrorCode, MCPToolError, RpcError
from ..interceptor import Exchange
from ..peer import Deadlines
from ..protocol.downgrade import downgrade_result
from ..wire import to_json
from ..wire.codes import INVALID_PARAMS
from .asking import missing_capability
from .config import MCPServerConfig
from .context import Context
from .results import Content, as_content, error_content, text_result
from .resumed import Rest
from .sealing import KeyRing
from .signature import InvalidArguments
from .tools import NO_ARGUMENTS, ToolEntry
from .workers import Workers

__all__ = ["Calls"]

log = logging.getLogger("fairlead.server")


class Calls:
    """Executes tools under their time limits."""

    def __init__(
        self,
        config: MCPServerConfig,
        meta: dict[str, Any] | None = None,
        state: Callable[[], Any] | None = None,
    ) -> None:
        """`meta` stands in every result for a stateless caller, `state` is what handlers share."""
        self._config = config
        self._state = state
        self._meta = meta or {}
        self._ring: KeyRing | None = None
        self._level = config.log_level.lower()
        self._workers = Workers()
        self._expired: set[asyncio.Task[Any]] = set()  # cancelled by us, because of their time
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
        context = self._context(exchange) if entry.wants_context else None
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
                    value = await self._watched(entry, Rest(coroutine, waiting), context)
            else:
                value = await self._watched(
                    entry, self._workers.run(entry.call, arguments, context), context
                )
                if isinstance(value, Awaitable):  # a coroutine function in a plain wrapper
                    value = await self._watched(entry, value, context)
            if context is not None and context.round_ended:
                return self._asks(context)  # it caught its cancellation and went on
            convert = entry.convert
            if type(value) is str and convert is None:
                return text_result(value, tail)
            content = as_content(value, tail) if convert is None else convert(value, tail)
            return _for(exchange, content)
        except asyncio.CancelledError:
            if context is None or not context.round_ended or not _only_ours():
                raise
            return self._asks(context)
        except (Exception, SystemExit) as exc:
            return self._explained(entry, context, exc, tail)
        finally:
            if context is not None:
                context.release()

    def _context(self, exchange: Exchange) -> Context:
        state = None if self._state is None else self._state()
        return Context(exchange, self._level, self.ring, self._config.input_timeout, state)

    @property
    def ring(self) -> KeyRing:
        """What seals the state of calls that ask; made when the first one does."""
        if self._ring is None:
            self._ring = KeyRing.from_environment()
        return self._ring

    def _asks(self, context: Context) -> bytes:
        assert context.rounds is not None
        return context.rounds.result({"_meta": self._meta})

    def run_inline(self, entry: ToolEntry, exchange: Exchange, tail: bytes) -> bytes:
        """The same for a plain function that is quick and never blocks."""
        context = self._context(exchange) if entry.wants_context else None
        try:
            given = exchange.head.arguments
            try:
                arguments = entry.decode(NO_ARGUMENTS if given is UNSET else given)
            except InvalidArguments:
                arguments = _decode_again(entry, given)
            value = entry.call(arguments, context)
            convert = entry.convert
            content = as_content(value, tail) if convert is None else convert(value, tail)
            return _for(exchange, content)
        except (Exception, SystemExit) as exc:
            return self._explained(entry, context, exc, tail)

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

    def _expire(self, task: asyncio.Task[Any]) -> None:
        self._expired.add(task)
        task.cancel()

    def _deadlines(self) -> "Deadlines[asyncio.Task[Any]]":
        loop = asyncio.get_running_loop()
        if loop is not self._timer_loop or self._timer is None:
            self._timer_loop = loop
            self._timer = self._timers.setdefault(loop, Deadlines(loop))
        return self._timer

    # Every error is logged before it is returned.

    def _explained(
        self, entry: ToolEntry, context: Context | None, exc: BaseException, tail: bytes
    ) -> bytes:
        """A result that says what went wrong; a refusal of the whole request stays one."""
        match exc:
            case RpcError():
                raise exc
            case MCPToolError():
                return self._failed(entry, context, exc, tail)
            case CannotAsk():
                return self._failed(entry, context, _cannot_ask(exc, context), tail)
            case InvalidArguments():
                return self._failed(entry, context, _invalid(entry, exc), tail)
        log.error("tool %s failed", entry.name, exc_info=exc)
        error = MCPToolError(f"{type(exc).__name__}: {exc}", code=MCPErrorCode.EXECUTION_ERROR)
        return self._failed(entry, context, error, tail, logged=True)

    def _failed(
        self,
        entry: ToolEntry,
        context: Context | None,
        error: MCPToolError,
        tail: bytes,
        *,
        logged: bool = False,
    ) -> bytes:
        error.tool_name = error.tool_name or entry.name
        if error.correlation_id is None:
            error.correlation_id = _correlation_id(context)
        if not logged:
            log.warning("%s [%s]: %s", entry.name, error.correlation_id, error)
        return error_content(error, tail).result


def _for(exchange: Exchange, content: Content) -> bytes:
    """A result in words that the caller's revision knows."""
    if content.plain:
        return content.result
    return downgrade_result("tools/call", content.result, exchange.caller.revision)


def _only_ours() -> bool:
    """Whether the cancellation of this task is the one that ended a round, and no other."""
    task = asyncio.current_task()
    return task is not None and task.uncancel() == 0


def _cannot_ask(exc: CannotAsk, context: Context | None) -> MCPToolError:
    """A stateless caller is told which capability would help; others get a result to read."""
    if context is not None and context.exchange.caller.stateless:
        raise missing_capability(exc) from exc
    return MCPToolError(str(exc), code=MCPErrorCode.DEPENDENCY_MISSING)


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


def _correlation_id(context: Context | None) -> str:
    if context is not None:
        return context.correlation_id
    import secrets

    return secrets.token_hex(8)


def _short(value: Any) -> Any:
    """Enough of a value to recognize it."""
    text = to_json(value)
    return value if len(text) <= 200 else text[:200].decode("utf-8", "replace") + "…"
