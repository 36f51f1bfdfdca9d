"""Handler of `prompts/get`."""

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
from ..results.encode_result import prompt_messages
from .paged_list import PagedList
from .prompt_entry import PromptEntry

__all__ = ["PromptGets"]


class PromptGets(EntryRequests[PagedList[PromptEntry], PromptEntry]):
    """Renderer of prompts for clients of both eras."""

    def _find(self, exchange: Exchange) -> tuple[PromptEntry, dict[str, str]]:
        params = decode_params(exchange.message.params, _PromptParams)
        entry = self._registry.get(params.name)
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
        value = await self._workers.call(
            entry.render, values, context, asynchronous=entry.asynchronous
        )
        result: dict[str, Any] = {"messages": prompt_messages(value)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        # The envelope adds its own members, so the braces of the object are removed.
        answer = self._envelope.answered(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


class _PromptParams(Struct):
    name: str
    arguments: dict[str, str] | None = None
