"""Routing of names and URIs to the servers that own them, which may still be starting."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from ...client.api.list_budget import ListTooLarge
from ...errors import LoginRequired, RpcError
from ...interceptor import Exchange
from ...protocol.caller import Caller
from ...protocol.public_reason import public_reason
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.targets import Target
from ...protocol.targets.unique_names import full_name, may_belong_to
from ...relay.request_params import reference_of, with_members
from ..backends.backend import Member
from ..backends.registry import BackendRegistry
from .list_requests import MergedLists
from .merged_catalog import MergedCatalog
from .unknown_items import UnknownItems
from .views import ClientViews, View

__all__ = ["Router", "wait_until_found"]

T = TypeVar("T")


async def wait_until_found(look: Callable[[], T | None], members: Iterable[Member]) -> T | None:
    """Return the result of `look`. While it is None, call `look` again after each member has
    listed.

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
    """Lookup of the server that owns an item, which waits for servers that are starting.

    Except for `expect_tool`, the lookups raise `RpcError` if no server has the item.
    """

    def __init__(
        self,
        catalog: MergedCatalog,
        registry: BackendRegistry,
        lists: MergedLists,
        views: ClientViews,
        unknown: UnknownItems,
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._lists = lists
        self._view_of = views.view_of
        self._unknown = unknown

    async def tool(self, exchange: Exchange) -> Target:
        """Return the tool that a call names."""
        return await self._named(self._catalog.tool, ListKind.TOOLS, exchange)

    async def prompt(self, exchange: Exchange) -> Target:
        """Return the prompt that a request names."""
        return await self._named(self._catalog.prompt, ListKind.PROMPTS, exchange)

    async def expect_tool(self, name: str, caller: Caller) -> None:
        """Wait for the server that may have a tool, if it is starting.

        Raises:
            RpcError: The server takes too long to start.
        """
        await self._found(self._catalog.tool, name, caller)

    async def resource(self, exchange: Exchange) -> Member:
        """Return the server that owns the resource of a request."""
        uri, caller = exchange.head.uri, exchange.caller
        if isinstance(uri, UnsetType):
            raise self.unknown(ListKind.RESOURCES, None, exchange)
        # Wait for all servers: a starting server may list the URI too and take precedence.
        if not self._registry.is_ready:
            await self._lists.ready()
        member = await self._with_uri(self._catalog.owner, uri, caller)
        if member is None:
            raise self.unknown(ListKind.RESOURCES, uri, exchange)
        return member

    async def completing(self, exchange: Exchange) -> tuple[Member, Exchange]:
        """Return the server that completes an argument, and the request to send to it."""
        reference, caller = reference_of(exchange), exchange.caller
        if reference.uri is not None:
            member = await self._with_uri(self._catalog.template_owner, reference.uri, caller)
            if member is None:
                raise self.unknown(ListKind.TEMPLATES, reference.uri, exchange)
            return member, exchange
        target = await self._found(self._catalog.prompt, reference.name or "", caller)
        member = None if target is None else self._registry.members.get(target.server or "")
        if target is None or member is None:
            raise self.unknown(ListKind.PROMPTS, reference.name, exchange)
        # The server knows the prompt by its own name only.
        named = {**msgspec.json.decode(reference.raw), "name": target.own}
        return member, with_members(exchange, ref=named)

    def unknown(self, kind: ListKind, name: str | None, exchange: Exchange) -> RpcError:
        """Build the error for a name or URI. It mentions a server whose lists are not known yet."""
        view = self._view_of(exchange.caller)
        reason = self._unlisted(name or "", view) if kind.named else ""
        return self._unknown.error(kind, name, exchange, view, reason=reason)

    async def _named(self, look: LookUp, kind: ListKind, exchange: Exchange) -> Target:
        name = exchange.target or ""
        target = await self._found(look, name, exchange.caller)
        if target is None:
            raise self.unknown(kind, name, exchange)
        return target

    async def _found(self, look: LookUp, name: str, caller: Caller) -> Target | None:
        view = self._view_of(caller)
        target = look(name, view)
        if target is not None:
            return target
        # A view may rename the tool, and the new name does not contain the server's name.
        meant = {name, *(merged for merged, shown in view.rename.items() if shown == name)}
        members = [
            member
            for member in self._registry.within(view)
            if any(may_belong_to(member.name, one) for one in meant)
        ]
        # Look up the view again, because it may change during the wait.
        return await wait_until_found(lambda: look(name, self._view_of(caller)), members)

    async def _with_uri(
        self, look: Callable[[str, View], str | None], uri: str, caller: Caller
    ) -> Member | None:
        view = self._view_of(caller)
        owner = look(uri, view)
        # A request for a URI that the view denies must not wait for starting servers.
        if owner is None and view.permits_uri(uri):
            members = self._registry.within(view)
            owner = await wait_until_found(lambda: look(uri, self._view_of(caller)), members)
        return None if owner is None else self._registry.members.get(owner)

    def _unlisted(self, name: str, view: View) -> str:
        """Return which servers may have an item of this name and have not listed their items."""
        reason = ""
        for member in self._registry.within(view):
            if not name.startswith(full_name(member.name, "")):
                continue
            if all(upstream.status != "connected" for upstream in member.upstreams):
                errors = [one.error for one in member.upstreams if one.error is not None]
                if any(isinstance(one, LoginRequired) for one in errors):
                    reason += f"; {member.name} {LoginRequired.public}"
                else:
                    reason += f"; {member.name} is not connected{_cause(errors)}"
            elif not member.listed.is_set() or member.error is not None:
                errors = [] if member.error is None else [member.error]
                reason += f"; {member.name} has not listed its items{_cause(errors)}"
        return reason


def _cause(errors: Sequence[BaseException]) -> str:
    """Return the reason of a failure; clients must not see addresses and output of servers."""
    if not errors:
        return ""
    large = isinstance(errors[0], ListTooLarge)
    return ": its lists are too large" if large else f": it {public_reason(errors[0])}"
