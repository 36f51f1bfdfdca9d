"""Handlers of `prompts/get` and `resources/read`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType

from ...errors import CannotAsk, RpcError
from ...interceptor import Answer, Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND
from ..context.context import Context
from ..decode_params import decode_params, required_uri
from ..execution.handler_errors import error_for_caller
from ..execution.request_input import ends_round, missing_capability, questions_of
from ..execution.worker_threads import WorkerThreads
from ..results.encode_result import prompt_messages, resource_contents
from ..results.result_envelope import ResultEnvelope
from .paged_list import PagedList
from .prompt_entry import PromptEntry
from .resource_registry import ResourceEntry, Resources

__all__ = ["PromptGets", "ResourceReads"]

R = TypeVar("R")
E = TypeVar("E", bound=PromptEntry | ResourceEntry)


class _EntryRequests(ABC, Generic[R, E]):
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


class PromptGets(_EntryRequests[PagedList[PromptEntry], PromptEntry]):
    """Renderer of prompts for clients of both eras."""

    def _find(self, exchange: Exchange) -> tuple[PromptEntry, dict[str, str]]:
        params = decode_params(exchange.message.params, _PromptParams)
        name = exchange.head.name  # the name whose scopes were checked
        entry = None if isinstance(name, UnsetType) else self._registry.get(name)
        if entry is None:
            text = f"Unknown prompt: {params.name}{self._registry.hint(params.name)}"
            raise RpcError(INVALID_PARAMS, text)
        given = params.arguments or {}
        for argument, text in given.items():
            if not isinstance(text, str):
                raise _not_text(params.name, argument, text)
        if entry.home is None:  # The server of a mounted prompt checks its arguments itself.
            entry.check(given)
        return entry, given

    async def _result(
        self,
        exchange: Exchange,
        entry: PromptEntry,
        values: dict[str, str],
        context: Context | None,
    ) -> bytes:
        caller = exchange.caller
        value = await self._workers.call(
            entry.render, values, context, asynchronous=entry.asynchronous
        )
        result: dict[str, Any] = {"messages": prompt_messages(value, entry.definition.name)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        # The envelope adds its own members, so the braces of the object are removed.
        answer = self._envelope.answered(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


class ResourceReads(_EntryRequests[Resources, ResourceEntry]):
    """Reader of resources for clients of both eras."""

    def _find(self, exchange: Exchange) -> tuple[ResourceEntry, dict[str, str]]:
        uri = required_uri(exchange)
        found = self._registry.find(uri)
        if found is None:
            # The stateless revision has no separate error code for unknown resources.
            stateless = exchange.caller.stateless
            code = INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND
            raise self._registry.not_found(uri, code)
        return found

    async def _result(
        self,
        exchange: Exchange,
        entry: ResourceEntry,
        values: dict[str, str],
        context: Context | None,
    ) -> bytes:
        caller, uri = exchange.caller, exchange.head.uri
        assert not isinstance(uri, UnsetType)  # The entry was found by its URI.
        signature = entry.signature
        given = {} if signature is None else signature.arguments(values, context)
        read = partial(entry.provider, **given)
        value = await self._workers.call(read, asynchronous=entry.asynchronous)
        contents = resource_contents(uri, str(entry.definition.mime_type), value)
        members = to_json({"contents": contents})[1:-1]
        hints = None if entry.cache is None else entry.cache.members()
        answer = self._envelope.listed(members, caller, hints)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))


class _PromptParams(Struct):
    name: str
    arguments: dict[str, Any] | None = None


def _not_text(prompt: str, argument: str, value: Any) -> RpcError:
    encoded = to_json(value).decode()
    return RpcError(
        INVALID_PARAMS,
        f"argument {argument!r} of prompt {prompt!r} is not a string: {encoded:.100}; arguments of "
        "prompts are strings, so send other values as JSON text",
        {"argument": argument},
    )


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
