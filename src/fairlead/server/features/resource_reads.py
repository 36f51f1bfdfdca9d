"""Handler of `resources/read`."""

from functools import partial

from msgspec import Raw, UnsetType

from ...interceptor import Exchange
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..context.context import Context
from ..decode_params import required_uri
from ..execution.request_input import EntryRequests
from ..results.encode_result import resource_contents
from .resource_registry import ResourceEntry, Resources, not_found

__all__ = ["ResourceReads"]


class ResourceReads(EntryRequests[Resources, ResourceEntry]):
    """Reader of resources for clients of both eras."""

    def _find(self, exchange: Exchange) -> tuple[ResourceEntry, dict[str, str]]:
        uri = required_uri(exchange)
        found = self._registry.find(uri)
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
        signature = entry.signature
        given = {} if signature is None else signature.arguments(values, context)
        read = partial(entry.provider, **given)
        value = await self._workers.call(read, asynchronous=entry.asynchronous)
        contents = resource_contents(uri, str(entry.definition.mime_type), value)
        members = to_json({"contents": contents})[1:-1]
        hints = None if entry.cache is None else entry.cache.members()
        answer = self._envelope.listed(members, caller, hints)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))
