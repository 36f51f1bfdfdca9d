"""What a handler knows about the call it serves, and how it talks back while serving it."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import Raw, UnsetType

from ...errors import CannotAsk, LocalProtocolError, RpcError
from ...interceptor import Exchange, Handler
from ...protocol.caller import Caller
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.downgrade.params import downgrade_params
from ...protocol.identity.principal import principal_name
from ...protocol.revisions import NEWEST_HANDSHAKE
from ...wire import Notification, Request, to_json
from ...wire.error_codes import INVALID_PARAMS
from ..results.encode_fragment import FragmentSender, encode_fragment
from .correlation_id import HEADER, correlation_id
from .pausable_timeout import PausableTimeout

if TYPE_CHECKING:  # loaded by the first question: most servers ask nothing
    from ...protocol.sealed_state import KeyRing
    from .elicitation_forms import Elicited
    from .server_input_rounds import ServerInputRounds

__all__ = ["LOG_LEVELS", "Context", "InputRoundEnded"]

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_SEVERITY = {level: index for index, level in enumerate(LOG_LEVELS)}

T = TypeVar("T")

log = logging.getLogger("fairlead.server")


class Context:
    """The call under way, for handlers with a parameter annotated `Context`, whatever its name.

    Its methods may be awaited by any task of the loop; from a synchronous handler, which runs in a
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
        self.state = state  # what the server's lifespan yielded
        self.clock = PausableTimeout()
        self.rounds: ServerInputRounds | None = None
        self._ring = ring
        self._handler = handler  # of the server itself
        self._input_timeout = input_timeout
        self._default_level = default_level
        self._progress = float("-inf")
        self._parts = 0
        self._over = False
        self._correlation_id: str | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._waits: set[Future[Any]] = set()

    @property
    def request_id(self) -> int | str:
        return self.exchange.request_id

    @property
    def protocol_version(self) -> str:
        return self.exchange.caller.revision.value

    @property
    def client(self) -> str:
        """How the client calls itself."""
        return self.exchange.caller.name

    @property
    def principal(self) -> str | None:
        """The authenticated identity that makes the call; `None` for an anonymous client."""
        return principal_name(self.exchange.caller.principal)

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta`, as it was sent."""
        params = self.exchange.message.params
        if isinstance(params, UnsetType):
            return {}
        return msgspec.json.decode(params, type=_WithMeta).meta

    @property
    def correlation_id(self) -> str:
        """Names this call in logs and error results."""
        if self._correlation_id is None:
            self._correlation_id = correlation_id(self.exchange)
        return self._correlation_id

    def close_stream(self) -> None:
        """Hang up on a client that waits over HTTP, in the revisions where it then comes back.

        For calls that take long: it saves the connection, and the client asks again for the
        answer. Elsewhere this does nothing.
        """
        self.exchange.edge.detach(self.exchange)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far we are, if it wants to know.

        Values that do not grow are dropped.
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
        """Send a part of the result before the rest is there; anything that a tool may return.

        Where the transport has no parts it is progress, with the part's text as the message, for
        a caller that asked for progress. The result itself still has to be complete.
        """
        self._parts += 1
        blocks, text = encode_fragment(content)
        edge = self.exchange.edge
        if isinstance(edge, FragmentSender):
            await edge.fragment(self.exchange, blocks)
        else:
            await self.progress(max(self._parts, self._progress + 1), message=text or None)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any more: it was cancelled, or its time is over.

        For synchronous handlers, which cannot be interrupted: look at it now and then.
        """
        return self._over or (self._task is not None and self._task.cancelling() > 0)

    def check_cancelled(self) -> None:
        """End a synchronous handler that nobody waits for any more.

        Raises:
            asyncio.CancelledError: which is no `Exception`: let it pass.
        """
        if self.cancelled:
            raise asyncio.CancelledError

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if it wants messages of this level.

        Raises:
            ValueError: if there is no such level.
        """
        if level not in _SEVERITY:
            raise ValueError(f"no log level {level!r}; there are {', '.join(LOG_LEVELS)}")
        wanted = _SEVERITY.get(self._wanted_level() or "")
        if wanted is None or _SEVERITY[level] < wanted:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._tell("notifications/message", params)

    async def debug(self, data: Any) -> None:
        await self.log("debug", data)

    async def info(self, data: Any) -> None:
        await self.log("info", data)

    async def warning(self, data: Any) -> None:
        await self.log("warning", data)

    async def error(self, data: Any) -> None:
        await self.log("error", data)

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource of this server, each with `text` or `blob`, as a client of the
        same principal would read them.

        Raises:
            RpcError: if there is none, or it cannot be read.
        """
        from ...interceptor.direct_edge import direct_exchange

        if self._handler is None:
            raise RpcError(INVALID_PARAMS, f"There is no server here to read {uri} from")
        caller = Caller(NEWEST_HANDSHAKE, False, self.exchange.caller.principal)
        request = Request(self.request_id, "resources/read", Raw(to_json({"uri": uri})))
        answer = await self._handler(
            direct_exchange(request, caller, headers={HEADER: self.correlation_id})
        )
        return msgspec.json.decode(answer or b"{}", type=_Contents).contents

    # Asking the caller's side

    def can(self, capability: str) -> bool:
        """Whether the client declared a capability, by its dotted path: `sampling.tools`."""
        return self.exchange.caller.can(capability)

    @overload
    async def elicit(
        self, message: str, answer: type[T], *, key: str | None = None
    ) -> "Elicited[T]": ...

    @overload
    async def elicit(
        self, message: str, answer: Mapping[str, Any], *, key: str | None = None
    ) -> "Elicited[dict[str, Any]]": ...

    async def elicit(self, message: str, answer: Any, *, key: str | None = None) -> "Elicited[Any]":
        """Ask the person at the other end. `answer` is the type of the answer, or a JSON Schema.

        In the stateless era the function runs again from the top when the answer is there: code
        before a question runs once per round. `key` names the question; without it, its position.

        Raises:
            CannotAsk: the client has no way to ask a person.
            RpcError: -32602, if what came back does not fit.
        """
        from .elicitation_forms import ElicitationForm

        form = ElicitationForm(answer)
        params = {"mode": "form", "message": message, "requestedSchema": form.schema}
        return form.read(await self._ask("elicitation/create", params, "elicitation.form", key))

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> str:
        """Send the person to a page; for what must not pass through the client. Returns the action.

        "accept" means that they agreed to open it, not that they are done there.
        """
        import secrets

        from .elicitation_forms import ElicitationForm

        params: dict[str, Any] = {"mode": "url", "message": message, "url": url}
        if not self.exchange.caller.stateless:
            params["elicitationId"] = secrets.token_urlsafe(16)
        answer = await self._ask("elicitation/create", params, "elicitation.url", key)
        return ElicitationForm({}).read(answer).action

    async def sample(
        self,
        messages: str | list[Any],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Ask the client's model. A string is one message of the user; options as on the wire."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        params = {"messages": messages, "maxTokens": max_tokens, **options}
        needed = "sampling.tools" if "tools" in params or "toolChoice" in params else "sampling"
        answer = await self._ask("sampling/createMessage", params, needed, key)
        return _object(answer, "sampling")

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """The folders that the client wants us to work in."""
        answer = _object(await self._ask("roots/list", {}, "roots", key), "roots")
        found = answer.get("roots")
        if not isinstance(found, list):
            raise RpcError(INVALID_PARAMS, "The answer to roots/list has no roots")
        return found

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do something once across the rounds of a call, and return what it returned.

        The result travels in the sealed state as JSON. Once per chain of rounds, not once for ever.
        """
        rounds = self._rounds() if self.exchange.caller.stateless else None
        if rounds is not None and name in rounds.steps():
            return msgspec.json.decode(rounds.steps()[name])
        value = function(*args, **kwargs)
        if inspect.isawaitable(value):
            value = await value
        if rounds is not None:
            rounds.steps()[name] = Raw(to_json(value))
        return value

    @property
    def round_ended(self) -> bool:
        """Whether questions are open, and the function was stopped for them."""
        return self.rounds is not None and self.rounds.ended

    def wait(self, awaitable: Any) -> Any:
        """From the thread of a synchronous handler: run something on the loop and wait for it."""
        waiting = asyncio.run_coroutine_threadsafe(awaitable, self._loop)
        self._waits.add(waiting)
        try:
            return waiting.result()
        except CancelledError:
            raise InputRoundEnded from None
        finally:
            self._waits.discard(waiting)

    def release(self) -> None:
        """The call is over: a thread that still waits here must not wait for ever."""
        self._over = True
        for waiting in tuple(self._waits):
            waiting.cancel()

    async def _ask(
        self, method: str, params: dict[str, Any], capability: str, key: str | None
    ) -> Raw:
        caller = self.exchange.caller
        if not caller.can(capability):
            whole = capability.partition(".")[0]
            if capability == "elicitation.form" and not caller.can(whole):
                capability = whole  # forms are what it stands for when nothing else is said
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
            ring = self._ring or KeyRing()
            self.rounds = ServerInputRounds(self.exchange, ring, self._input_timeout, self._task)
        return self.rounds

    def _wanted_level(self) -> str | None:
        """Stateless callers say it with each request; sessions once, and before that we choose."""
        caller = self.exchange.caller
        if caller.stateless:
            return caller.log_level
        return self.exchange.edge.log_level or self._default_level

    async def _tell(self, method: str, params: dict[str, Any]) -> None:
        body = downgrade_params(method, Raw(to_json(params)), self.exchange.caller.revision)
        await self.exchange.edge.notify_caller(self.exchange, Notification(method, body))


class InputRoundEnded(BaseException):
    """Ends a synchronous handler whose questions go out now. Not an `Exception`: let it pass."""


def _object(raw: Raw, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(INVALID_PARAMS, f"The answer to {what} is malformed: {exc}") from exc


class _Contents(msgspec.Struct):
    contents: list[dict[str, Any]] = []


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")
