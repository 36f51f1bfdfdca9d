"""Reading lists across pages and caching results."""

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from ...errors import RemoteProtocolError
from ...limits import PROBLEM_TEXT
from ...protocol.caller import has_capability
from ...protocol.conversation.conversation import Agreement
from ...protocol.methods import find
from ...protocol.param_headers import ParamHeaderIndex
from ...protocol.types.base import decode, decode_items
from ...wire.error_codes import INVALID_REQUEST
from ...wire.quote_text import quoted, shortened
from ..client_config import MCPClientConfig
from ..connection.reconnect import Reconnector
from ..mcp_transport.channel_transport import ChannelTransport
from ..mcp_transport.network import HttpTransport
from .list_budget import ListBudget
from .list_pages import read_pages
from .requests import RequestMixin
from .result_cache import ResultCache

__all__ = ["ListMixin", "read_result", "require_uri"]

log = logging.getLogger("fairlead.client")


class ListMixin(RequestMixin):
    """The client methods that read the server's lists and store facts about its tools."""

    def __init__(
        self, transport: ChannelTransport, config: MCPClientConfig, keeper: Reconnector
    ) -> None:
        super().__init__(transport, config, keeper)
        self.skipped: list[str] = []  # list items that could not be decoded, each with the reason
        self._agreement: Agreement | None = None
        self._capabilities: dict[str, Any] = {}
        # None in the handshake era, which has no cacheable results
        self._cache: ResultCache | None = None
        self._param_headers = ParamHeaderIndex(config.max_list_bytes)

    @property
    def _stateless(self) -> bool:
        return self._agreement is not None and self._agreement.revision.stateless

    @property
    def _mirrors(self) -> bool:
        """Return True if tools may require arguments in headers (stateless HTTP)."""
        return self._stateless and isinstance(self.transport, HttpTransport)

    def _offers(self, method: str) -> bool:
        """Return False if the server did not declare the capability for a method (PRO-06)."""
        if self._agreement is None:
            return True
        row = find(method, self._agreement.revision)
        if row is None or not row.capability:
            return True
        return has_capability(self._capabilities, row.capability)

    async def _read(self, method: str, params: dict[str, Any] | None, cache: bool) -> Raw:
        """Send a request without side effects, or return its cached result."""
        if self._cache is None or not cache:
            return await self.request(method, params)
        return await self._cache.get(method, params, lambda: self.request(method, params))

    async def _list(self, method: str, member: str, cache: bool) -> list[dict[str, Any]]:
        """Return all items of a list that have a name or a URI."""
        items: list[dict[str, Any]] = []
        async for page in self._items(method, member, dict[str, Any], cache):
            named = [item for item in page if _has_key(item)]
            if len(named) < len(page):
                self._skip(method, f"{len(page) - len(named)} items without a name")
            items += named
        return items

    async def list_raw(self, method: str, member: str) -> list[Raw]:
        """Return all list items as sent by the server, never from the cache."""
        return [item async for page in self._items(method, member, Raw, False) for item in page]

    async def _items(
        self, method: str, member: str, type_: Any, cache: bool
    ) -> AsyncIterator[list[Any]]:
        """Yield the valid items of each page."""
        if not self._offers(method):
            return
        mirrors = method == "tools/list" and self._mirrors
        budget = ListBudget(method, self.config.max_list_bytes, self.config.max_list_items)
        ask = partial(self._read, method, cache=cache)
        async for page in read_pages(ask, budget, stateless=self._stateless):
            if member not in page:
                self._skip(method, f"a page without {member}")
                continue
            try:
                items = decode(page[member], list[Raw])
            except msgspec.DecodeError as exc:
                self._skip(method, f"{member}: {exc}")
                continue
            budget.items(len(items))
            if mirrors:
                items = self._param_headers.usable(items, partial(self._skip, method))
            good, bad = decode_items(items, type_)
            for item in bad:
                self._skip(method, f"item {item.index}: {item.reason}")
            yield good

    def _skip(self, method: str, reason: str) -> None:
        reason = shortened(reason, PROBLEM_TEXT.value)
        log.warning("skipped in %s: %s", method, reason)
        self.skipped.append(f"{method}: {reason}")
        # Limited, because a server may send invalid items in every list.
        del self.skipped[:-100]


def require_uri(uri: object) -> None:
    """Check that the URI of a resource is a string, not an object such as pydantic's `AnyUrl`.

    Raises:
        TypeError: The URI has another type.
    """
    if not isinstance(uri, str):
        raise TypeError(f"uri must be a string, not {quoted(uri)}")


def read_result(raw: Raw) -> dict[str, Any]:
    """Decode a result.

    Raises:
        RemoteProtocolError: The result is malformed, or its `resultType` is unknown.
    """
    try:
        value: dict[str, Any] = _decode_result(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RemoteProtocolError(f"The result is malformed: {exc}", code=INVALID_REQUEST) from exc
    if value.get("resultType", "complete") not in ("complete", "input_required"):
        kind = value["resultType"]
        raise RemoteProtocolError(f"unknown resultType {quoted(kind)}", code=INVALID_REQUEST)
    return value


_decode_result = msgspec.json.Decoder(dict[str, Any]).decode


def _has_key(item: dict[str, Any]) -> bool:
    return any(isinstance(item.get(key), str) for key in ("name", "uri", "uriTemplate"))
