"""Resources, prompts and instructions of many servers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..client import MCPClient
from ..errors import RpcError
from ..protocol.uri_templates.template import UriTemplate
from ..wire.error_codes import INVALID_PARAMS

if TYPE_CHECKING:
    from ..upstream.upstream_calls import UpstreamCalls

__all__ = ["ResourcesAndPrompts"]

log = logging.getLogger("fairlead.manager")

LIST_LIMIT = 30.0  # seconds for one server, all pages together

Fetch = Callable[[MCPClient], Awaitable[list[dict[str, Any]]]]


class ResourcesAndPrompts:
    """What servers offer besides tools. One that fails to list leaves the others alone."""

    _calls: "dict[str, UpstreamCalls]"

    async def list_resources(self) -> list[tuple[str, dict[str, Any]]]:
        """Every resource, with the name of its server."""
        return await self._gather("resources/list", lambda client: client.list_resources())

    async def list_resource_templates(self) -> list[tuple[str, dict[str, Any]]]:
        """Every resource template; a server without the method has none."""
        return await self._gather(
            "resources/templates/list", lambda client: client.list_resource_templates()
        )

    async def list_prompts(self) -> list[tuple[str, dict[str, Any]]]:
        """Every prompt."""
        return await self._gather("prompts/list", lambda client: client.list_prompts())

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """One prompt, filled in. Raises `FairleadError`."""
        return await self._server(server).read(
            "prompts/get", lambda client: client.get_prompt(name, arguments)
        )

    def get_instructions(self) -> dict[str, str]:
        """What servers want a model to know, by server."""
        found = {
            name: calls.upstream.client.instructions
            for name, calls in self._calls.items()
            if calls.upstream.client is not None
        }
        return {name: text for name, text in found.items() if text}

    async def read_resource(self, uri: str, *, server: str | None = None) -> dict[str, Any]:
        """Read a resource by its URI, whichever server has it.

        A server that lists exactly this URI comes first, then the one whose template says most
        about it.

        Raises:
            RpcError: -32602, if no server has it.
        """
        owner = server or await self._owner(uri)
        return await self._server(owner).read(
            "resources/read", lambda client: client.read_resource(uri)
        )

    async def subscribe(self, uri: str, *, server: str | None = None) -> None:
        """Hear when a resource changes, also after its server was connected again."""
        owner = server or await self._owner(uri)
        await self._server(owner).subscribe(uri)

    async def unsubscribe(self, uri: str, *, server: str | None = None) -> None:
        """The opposite of `subscribe`."""
        for name in [server] if server else list(self._calls):
            await self._server(name).upstream.unsubscribe(uri)

    async def set_log_level(self, level: str, *, server: str | None = None) -> None:
        """Ask one server or all for log messages, also after it was connected again."""
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
            except ValueError:
                continue
            literal = len(text) - sum(len(part) + 1 for part in text.split("{")[1:])
            if fits and (best is None or literal > best[0]):
                best = literal, name
        if best is None:
            raise RpcError(INVALID_PARAMS, f"No server has the resource {uri}", {"uri": uri})
        return best[1]

    def _server(self, name: str) -> "UpstreamCalls":
        calls = self._calls.get(name)
        if calls is None:
            raise RpcError(INVALID_PARAMS, f"There is no server {name!r}")
        return calls

    async def _gather(self, method: str, fetch: Fetch) -> list[tuple[str, dict[str, Any]]]:
        """What all servers list that are connected now; one that hangs is left out in the end."""
        connected = {
            name: calls
            for name, calls in sorted(self._calls.items())
            if calls.upstream.state == "connected"
        }

        async def ask(calls: "UpstreamCalls") -> list[dict[str, Any]]:
            async with asyncio.timeout(LIST_LIMIT):
                return await calls.read(method, fetch)

        outcomes = await asyncio.gather(*map(ask, connected.values()), return_exceptions=True)
        found: list[tuple[str, dict[str, Any]]] = []
        for name, outcome in zip(connected, outcomes, strict=True):
            if isinstance(outcome, Exception):
                log.info("%s could not list: %s", name, outcome or type(outcome).__name__)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found += [(name, item) for item in outcome]
        return found
