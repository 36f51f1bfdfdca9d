"""Handler of `prompts/get`."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from ..decode_params import decode_params
from ..execution.request_input import EntryRequests
from ..execution.worker_threads import WorkerThreads
from ..results.encode_result import prompt_messages
from ..results.result_envelope import ResultEnvelope
from .paged_list import PagedList
from .prompt_entry import PromptEntry

__all__ = ["PromptGets"]


class PromptGets(EntryRequests[PromptEntry]):
    """Renderer of prompts for clients of both eras."""

    def __init__(
        self,
        prompts: PagedList[PromptEntry],
        workers: WorkerThreads,
        make_context: Callable[[Exchange], Context],
        envelope: ResultEnvelope,
        meta: dict[str, Any],
    ) -> None:
        super().__init__(make_context, envelope, meta)
        self._prompts = prompts
        self._workers = workers

    def _find(self, exchange: Exchange) -> tuple[PromptEntry, dict[str, str]]:
        params = decode_params(exchange.message.params, _PromptParams)
        entry = self._prompts.get(params.name)
        if entry is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
        given = params.arguments or {}
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
        if entry.asynchronous:
            value = await entry.render(values, context)
        else:
            value = await self._workers.run(entry.render, values, context)
        result: dict[str, Any] = {"messages": prompt_messages(value)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        # The envelope adds its own members, so the braces of the object are removed.
        answer = self._envelope.answered(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


class _PromptParams(Struct):
    name: str
    arguments: dict[str, str] | None = None
