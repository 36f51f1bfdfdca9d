"""Requests of a program over the default connection of a server, with one retry."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ..client import MCPClient
from ..client.api.tool_hints import is_harmless
from ..client.connection.retry import Retry
from ..errors import ChannelClosed, ConnectFailed, RequestTimeout, RetriesExhausted
from ..protocol.targets.list_kind import ListKind
from ..transport import timeouts
from .upstream import Upstream

__all__ = ["UpstreamCalls"]

log = logging.getLogger("fairlead.manager")

T = TypeVar("T")


class UpstreamCalls:
    """Requests that are repeated once after a reconnect, if that is safe."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._retry = Retry(1, 0.0)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Call a tool.

        `timeout` covers the whole call, including the wait for a server that is connecting.

        Raises:
            FairleadError: The call failed, and so did its retry if there was one.
        """

        def work(client: MCPClient) -> Awaitable[dict[str, Any]]:
            return client.call_tool(tool, arguments, timeout, **options)

        harmless = self._is_harmless(tool)
        if not timeout:
            return await self._use("tools/call", work, harmless=harmless)
        try:
            async with timeouts.timeout(timeout) as limit:
                return await self._use("tools/call", work, harmless=harmless)
        except TimeoutError as exc:
            # If the limit has not expired, the request itself timed out.
            if not limit.expired():
                raise
            # `_use` was cancelled, so it has not checked the server.
            client = self.upstream.client
            self.upstream.check_hang(client)
            output = () if client is None else client.transport.peer.output_within(timeout)
            raise RequestTimeout(timeout, "tools/call", output=output) from exc

    async def read(self, method: str, fetch: Callable[[MCPClient], Awaitable[T]]) -> T:
        """Send a read-only request, which may be repeated.

        Raises:
            FairleadError: The request failed, and so did its retry if there was one.
        """
        return await self._use(method, fetch)

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource; the subscription is restored after a reconnect."""
        await self.read("resources/subscribe", lambda _: self.upstream.subscribe(uri))

    async def refresh_tools(self) -> None:
        """Request the list of tools again.

        Raises:
            FairleadError: The request failed; the previous tools stay.
        """
        kind = ListKind.TOOLS
        items = await self.read(kind.method, lambda one: one.list_raw(kind.method, kind.value))
        self.upstream.lists.put(kind, items)
        if self.upstream.client is not None:
            self.upstream.client.learn_tools(self.upstream.tools or ())

    async def _use(
        self, method: str, work: Callable[[MCPClient], Awaitable[T]], *, harmless: bool = False
    ) -> T:
        again, upstream = False, self.upstream
        while True:
            client = await upstream.ready()
            try:
                with upstream.in_use():
                    return await work(client)
            except (ChannelClosed, ConnectFailed, RetriesExhausted) as exc:
                failure = exc.__cause__ if isinstance(exc, RetriesExhausted) else exc
                # The server was stopped: report this, not the error of the closed channel.
                if upstream.state == "stopped":
                    why = f'server "{upstream.name}" was disconnected'
                    raise ChannelClosed(
                        why, delivered=exc.delivered, public="was disconnected"
                    ) from exc
                if not isinstance(failure, ChannelClosed | ConnectFailed):
                    upstream.check_hang(client)
                    raise  # the server is reachable, but slow
                if isinstance(failure, ConnectFailed) or not client.connected:
                    # Over HTTP only a failed request shows a loss: there is no lasting connection.
                    upstream.lose(client, failure)
                if again or not self._retry.allows(method, failure, harmless=harmless):
                    raise
                again = True
                log.info("%s: connection lost; sending %s again", upstream.name, method)
            except RequestTimeout:
                upstream.check_hang(client)
                raise

    def _is_harmless(self, tool: str) -> bool:
        tools = self.upstream.tools or ()
        return is_harmless(next((one for one in tools if one.get("name") == tool), {}))
