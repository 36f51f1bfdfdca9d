"""Subscriptions to list and resource changes, for both eras."""

import logging
from collections.abc import Iterable

from ...errors import FairleadError, RequestTimeout, RpcError
from ...protocol.caller import LOG_LEVELS, has_capability
from ...protocol.outgoing_params import Identity
from ...wire.quote_text import quoted
from ..client_config import MCPClientConfig
from ..connection.change_stream import ChangeStream
from ..connection.listen_request import ListenRequest, WatchedChanges
from ..connection.reconnect import Reconnector
from ..mcp_transport.channel_transport import ChannelTransport
from .lists import ListMixin, require_uri

__all__ = ["SubscriptionMixin"]

log = logging.getLogger("fairlead.client")


class SubscriptionMixin(ListMixin):
    """The client methods that manage subscriptions and restore them on a new connection.

    A handshake-era server receives one request per resource, and reports list changes without a
    request. A stateless server receives one `subscriptions/listen` request.
    """

    def __init__(
        self, transport: ChannelTransport, config: MCPClientConfig, keeper: Reconnector
    ) -> None:
        super().__init__(transport, config, keeper)
        self._identity = Identity({"name": config.name, "version": config.version}, {})
        self._log_level: str | None = None
        self._listening = ListenRequest(config.retry_delay, self._missed)
        self._watches: list[ChangeStream] = []

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource;
        its changes are reported as `notifications/resources/updated`.
        """
        require_uri(uri)
        if uri in self._listening.uris:
            return
        self._listening.add(uri)
        try:
            if self._stateless:
                await self._listening.listen(self.transport.peer, self.transport.timeout)
            else:
                await self.request("resources/subscribe", {"uri": uri})
        # Cancellations are included, because a later call must send the request again.
        except BaseException:
            self._listening.remove(uri)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """Cancel the subscription to a resource."""
        if not self._listening.remove(uri):
            return
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)
        else:
            await self.request("resources/unsubscribe", {"uri": uri})

    async def listen(self, *changes: WatchedChanges) -> None:
        """Request notifications about changes of these lists, and of no others.

        Servers of the handshake era send them without a request.
        """
        self._listening.set_lists(changes)
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)

    def changes(self, *lists: WatchedChanges, uris: Iterable[str] = ()) -> ChangeStream:
        """Return a stream of changes to lists ("tools", "prompts", "resources") and to resources.

        async with client.changes("tools", uris=["note://today"]) as changes:
            async for change in changes:
                print(change.kind, change.uri)
        """
        return ChangeStream(lists, uris, self._watch_begins, self._watch_ends)

    async def _watch_begins(self, watch: ChangeStream) -> None:
        """Subscribe to the stream's resources and lists that are not subscribed yet."""
        watch.mine = [uri for uri in watch.uris if uri not in self._listening.uris]
        self._watches.append(watch)
        try:
            if not watch.lists <= self._listening.lists:
                await self.listen(*self._listening.lists, *watch.lists)
            for uri in watch.mine:
                await self.subscribe(uri)
        except BaseException:
            self._watches.remove(watch)
            raise

    async def _watch_ends(self, watch: ChangeStream) -> None:
        """Unsubscribe from the resources that no other stream needs."""
        if watch not in self._watches:
            return
        self._watches.remove(watch)
        for uri in watch.mine:
            heir = next((other for other in self._watches if uri in other.uris), None)
            if heir is not None:
                heir.mine.append(uri)
            elif self.transport.connected:
                try:
                    await self.unsubscribe(uri)
                except FairleadError as exc:
                    log.debug("could not unsubscribe from %s: %s", uri, exc)

    async def set_log_level(self, level: str) -> None:
        """Request log messages of at least this level.

        Raises:
            ValueError: The level is unknown.
        """
        if level not in LOG_LEVELS:
            levels = ", ".join(LOG_LEVELS)
            raise ValueError(f"unknown log level {quoted(level)}: expected one of {levels}")
        self._log_level = level
        # A stateless server receives the level with each request, a handshake server only once.
        if self._stateless:
            self._identity.request_log_level(level)
        else:
            await self._set_level(level)

    async def _request_info_logs(self) -> None:
        """Request log messages from level "info", for a client with `on_log`.

        Stateless servers send none without a level, and handshake servers choose a level.
        """
        try:
            await self.set_log_level("info")
        # A server that does not support levels can be used without them.
        except (RpcError, RequestTimeout) as exc:
            log.info("the server did not accept the log level: %s", exc)

    async def restore(self) -> None:
        """Repeat all subscriptions and the log level after a reconnect."""
        self._missed()
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)
            return
        if self._log_level is not None:
            await self._set_level(self._log_level, retry=False)
        for uri in tuple(self._listening.uris):
            try:
                await self.request("resources/subscribe", {"uri": uri}, retry=False)
            # The error affects one resource, so the others are still restored.
            except RpcError as exc:
                log.warning("the subscription to %s could not be restored: %s", uri, exc)

    async def _set_level(self, level: str, retry: bool | None = None) -> None:
        if has_capability(self._capabilities, "logging"):
            await self.request("logging/setLevel", {"level": level}, retry=retry)

    def _missed(self) -> None:
        """Treat all watched items as changed after a gap in notifications."""
        for watch in self._watches:
            watch.missed()
        if self._cache is None:
            return
        for name in self._listening.lists:
            self._cache.heard(f"notifications/{name}/list_changed", {})
        for uri in self._listening.uris:
            self._cache.heard("notifications/resources/updated", {"uri": uri})
