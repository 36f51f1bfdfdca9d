"""Requests for input that tools, resources and prompts send before their result."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ...errors import CannotAsk, RpcError
from ...interceptor import Answer, Exchange
from ...protocol.methods import nested_capability
from ...wire.error_codes import INVALID_REQUEST, MISSING_CAPABILITY
from ..context.context import Context
from ..features.prompt_entry import PromptEntry
from ..features.resource_registry import ResourceEntry
from ..results.result_envelope import ResultEnvelope
from .handler_errors import error_for_caller
from .worker_threads import WorkerThreads

__all__ = ["EntryRequests", "ends_round", "missing_capability", "questions_of"]


def missing_capability(exc: CannotAsk) -> RpcError:
    """Return the error that names the capability a stateless client would have to declare."""
    required = nested_capability(exc.capability)
    return RpcError(MISSING_CAPABILITY, str(exc), {"requiredCapabilities": required})


def questions_of(context: Context, meta: dict[str, Any]) -> bytes:
    """Return the result that sends the pending requests for input to a stateless client."""
    assert context.rounds is not None
    return context.rounds.result({"_meta": meta})


def ends_round(context: Context) -> bool:
    """Return True if this task was cancelled only by the end of a round."""
    task = asyncio.current_task()
    # A count above 0 after `uncancel` means that the peer has cancelled the call as well.
    return context.round_ended and task is not None and task.uncancel() == 0


R = TypeVar("R")
E = TypeVar("E", bound=PromptEntry | ResourceEntry)


class EntryRequests(ABC, Generic[R, E]):
    """Requests for one registered entry, a prompt or a resource, from clients of both eras."""

    def __init__(
        self,
        registry: R,
        workers: WorkerThreads,
        make_context: Callable[[Exchange], Context],
        envelope: ResultEnvelope,
        meta: dict[str, Any],
    ) -> None:
        """`meta` is included in results that request input from a stateless client."""
        self._registry = registry
        self._workers = workers
        self._make_context = make_context
        self._envelope = envelope
        self._meta = meta

    async def answer(self, exchange: Exchange) -> Answer:
        """Return the result, or the requests for input that precede it.

        Raises:
            RpcError: The entry is unknown, an argument is missing, or its function failed; the
                error is logged.
        """
        context = None
        try:
            entry, values = self._find(exchange)
            # An entry of a mounted server is handled by that server.
            if entry.home is not None:
                return await entry.home(exchange)
            signature = entry.signature
            if signature is None or signature.context_name is None:
                return await self._result(exchange, entry, values, None)
            context = self._make_context(exchange)
            work = self._result(exchange, entry, values, context)
            return await _run_or_request_input(context, work, self._meta)
        # Content providers and prompts are user code and may raise anything.
        except Exception as exc:
            raise error_for_caller(exc, exchange, context) from None

    @abstractmethod
    def _find(self, exchange: Exchange) -> tuple[E, dict[str, str]]:
        """Return the entry that the request names, and the arguments of its function.

        Raises:
            RpcError: The entry is unknown, or an argument is missing.
        """

    @abstractmethod
    async def _result(
        self, exchange: Exchange, entry: E, values: dict[str, str], context: Context | None
    ) -> bytes:
        """Call the function of an entry and encode the result for the caller."""


async def _run_or_request_input(
    context: Context, work: Coroutine[Any, Any, bytes], meta: dict[str, Any]
) -> bytes:
    """Return the result of `work`, or the requests for input that precede it.

    Raises:
        RpcError: The client does not support the request for input.
    """
    try:
        answer = await work
        # The function may have caught the cancellation that ended its round.
        return questions_of(context, meta) if context.round_ended else answer
    except asyncio.CancelledError:
        if ends_round(context):
            return questions_of(context, meta)
        raise
    except CannotAsk as exc:
        if not context.exchange.caller.stateless:
            raise RpcError(INVALID_REQUEST, str(exc)) from exc
        raise missing_capability(exc) from exc
    finally:
        context.release()
