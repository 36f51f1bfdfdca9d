"""Handler of `resources/read`."""

from collections.abc import Callable
from typing import Any

from msgspec import Raw

from ...interceptor import Answer, Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..context.context import Context
from ..decode_params import required_uri
from ..execution.handler_errors import error_for_caller
from ..execution.request_input import run_or_request_input
from ..results.encode_result import resource_contents
from ..results.result_envelope import ResultEnvelope
from .resource_registry import ResourceEntry, Resources, not_found

__all__ = ["ResourceReads"]


class ResourceReads:
    """Reads resources for callers of both eras."""

    def __init__(
        self,
        resources: Resources,
        make_context: Callable[[Exchange], Context],
        envelope: ResultEnvelope,
        meta: dict[str, Any],
    ) -> None:
        """`meta` is part of results that ask a stateless caller for input."""
        self._resources = resources
        self._make_context = make_context
        self._envelope = envelope
        self._meta = meta

    async def read(self, exchange: Exchange) -> Answer:
        """Answer `resources/read`.

        Raises:
            RpcError: The resource does not exist or its provider failed; the error is logged.
        """
        context = None
        try:
            uri, stateless = required_uri(exchange), exchange.caller.stateless
            found = self._resources.find(uri)
            if found is None:
                raise not_found(uri, INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND)
            entry, values = found
            if entry.home is not None:
                return await entry.home(exchange)
            signature = entry.signature
            if signature is None or signature.context_name is None:
                return await self._contents(exchange, entry, values, None)
            context = self._make_context(exchange)
            work = self._contents(exchange, entry, values, context)
            return await run_or_request_input(context, work, self._meta)
        except Exception as exc:
            raise error_for_caller(exc, exchange, context) from None

    async def _contents(
        self,
        exchange: Exchange,
        entry: ResourceEntry,
        values: dict[str, str],
        context: Context | None,
    ) -> bytes:
        caller = exchange.caller
        value = await self._resources.read(entry, values, context)
        contents = resource_contents(required_uri(exchange), entry.mime_type, value)
        members = to_json({"contents": contents})[1:-1]
        hints = None if entry.cache is None else entry.cache.members()
        answer = self._envelope.listed(members, caller, hints)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))
