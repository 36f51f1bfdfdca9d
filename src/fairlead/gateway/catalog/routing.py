"""Whose something is that a client names; it may be of a server that is just starting."""

from collections.abc import Callable
from typing import TYPE_CHECKING

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
from ..backends.startup_calls import wait_until_found
from .views import View

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["Router"]

LookUp = Callable[[str, View], Target | None]


class Router:
    """Finds the server that has something. All of it raises `RpcError` for what nobody has."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._catalog = gateway.catalog

    async def tool(self, exchange: Exchange) -> Target:
        return await self._named(self._catalog.tool, "tool", exchange)

    async def prompt(self, exchange: Exchange) -> Target:
        return await self._named(self._catalog.prompt, "prompt", exchange)

    async def expect_tool(self, name: str, caller: Caller) -> None:
        """Wait for the server that a tool may be of, if it is just starting."""
        await self._found(self._catalog.tool, name, caller)

    async def resource(self, exchange: Exchange) -> Member:
        uri, caller = exchange.head.uri, exchange.caller
        if isinstance(uri, UnsetType):
            raise own_error(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        if not self._gateway.is_ready:  # one that just starts may come before who has it so far
            await self._gateway.listed()
        member = await self._with_uri(self._catalog.owner, uri, caller)
        if member is None:
            code = INVALID_PARAMS if caller.stateless else RESOURCE_NOT_FOUND
            raise own_error(code, f"Resource not found: {uri}", uri=uri)
        return member

    async def completing(self, exchange: Exchange) -> tuple[Member, Exchange]:
        """Who completes an argument, and what to ask there."""
        reference, caller = reference_of(exchange), exchange.caller
        if reference.uri is not None:
            member = await self._with_uri(self._catalog.template_owner, reference.uri, caller)
            if member is None:
                raise own_error(INVALID_PARAMS, f"No such template: {reference.uri}")
            return member, exchange
        target = await self._found(self._catalog.prompt, reference.name or "", caller)
        member = None if target is None else self._gateway.members.get(target.server or "")
        if target is None or member is None:
            raise own_error(INVALID_PARAMS, f"Unknown prompt: {reference.name}")
        named = {**msgspec.json.decode(reference.raw), "name": target.own}
        return member, with_members(exchange, ref=named)

    async def _named(self, look: LookUp, what: str, exchange: Exchange) -> Target:
        name, caller = exchange.target or "", exchange.caller
        target = await self._found(look, name, caller)
        if target is None:
            raise self._unknown(what, name, self._gateway.view_of(caller))
        return target

    async def _found(self, look: LookUp, name: str, caller: Caller) -> Target | None:
        view = self._gateway.view_of(caller)
        target = look(name, view)
        if target is not None:
            return target
        meant = {name, *(merged for merged, shown in view.rename.items() if shown == name)}
        members = [
            member
            for member in self._seen_by(view)
            if any(may_belong_to(member.name, one) for one in meant)
        ]
        # Views may change while somebody waits: what counts is how it is then.
        return await wait_until_found(lambda: look(name, self._gateway.view_of(caller)), members)

    async def _with_uri(
        self, look: Callable[[str, View], str | None], uri: str, caller: Caller
    ) -> Member | None:
        view = self._gateway.view_of(caller)
        owner = look(uri, view)
        if owner is None and view.permits_uri(uri):
            members = self._seen_by(view)
            owner = await wait_until_found(
                lambda: look(uri, self._gateway.view_of(caller)), members
            )
        return None if owner is None else self._gateway.members.get(owner)

    def _seen_by(self, view: View) -> list[Member]:
        return [one for one in self._gateway.members.values() if view.includes(one.name)]

    def _unknown(self, what: str, name: str, view: View) -> RpcError:
        """Why there is no such thing; perhaps its server could not say yet what it has."""
        message = f"Unknown {what}: {name}"
        connected = set(self._gateway.manager.get_connected_servers())
        for member in self._seen_by(view):
            if not name.startswith(full_name(member.name, "")):
                continue
            if connected.isdisjoint(member.names):
                message += f"; {member.name} is not connected"
            elif not member.listed.is_set() or member.error is not None:
                message += f"; {member.name} has not said what it offers"
        return own_error(INVALID_PARAMS, message)
