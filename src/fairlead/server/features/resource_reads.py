"""Handler of `resources/read`."""

from collections.abc import Callable
from typing import Any

from msgspec import Raw, UnsetType

from ...interceptor import Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..context.context import Context
from ..decode_params import required_uri
from ..execution.request_input import EntryRequests
from ..results.encode_result import resource_contents
from ..results.result_envelope import ResultEnvelope
from .resource_registry import ResourceEntry, Resources, not_found

__all__ = ["ResourceReads"]


class ResourceReads(EntryRequests[ResourceEntry]):
    """Reader of resources for clients of both eras."""

    def __init__(
        self,
        resources: Resources,
        make_context: Callable[[Exchange], Context],
        envelope: ResultEnvelope,
        meta: dict[str, Any],
    ) -> None:
        super().__init__(make_context, envelope, meta)
        self._resources = resources

    def _find(self, exchange: Exchange) -> tuple[ResourceEntry, dict[str, str]]:
        uri = required_uri(exchange)
        found = self._resources.find(uri)
        if found is None:
            # The stateless revision has no separate error code for unknown resources.
            stateless = exchange.caller.stateless
            raise not_found(uri, INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND)
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
        value = await self._resources.read(entry, values, context)
        contents = resource_contents(uri, entry.mime_type, value)
        members = to_json({"contents": contents})[1:-1]
        hints = None if entry.cache is None else entry.cache.members()
        answer = self._envelope.listed(members, caller, hints)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))
