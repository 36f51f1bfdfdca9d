"""Routing of names and URIs to the servers that own them, which may still be starting."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.caller import Caller
from ...protocol.own_errors import own_error
from ...protocol.targets.targets import Target
from ...protocol.targets.unique_names import full_name, may_belong_to
from ...relay.request_params import reference_of, with_members
from ...wire.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..backends.backend import Member
from ..backends.registry import BackendRegistry
from .list_requests import MergedLists
from .merged_catalog import MergedCatalog
from .views import ClientViews, View

__all__ = ["Router", "wait_until_found"]

T = TypeVar("T")


async def wait_until_found(look: Callable[[], T | None], members: Iterable[Member]) -> T | None:
    """Return the result of `look`. While it is None, repeat `look` after each member has listed.

    Raises:
        RpcError: `look` found nothing, and some members are still starting.
    """
    if (found := look()) is not None:
        return found
    loop = asyncio.get_running_loop()
    waiting = {loop.create_task(m.introduction()) for m in members if not m.introduced.is_set()}
    late: list[RpcError] = []
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if (found := look()) is not None:
                return found
            late += [refused for one in done if (refused := one.result()) is not None]
    finally:
        # The remaining members are not needed once the name is found.
        for task in waiting:
            task.cancel()
    if late:
        raise late[0]
    return None


LookUp = Callable[[str, View], Target | None]


class Router:
    """Lookup of the server that owns an item. All methods raise `RpcError` if no server has it."""

    def __init__(
        self,
        catalog: MergedCatalog,
        registry: BackendRegistry,
        lists: MergedLists,
        views: ClientViews,
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._lists = lists
        self._view_of = views.view_of

    async def tool(self, exchange: Exchange) -> Target:
        """Return the tool that a call names."""
        return await self._named(self._catalog.tool, "tool", exchange)

    async def prompt(self, exchange: Exchange) -> Target:
        """Return the prompt that a request names."""
        return await self._named(self._catalog.prompt, "prompt", exchange)

    async def expect_tool(self, name: str, caller: Caller) -> None:
        """Wait for the server that may have a tool, if it is starting."""
        await self._found(self._catalog.tool, name, caller)

    async def resource(self, exchange: Exchange) -> Member:
        """Return the server that owns the resource of a request."""
        uri, caller = exchange.head.uri, exchange.caller
        if isinstance(uri, UnsetType):
            raise own_error(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        # Wait for all servers: one that is still starting may also list the URI and come first.
        if not self._registry.is_ready:
            await self._lists.ready()
        member = await self._with_uri(self._catalog.owner, uri, caller)
        if member is None:
            code = INVALID_PARAMS if caller.stateless else RESOURCE_NOT_FOUND
            raise own_error(code, f"Resource not found: {uri}", uri=uri)
        return member

    async def completing(self, exchange: Exchange) -> tuple[Member, Exchange]:
        """Return the server that completes an argument, and the request to send to it."""
        reference, caller = reference_of(exchange), exchange.caller
        if reference.uri is not None:
            member = await self._with_uri(self._catalog.template_owner, reference.uri, caller)
            if member is None:
                raise own_error(INVALID_PARAMS, f"Unknown resource template: {reference.uri}")
            return member, exchange
        target = await self._found(self._catalog.prompt, reference.name or "", caller)
        member = None if target is None else self._registry.members.get(target.server or "")
        if target is None or member is None:
            raise own_error(INVALID_PARAMS, f"Unknown prompt: {reference.name}")
        # The server knows the prompt by its own name only.
        named = {**msgspec.json.decode(reference.raw), "name": target.own}
        return member, with_members(exchange, ref=named)

    async def _named(self, look: LookUp, what: str, exchange: Exchange) -> Target:
        name, caller = exchange.target or "", exchange.caller
        target = await self._found(look, name, caller)
        if target is None:
            raise self._unknown(what, name, self._view_of(caller))
        return target

    async def _found(self, look: LookUp, name: str, caller: Caller) -> Target | None:
        view = self._view_of(caller)
        target = look(name, view)
        if target is not None:
            return target
        # A view may give the tool another name, from which its server cannot be derived.
        meant = {name, *(merged for merged, shown in view.rename.items() if shown == name)}
        members = [
            member
            for member in self._registry.within(view)
            if any(may_belong_to(member.name, one) for one in meant)
        ]
        # The view may change during the wait; the current one applies.
        return await wait_until_found(lambda: look(name, self._view_of(caller)), members)

    async def _with_uri(
        self, look: Callable[[str, View], str | None], uri: str, caller: Caller
    ) -> Member | None:
        view = self._view_of(caller)
        owner = look(uri, view)
        # A client must not be able to make requests wait for starting servers if its view denies
        # the URI.
        if owner is None and view.permits_uri(uri):
            members = self._registry.within(view)
            owner = await wait_until_found(lambda: look(uri, self._view_of(caller)), members)
        return None if owner is None else self._registry.members.get(owner)

    def _unknown(self, what: str, name: str, view: View) -> RpcError:
        """Build an error that also names a server that may have the item but has not listed it."""
        message = f"Unknown {what}: {name}"
        for member in self._registry.within(view):
            if not name.startswith(full_name(member.name, "")):
                continue
            if all(upstream.state != "connected" for upstream in member.upstreams):
                message += f"; {member.name} is not connected"
            elif not member.listed.is_set() or member.error is not None:
                message += f"; {member.name} has not listed its items"
        return own_error(INVALID_PARAMS, message)
