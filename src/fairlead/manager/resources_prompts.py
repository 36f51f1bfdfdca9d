"""Resources, prompts and instructions of many servers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..client import MCPClient
from ..errors import RpcError
from ..protocol.uri_templates.template import UriTemplate
from ..transport import timeouts
from ..wire.error_codes import INVALID_PARAMS

if TYPE_CHECKING:
    from ..upstream.upstream_calls import UpstreamCalls

__all__ = ["ResourcesAndPrompts"]

log = logging.getLogger("fairlead.manager")

LIST_LIMIT = 30.0  # seconds per server, for all pages together

Fetch = Callable[[MCPClient], Awaitable[list[dict[str, Any]]]]


class ResourcesAndPrompts:
    """Resources, prompts and instructions of all servers.

    A failing server does not affect the others.
    """

    _calls: "dict[str, UpstreamCalls]"

    async def list_resources(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all resources, each with the name of its server."""
        return await self._gather("resources/list", lambda client: client.list_resources())

    async def list_resource_templates(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all resource templates, each with the name of its server."""
        return await self._gather(
            "resources/templates/list", lambda client: client.list_resource_templates()
        )

    async def list_prompts(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all prompts, each with the name of its server."""
        return await self._gather("prompts/list", lambda client: client.list_prompts())

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return a prompt with its arguments substituted.

        Raises:
            FairleadError: The server is unknown, not connected, or refused the request.
        """
        return await self._server(server).read(
            "prompts/get", lambda client: client.get_prompt(name, arguments)
        )

    def get_instructions(self) -> dict[str, str]:
        """Return the instructions for models, by server."""
        found = {
            name: calls.upstream.client.instructions
            for name, calls in self._calls.items()
            if calls.upstream.client is not None
        }
        return {name: text for name, text in found.items() if text}

    async def read_resource(self, uri: str, *, server: str | None = None) -> dict[str, Any]:
        """Read a resource from the server that has it.

        A server that lists exactly this URI takes precedence, then the server with the most
        specific template.

        Raises:
            RpcError: -32602, the server is unknown or no server has the resource; or the server
                refused the request.
        """
        owner = server or await self._owner(uri)
        return await self._server(owner).read(
            "resources/read", lambda client: client.read_resource(uri)
        )

    async def subscribe(self, uri: str, *, server: str | None = None) -> None:
        """Subscribe to changes of a resource;
        the subscription is restored when its server reconnects.
        """
        owner = server or await self._owner(uri)
        await self._server(owner).subscribe(uri)

    async def unsubscribe(self, uri: str, *, server: str | None = None) -> None:
        """Cancel a subscription, on all servers unless a server is named."""
        for name in [server] if server else list(self._calls):
            await self._server(name).upstream.unsubscribe(uri)

    async def set_log_level(self, level: str, *, server: str | None = None) -> None:
        """Request log messages from one server or all servers, also after they reconnect."""
        for name in [server] if server else list(self._calls):
            await self._server(name).upstream.set_log_level(level)

    async def _owner(self, uri: str) -> str:
        for name, resource in await self.list_resources():
            if resource.get("uri") == uri:
                return name
        best: tuple[int, str] | None = None
        for name, template in await self.list_resource_templates():
            text = str(template.get("uriTemplate"))
            try:
                fits = UriTemplate(text).match(uri) is not None
            # A server's template may be invalid.
            except ValueError:
                continue
            # The template with the most literal characters is the most specific.
            literal = len(text) - sum(len(part) + 1 for part in text.split("{")[1:])
            if fits and (best is None or literal > best[0]):
                best = literal, name
        if best is None:
            raise RpcError(INVALID_PARAMS, f"No server has the resource {uri}", {"uri": uri})
        return best[1]

    def _server(self, name: str) -> "UpstreamCalls":
        calls = self._calls.get(name)
        if calls is None:
            raise RpcError(INVALID_PARAMS, f"Unknown server {name!r}")
        return calls

    async def _gather(self, method: str, fetch: Fetch) -> list[tuple[str, dict[str, Any]]]:
        """Return the lists of all connected servers.

        Servers that fail or take too long are omitted.
        """
        connected = {
            name: calls
            for name, calls in sorted(self._calls.items())
            if calls.upstream.state == "connected"
        }

        async def ask(calls: "UpstreamCalls") -> list[dict[str, Any]]:
            async with timeouts.timeout(LIST_LIMIT):
                return await calls.read(method, fetch)

        outcomes = await asyncio.gather(*map(ask, connected.values()), return_exceptions=True)
        found: list[tuple[str, dict[str, Any]]] = []
        for name, outcome in zip(connected, outcomes, strict=True):
            if isinstance(outcome, Exception):
                # `TimeoutError` has no message.
                log.info("%s: listing failed: %s", name, outcome or type(outcome).__name__)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found += [(name, item) for item in outcome]
        return found
