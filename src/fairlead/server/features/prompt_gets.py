"""Handler of `prompts/get`."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from ...errors import RpcError
from ...interceptor import Answer, Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from ..decode_params import decode_params
from ..execution.handler_errors import error_for_caller
from ..execution.request_input import run_or_request_input
from ..execution.worker_threads import WorkerThreads
from ..results.encode_result import prompt_messages
from ..results.result_envelope import ResultEnvelope
from .paged_list import PagedList
from .prompt_entry import PromptEntry

__all__ = ["PromptGets"]


class PromptGets:
    """Renders prompts for callers of both eras."""

    def __init__(
        self,
        prompts: PagedList[PromptEntry],
        workers: WorkerThreads,
        make_context: Callable[[Exchange], Context],
        envelope: ResultEnvelope,
        meta: dict[str, Any],
    ) -> None:
        """`meta` is part of results that ask a stateless caller for input."""
        self._prompts = prompts
        self._workers = workers
        self._make_context = make_context
        self._envelope = envelope
        self._meta = meta

    async def get(self, exchange: Exchange) -> Answer:
        """Answer `prompts/get`.

        Raises:
            RpcError: The prompt is unknown, an argument is missing, or its function failed; the
                error is logged.
        """
        context = None
        try:
            params = decode_params(exchange.message.params, _PromptParams)
            entry = self._prompts.get(params.name)
            if entry is None:
                raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
            if entry.home is not None:
                return await entry.home(exchange)
            given = params.arguments or {}
            entry.check(given)
            if not entry.wants_context:
                return await self._messages(exchange, entry, given, None)
            context = self._make_context(exchange)
            work = self._messages(exchange, entry, given, context)
            return await run_or_request_input(context, work, self._meta)
        except Exception as exc:
            raise error_for_caller(exc, exchange, context) from None

    async def _messages(
        self,
        exchange: Exchange,
        entry: PromptEntry,
        given: dict[str, str],
        context: Context | None,
    ) -> bytes:
        caller = exchange.caller
        if entry.asynchronous:
            value = await entry.render(given, context)
        else:
            value = await self._workers.run(entry.render, given, context)
        result: dict[str, Any] = {"messages": prompt_messages(value)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        answer = self._envelope.answered(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


class _PromptParams(Struct):
    name: str
    arguments: dict[str, str] | None = None
