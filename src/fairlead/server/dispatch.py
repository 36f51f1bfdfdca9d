"""Dispatch of requests by method, and handlers for lists, completions and log levels."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange
from ..protocol.caller import LOG_LEVELS
from ..protocol.methods import by_era
from ..protocol.trace_context import current_trace, request_trace
from ..wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from .decode_params import decode_params
from .execution.handler_errors import error_for_caller
from .features.completion_registry import Completions
from .features.paged_list import PagedList
from .results.result_envelope import ResultEnvelope

__all__ = ["MethodRoute", "RequestDispatcher", "answer_completion", "answer_list", "set_level"]


class MethodRoute(NamedTuple):
    """The functions that handle one method."""

    # Handles a request without waiting; returns None for a request that must be handled in a task.
    at_once: Callable[[Exchange], Answer] | None
    # Handles a request in a task; None if `at_once` handles every request of the method.
    in_task: Callable[[Exchange], Awaitable[Answer]] | None = None
    # falsy if `server/discover` does not currently declare the capability of the method
    offers: object = True


class RequestDispatcher:
    """Dispatcher of requests to the routes of their methods. Errors are logged before they are
    raised.
    """

    def __init__(self, *, inline: bool) -> None:
        """`inline` is False if the server has interceptors, which `answer_inline` would bypass."""
        self._routes: tuple[dict[str, MethodRoute], dict[str, MethodRoute]] = ({}, {})
        self._inline = inline
        # raises `InsufficientScope` if the token of a request lacks required scopes
        self.check_scopes: Callable[[Exchange], None] = lambda _: None
        self.inline_methods: set[str] = set()  # methods that `answer_inline` may be called for

    def register(self, routes: Mapping[str, MethodRoute]) -> None:
        """Replace all routes."""
        self._routes = by_era(routes)
        for method, route in routes.items():
            if route.in_task is None:
                self.allow_inline(method)

    def allow_inline(self, method: str) -> None:
        """Allow `answer_inline` for this method, unless the server has interceptors."""
        if self._inline:
            self.inline_methods.add(method)

    def handle(self, exchange: Exchange) -> Awaitable[Answer]:
        """Handle a request.

        Raises:
            RpcError: The request is rejected, now or when the result is awaited.
        """
        try:
            answer = self._find_route(exchange).in_task or self._answer_later
        except RpcError as exc:
            raise error_for_caller(exc, exchange) from None
        meta = exchange.head.meta
        if (not isinstance(meta, UnsetType) and meta.names_trace) or (
            # An existing trace belongs to another request, unless this process sent the request.
            current_trace.get() is not None and exchange.transport.transport_type != "direct"
        ):
            return _traced(exchange, answer)
        return answer(exchange)

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer a request that needs no wait; return None for other requests.

        Raises:
            RpcError: The request is rejected.
        """
        try:
            answer = self._find_route(exchange).at_once
            return None if answer is None else answer(exchange)
        # `at_once` calls inline tools, which are user code and may raise anything.
        except Exception as exc:
            raise error_for_caller(exc, exchange) from None

    async def _answer_later(self, exchange: Exchange) -> Answer:
        return self.answer_inline(exchange)

    def _find_route(self, exchange: Exchange) -> MethodRoute:
        """Return the route of a method.

        Raises:
            RpcError: -32601, the method is unknown; or the token of the request lacks scopes.
        """
        stateless = exchange.caller.stateless
        route = self._routes[stateless].get(exchange.message.method)
        # A stateless client may call only the methods of capabilities that the server declares.
        if route is None or (stateless and not route.offers):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        self.check_scopes(exchange)
        return route


async def _traced(exchange: Exchange, answer: Callable[[Exchange], Awaitable[Answer]]) -> Answer:
    with request_trace(exchange.head.meta):
        return await answer(exchange)


def answer_list(envelope: ResultEnvelope, listing: PagedList[Any], exchange: Exchange) -> bytes:
    """Return one page of a list.

    Raises:
        RpcError: -32602, the cursor is unknown.
    """
    params = exchange.message.params
    cursor = None
    if not isinstance(params, UnsetType):
        cursor = decode_params(params, _CursorParams).cursor
    members = listing.page(cursor, exchange.caller.revision)
    return envelope.listed(members, exchange.caller)


async def answer_completion(
    envelope: ResultEnvelope, completions: Completions, exchange: Exchange
) -> bytes:
    """Return the completions of an argument.

    Raises:
        RpcError: The reference is unknown, or the completion function failed; the error is logged.
    """
    try:
        members = await completions.complete(exchange.message.params)
    # Completion functions are user code and may raise anything.
    except Exception as exc:
        raise error_for_caller(exc, exchange) from None
    return envelope.answered(members, exchange.caller)


def set_level(exchange: Exchange) -> bytes:
    """Set the lowest level of the log messages that a session accepts.

    Raises:
        RpcError: -32602, the level is unknown.
    """
    level = decode_params(exchange.message.params, _LevelParams).level
    if level not in LOG_LEVELS:
        raise RpcError(
            INVALID_PARAMS,
            f"Unknown log level {level!r}: expected one of {', '.join(LOG_LEVELS)}",
        )
    exchange.edge.log_level = level
    return b"{}"


class _CursorParams(Struct):
    cursor: str | None = None


class _LevelParams(Struct):
    level: str
