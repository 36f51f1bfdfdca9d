"""The context of a call: information about the request, and messages to its client."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import Raw, UnsetType

from ...errors import CannotAsk, LocalProtocolError, RpcError
from ...interceptor import Exchange, Handler
from ...keyword_arguments import lazy_hints, named_arguments, require_known
from ...protocol.caller import LOG_LEVELS, Caller, principal_name
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.downgrade.params import downgrade_params
from ...protocol.revisions import NEWEST_HANDSHAKE
from ...wire import Notification, Request, to_json
from ...wire.error_codes import INVALID_PARAMS
from ..results.encode_fragment import FragmentSender, encode_fragment
from .correlation_id import HEADER, correlation_id
from .pausable_timeout import PausableTimeout

if TYPE_CHECKING:  # Imported on first use, because most servers never request input.
    from ...protocol.sealed_state import KeyRing
    from .elicitation_forms import Elicited
    from .server_input_rounds import ServerInputRounds

__all__ = ["Context", "InputRoundEnded"]

# Params of `sampling/createMessage` besides `messages` and `maxTokens`, in all revisions.
_SAMPLING = (
    *("_meta", "includeContext", "metadata", "modelPreferences", "stopSequences"),
    *("systemPrompt", "task", "temperature", "toolChoice", "tools"),
)
_SEVERITY = {level: index for index, level in enumerate(LOG_LEVELS)}

T = TypeVar("T")

_HINTS = "fairlead.server.server_migration_hints"
_log_arguments = named_arguments(hints=lazy_hints(_HINTS, "LOG_KEYWORDS"))

log = logging.getLogger("fairlead.server")


class Context:
    """The current call, passed to handlers that have a parameter annotated `Context`.

    Any task of the event loop may await its methods. In a synchronous handler, which runs in a
    thread, use `ctx.wait(ctx.progress(...))`.
    """

    def __init__(
        self,
        exchange: Exchange,
        default_level: str = "info",
        ring: "KeyRing | None" = None,
        input_timeout: float = 600.0,
        state: Any = None,
        handler: Handler | None = None,
    ) -> None:
        self.exchange = exchange
        self.state = state  # the value that the server's lifespan yielded
        self.clock = PausableTimeout()
        self.rounds: ServerInputRounds | None = None
        self._ring = ring
        self._handler = handler  # handles all requests to the server; used by `read_resource`
        self._input_timeout = input_timeout
        self._default_level = default_level
        self._progress = float("-inf")
        self._parts = 0
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._waits: set[Future[Any]] = set()

    # Hidden from type checkers, which would otherwise accept any misspelled name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Loaded on first use: only errors need them.
            from ...suggestions import missing_attribute
            from ..server_migration_hints import CONTEXT_HINTS

            raise missing_attribute(self, name, CONTEXT_HINTS)

    @property
    def request_id(self) -> int | str:
        return self.exchange.request_id

    @property
    def protocol_version(self) -> str:
        return self.exchange.caller.revision.value

    @property
    def client(self) -> str:
        """The name of the client."""
        return self.exchange.caller.name

    @property
    def principal(self) -> str | None:
        """The authenticated identity of the client; None for an anonymous client."""
        return principal_name(self.exchange.caller.principal)

    @property
    def issuer(self) -> str | None:
        """The issuer of this request's access token; None without a token."""
        return self.exchange.caller.issuer

    @property
    def subject(self) -> str | None:
        """The subject of the access token (a user or program), unique per issuer."""
        return self.exchange.caller.subject

    @property
    def client_id(self) -> str | None:
        """The OAuth client that obtained the access token, if the token names it."""
        return self.exchange.caller.client_id

    @property
    def claims(self) -> Mapping[str, Any]:
        """All claims of this request's access token; empty without a token."""
        return self.exchange.caller.claims

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of this request's access token, including implied scopes."""
        return self.exchange.caller.scopes

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` object of the request, unchanged."""
        params = self.exchange.message.params
        if isinstance(params, UnsetType):
            return {}
        return msgspec.json.decode(params, type=_WithMeta).meta

    @cached_property
    def correlation_id(self) -> str:
        """The id of this call in logs and error results."""
        return correlation_id(self.exchange)

    def close_stream(self) -> None:
        """Close the HTTP stream of a waiting client if its revision allows clients to resume
        streams.

        Use it in long calls: the connection is freed, and the client reconnects to fetch the
        response. With other transports and revisions this does nothing.
        """
        self.exchange.edge.detach(self.exchange)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send a progress notification, if the caller requested progress.

        Values that do not increase are dropped, because the specification forbids them.
        """
        token = self.exchange.progress_token
        if token is None or progress <= self._progress:
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._tell("notifications/progress", params)

    async def fragment(self, content: Any) -> None:
        """Send a part of the result in advance. `content` is a value that a tool
        may return.

        If the transport does not support fragments, the part is sent as progress, with its text as
        the message, if the caller requested progress. The final result must still be complete.
        """
        self._parts += 1
        blocks, text = encode_fragment(content)
        edge = self.exchange.edge
        if isinstance(edge, FragmentSender):
            await edge.fragment(self.exchange, blocks)
        else:
            # The number of parts is the progress, unless the handler has reported a higher value.
            await self.progress(max(self._parts, self._progress + 1), message=text or None)

    @property
    def cancelled(self) -> bool:
        """Return True if the call was cancelled or has timed out.

        Synchronous handlers cannot be interrupted and should read this from time to time.
        """
        return self._over or (self._task is not None and self._task.cancelling() > 0)

    def check_cancelled(self) -> None:
        """Raise an exception in a synchronous handler if its call was cancelled or has timed out.

        Raises:
            asyncio.CancelledError: The call is over. Not an `Exception`; do not catch it.
        """
        if self.cancelled:
            raise asyncio.CancelledError

    @_log_arguments
    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if it accepts messages of this level.

        Raises:
            ValueError: The level is unknown.
        """
        if level not in _SEVERITY:
            raise ValueError(
                f"unknown log level {level!r}: expected one of {', '.join(LOG_LEVELS)}"
            )
        wanted = _SEVERITY.get(self._wanted_level() or "")
        if wanted is None or _SEVERITY[level] < wanted:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._tell("notifications/message", params)

    @_log_arguments
    async def debug(self, data: Any) -> None:
        await self.log("debug", data)

    @_log_arguments
    async def info(self, data: Any) -> None:
        await self.log("info", data)

    @_log_arguments
    async def warning(self, data: Any) -> None:
        await self.log("warning", data)

    @_log_arguments
    async def error(self, data: Any) -> None:
        await self.log("error", data)

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """Read a resource of this server with the permissions of the current principal.

        Returns the contents, each with `text` or `blob`.

        Raises:
            RpcError: The resource is unknown or cannot be read.
        """
        from ...interceptor.direct_edge import direct_exchange

        if self._handler is None:
            raise RpcError(INVALID_PARAMS, f"Cannot read {uri}: this context has no server")
        caller = Caller(NEWEST_HANDSHAKE, False, self.exchange.caller.principal)
        request = Request(self.request_id, "resources/read", Raw(to_json({"uri": uri})))
        answer = await self._handler(
            direct_exchange(request, caller, headers={HEADER: self.correlation_id})
        )
        return msgspec.json.decode(answer or b"{}", type=_Contents).contents

    def can(self, capability: str) -> bool:
        """Return True if the client declared a capability, given as a dotted path:
        `sampling.tools`.
        """
        return self.exchange.caller.can(capability)

    @overload
    async def elicit(
        self, message: str, answer: type[T], *, key: str | None = None
    ) -> "Elicited[T]": ...

    @overload
    async def elicit(
        self, message: str, answer: Mapping[str, Any], *, key: str | None = None
    ) -> "Elicited[dict[str, Any]]": ...

    @overload
    async def elicit(
        self, message: str, answer: list[str], *, key: str | None = None
    ) -> "Elicited[str]": ...

    @named_arguments(hints=lazy_hints(_HINTS, "ELICIT_KEYWORDS"))
    async def elicit(self, message: str, answer: Any, *, key: str | None = None) -> "Elicited[Any]":
        """Ask the user for input. `answer` is the type of the response, a list of choices, or a
        JSON Schema.

        For a stateless client, the function runs again from the top when the response has arrived:
        code before the request runs once per round. `key` identifies the request; by default, its
        position in the function does.

        Raises:
            CannotAsk: The client does not support elicitation.
            RpcError: -32602, the response does not match the schema.
        """
        from .elicitation_forms import ElicitationForm

        form = ElicitationForm(answer)
        params = {"mode": "form", "message": message, "requestedSchema": form.schema}
        return form.read(await self._ask("elicitation/create", params, "elicitation.form", key))

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> str:
        """Ask the user to open a page, for data that must not pass through the client. Return the
        action.

        "accept" means that the user agreed to open the page, not that they completed it.

        Raises:
            CannotAsk: The client did not declare `elicitation.url`.
        """
        import secrets

        from .elicitation_forms import ElicitationForm

        params: dict[str, Any] = {"mode": "url", "message": message, "url": url}
        if not self.exchange.caller.stateless:
            # Only the handshake revisions have `elicitationId`.
            params["elicitationId"] = secrets.token_urlsafe(16)
        answer = await self._ask("elicitation/create", params, "elicitation.url", key)
        return ElicitationForm({}).read(answer).action

    @named_arguments
    async def sample(
        self,
        messages: str | list[Any],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Request a completion from the client's model.

        A string is one message of the user; `options` are parameters as on the wire, such as
        `systemPrompt`.

        Raises:
            CannotAsk: The client did not declare `sampling`, or `sampling.tools` for tools.
            TypeError: An option is unknown.
        """
        require_known(options, ("max_tokens", *_SAMPLING), lazy_hints(_HINTS, "SAMPLE_KEYWORDS"))
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        params = {"messages": messages, "maxTokens": max_tokens, **options}
        needed = "sampling.tools" if "tools" in params or "toolChoice" in params else "sampling"
        answer = await self._ask("sampling/createMessage", params, needed, key)
        return _object(answer, "sampling")

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the folders that the client wants the server to work in.

        Raises:
            CannotAsk: The client did not declare `roots`.
            RpcError: -32602, the response is malformed.
        """
        answer = _object(await self._ask("roots/list", {}, "roots", key), "roots")
        found = answer.get("roots")
        if not isinstance(found, list):
            raise RpcError(INVALID_PARAMS, "The response to roots/list has no list 'roots'")
        return found

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function once across the rounds of a call, and return its result.

        The result is stored as JSON in the sealed state. A new call of the same tool runs the
        function again.
        """
        rounds = self._rounds() if self.exchange.caller.stateless else None
        if rounds is not None and name in rounds.steps:
            return msgspec.json.decode(rounds.steps[name])
        value = function(*args, **kwargs)
        if inspect.isawaitable(value):
            value = await value
        if rounds is not None:
            rounds.steps[name] = Raw(to_json(value))
        return value

    @property
    def round_ended(self) -> bool:
        """Return True if the handler was stopped to send its pending requests for input to the
        client.
        """
        return self.rounds is not None and self.rounds.ended

    def wait(self, awaitable: Any) -> Any:
        """Run an awaitable on the event loop from the thread of a synchronous handler, and return
        its result.

        Raises:
            RuntimeError: The caller runs on the event loop, as coroutine functions and functions
                with `inline=True` do.
        """
        if _is_in_loop():
            # A coroutine that is never awaited would cause a warning.
            getattr(awaitable, "close", bool)()
            raise RuntimeError(
                "ctx.wait() is for plain functions, which run in threads; use `await` in a "
                "coroutine function, and register a function that waits without inline=True"
            )
        waiting = asyncio.run_coroutine_threadsafe(awaitable, self._loop)
        self._waits.add(waiting)
        try:
            return waiting.result()
        # `release` cancelled the future: the call is over, and the handler must not continue.
        except CancelledError:
            raise InputRoundEnded from None
        finally:
            self._waits.discard(waiting)

    def release(self) -> None:
        """Mark the call as over and cancel the futures that its threads await in `wait`."""
        self._over = True
        # A copy, because a woken thread removes its future from the set.
        for waiting in tuple(self._waits):
            waiting.cancel()

    async def _ask(
        self, method: str, params: dict[str, Any], capability: str, key: str | None
    ) -> Raw:
        caller = self.exchange.caller
        if not caller.can(capability):
            whole = capability.partition(".")[0]
            if capability == "elicitation.form" and not caller.can(whole):
                # An empty `elicitation` capability means form support, so the error names it.
                capability = whole
            raise CannotAsk(
                f"The client {caller.name!r} did not declare the capability {capability!r}",
                capability=capability,
            )
        try:
            body = downgrade_params(method, Raw(to_json(params)), caller.revision)
        except DowngradeError as exc:
            raise CannotAsk(str(exc), capability=capability) from exc
        if caller.stateless:
            return await self._rounds().ask(method, msgspec.json.decode(body), key)
        # The time that the user or the model needs does not count against the timeout of the tool.
        self.clock.pause()
        try:
            return await self.exchange.edge.request_caller(self.exchange, method, body)
        except LocalProtocolError as exc:
            raise CannotAsk(str(exc), capability=capability) from exc
        finally:
            self.clock.resume()

    def _rounds(self) -> "ServerInputRounds":
        from ...protocol.sealed_state import KeyRing
        from .server_input_rounds import ServerInputRounds

        if self.rounds is None:
            # A context without a server has no key ring, so no later call can open this state.
            ring = self._ring or KeyRing()
            self.rounds = ServerInputRounds(self.exchange, ring, self._input_timeout, self._task)
        return self.rounds

    def _wanted_level(self) -> str | None:
        """Return the lowest log level that the caller accepts.

        Stateless clients send the level with each request, other clients once per session. Without
        a level, the default applies.
        """
        caller = self.exchange.caller
        if caller.stateless:
            return caller.log_level
        return self.exchange.edge.log_level or self._default_level

    async def _tell(self, method: str, params: dict[str, Any]) -> None:
        body = downgrade_params(method, Raw(to_json(params)), self.exchange.caller.revision)
        await self.exchange.edge.notify_caller(self.exchange, Notification(method, body))


class InputRoundEnded(BaseException):
    """Raised by `Context.wait` when the call is over. Not an `Exception`; do not catch it."""


def _is_in_loop() -> bool:
    """Return True if the current thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _object(raw: Raw, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(INVALID_PARAMS, f"The response to {what} is malformed: {exc}") from exc


class _Contents(msgspec.Struct):
    contents: list[dict[str, Any]] = []


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")
