"""The lists of a server as one of its connections receives them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Raw

from ..client.api.list_budget import ListBudget
from ..client.api.list_pages import read_pages
from ..errors import RemoteProtocolError, RpcError
from ..limits import LIST_SECONDS
from ..protocol.caller import CAPABILITIES_KEY, CLIENT_INFO_KEY, VERSION_KEY, Caller, has_capability
from ..protocol.json_edit import encoded
from ..protocol.revisions import NEWEST
from ..protocol.targets.list_kind import ListKind
from ..wire.error_codes import INVALID_REQUEST
from .connection.upstream_connection import UpstreamConnection, declared_by
from .list_variants import Lists
from .server_lists import NEEDED_CAPABILITY

__all__ = ["read_lists"]

PAGE_LIMIT = 30.0  # seconds for one page


async def read_lists(
    connection: UpstreamConnection,
    budget: Callable[[ListKind], ListBudget],
    caller: Caller | None = None,
) -> Lists:
    """Return all lists of a server.

    On a stateless connection, each request describes `caller` as its client.

    Raises:
        FairleadError: A list could not be read.
    """
    declared = declared_by(connection)
    found: dict[ListKind, list[Raw]] = {}
    for kind, capability in NEEDED_CAPABILITY.items():
        found[kind] = []
        if not has_capability(declared, capability):
            continue
        try:
            async with asyncio.timeout(LIST_SECONDS.value):
                found[kind] = await _read(connection, kind, budget(kind), caller)
        except (RpcError, RemoteProtocolError):
            # many servers that have resources do not implement this method
            if kind is not ListKind.TEMPLATES:
                raise
    return found


async def _read(
    connection: UpstreamConnection, kind: ListKind, budget: ListBudget, caller: Caller | None
) -> list[Raw]:
    ask: Callable[[dict[str, str] | None], Awaitable[Raw]]
    ask = partial(connection.peer.request, kind.method, timeout=PAGE_LIMIT)
    if caller is not None and connection.stateless:
        ask = partial(_ask_as, connection, kind.method, caller)
    items: list[Raw] = []
    async for page in read_pages(ask, budget, stateless=connection.stateless):
        try:
            listed = msgspec.json.decode(page.get(kind.value, Raw(b"[]")), type=list[Raw])
        except (msgspec.DecodeError, RecursionError) as exc:
            why = f"A page of {kind.method} is malformed: {exc}"
            raise RemoteProtocolError(why, code=INVALID_REQUEST) from exc
        budget.items(len(listed))
        items += listed
    return items


async def _ask_as(
    connection: UpstreamConnection, method: str, caller: Caller, params: dict[str, str] | None
) -> Raw:
    meta = {
        VERSION_KEY: NEWEST.value,
        CAPABILITIES_KEY: Raw(caller.capabilities),
        CLIENT_INFO_KEY: {"name": "fairlead", "version": "0"}
        if caller.info is None
        else Raw(caller.info),
    }
    # `peer.request` would describe Fairlead as the client, so `_meta` is written here.
    whole = encoded({**(params or {}), "_meta": meta})
    return await connection.peer.outbound.forward(method, lambda _: whole, timeout=PAGE_LIMIT)
