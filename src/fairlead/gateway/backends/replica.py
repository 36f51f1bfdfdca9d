"""One server behind a gateway: the connection that the manager keeps to it, and how it does."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...client import MCPClient
from ...client.connection.listen_request import WatchedChanges
from ...errors import ChannelClosed, ConnectFailed, FairleadError
from ...interceptor import Answer, Exchange, Interceptor
from ...interceptor.circuit_breaker import CircuitBreaker
from ...manager import MCPManager
from ...manager.server_spec import ServerSpec
from ...protocol.methods import has_capability
from ...relay.bridge.parked_calls import ParkedCalls
from ...relay.client_session import Front
from ...relay.relay import Relay
from ...relay.relay_settings import RelaySettings
from ...relay.server_target import target_for
from ...relay.upstream_connection import Link
from ...server.features.subscription_quota import SubscriptionQuota
from ...wire import Notification
from ..clients.client_sessions import ConnectedClient
from .startup_calls import StartupWait, StillStarting

__all__ = ["LISTEN", "Replica"]

LISTEN: Final = "subscriptions/listen"

log = logging.getLogger("fairlead.gateway")

_NEWS: Final = Notification("notifications/tools/list_changed")
_LISTS: Final[tuple[WatchedChanges, ...]] = ("tools", "prompts", "resources")


class Replica:
    """One of the equal servers behind one name."""

    def __init__(
        self,
        name: str,
        manager: MCPManager,
        configured: ServerSpec,
        settings: RelaySettings,
        parked: ParkedCalls,
        quota: SubscriptionQuota,
        breaker: CircuitBreaker,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        """`interceptors` are around what the server asks and tells of its own accord."""
        self.name = name
        self.breaker = breaker
        self.configured = configured
        way = target_for(configured.entry, name, resolve=configured.resolve)
        self.relay = Relay(
            way, settings=settings, parked=parked, quota=quota, starts=manager.start_limiter
        )
        self.relay.upstream.base = self.base
        self.relay.upstream.interceptors = interceptors
        self._interceptors = interceptors
        self.calls = 0
        self.errors = 0
        self.latency: float | None = None  # seconds, of the calls of late
        self._manager = manager
        self._call_timeout = settings.call_timeout
        self.changed: Callable[[], object] = lambda: None  # called when its lists have changed
        self.followed: set[WatchedChanges] = (
            set()
        )  # lists of whose changes we hear by following them
        self._link: Link | None = None
        self._client: MCPClient | None = None
        self._following: asyncio.Task[None] | None = None
        self._orphans: list[Front] = []  # sessions whose connection was lost

    async def base(self) -> Link:
        """The connection that the manager keeps, which all share who are not asked back.

        Raises:
            StillStarting: there is none yet.
            FairleadError: there is none now.
        """
        link, client = self._link, self._client
        if link is not None and link.alive and client is self._current():
            return link
        patience = self.patience
        try:
            async with asyncio.timeout(patience.seconds) as limit:
                connection = await self._manager.wait_for_connection(self.name)
        except TimeoutError as exc:
            if not limit.expired() or isinstance(exc, FairleadError):
                raise
            raise StillStarting(patience) from None
        client = connection.client
        if self._link is None or client is not self._client:
            self.lost()
            self._client = client
            self._link = _borrowed(self.name, client, self._interceptors)
            if self.relay.settings.era == "auto":  # a server that is known need not be asked again
                self.relay.upstream.speaks_stateless = self._link.stateless
            self._link.on_unanswered = partial(self._doubt, client)
            self._follow(client)
        return self._link

    @property
    def patience(self) -> StartupWait:
        """How long a call waits until it is connected."""
        supervisor = self._manager.describe().get(self.name)
        return StartupWait(0.0 if supervisor is None else supervisor.timeout, self._call_timeout)

    def _doubt(self, client: MCPClient) -> None:
        supervisor = self._manager.describe().get(self.name)
        if supervisor is not None:
            supervisor.check_hang(client)

    def _follow(self, client: MCPClient) -> None:
        """Hear of changed lists, also after a time in which nobody could tell."""
        declared = client.server.get("capabilities", {})
        self.followed = {name for name in _LISTS if has_capability(declared, f"{name}.listChanged")}
        if self.followed:
            self._following = asyncio.get_running_loop().create_task(self._hear(client))

    async def _hear(self, client: MCPClient) -> None:
        try:
            async with client.changes(*self.followed) as changes:
                async for _ in changes:
                    self.changed()
        except (FairleadError, OSError) as exc:
            log.info("%s: it does not tell of changes: %s", self.name, exc)
        self.followed = set()  # so that what it says of its own accord counts

    def _current(self) -> MCPClient | None:
        supervisor = self._manager.describe().get(self.name)
        return None if supervisor is None else supervisor.client

    def _concerns_one_client(self, error: BaseException) -> bool:
        """Whether a process was lost that other clients do not use.

        A client that declares other capabilities has a connection of its own. What happens to that
        one is no reason to keep others from a server that works.
        """
        lost = isinstance(error, ChannelClosed | ConnectFailed)
        return lost and self.relay.upstream.way.shared and self._works

    @property
    def _works(self) -> bool:
        """Whether the connection is open that most clients share."""
        link = self._link
        return link is not None and link.alive and self._client is self._current()

    @property
    def rank(self) -> int:
        """How good the chances of a call are; 0 is best."""
        if self.breaker.state == "open":
            return 3
        status = self._manager.get_connection_status(self.name)
        return {"connected": 0, "connecting": 1}.get(status, 2)

    async def answer(self, exchange: Exchange, visitor: ConnectedClient | None) -> Answer:
        """Raises as `Relay.answer` does; `CircuitOpenError` if it failed too often of late."""
        front = None if visitor is None else visitor.front(self.relay)
        if exchange.method == LISTEN:  # takes as long as the client likes
            return await self.relay.answer(exchange, front)
        admission = self.breaker.admit()
        began = time.monotonic()
        self.calls += 1
        error: BaseException | None = None
        try:
            return await self.relay.answer(exchange, front)
        except BaseException as exc:
            error = exc
            self.errors += isinstance(exc, Exception)  # who gives up has not been failed
            raise
        finally:
            if error is not None and self._concerns_one_client(error):
                error = None
            admission.ended(error)
            took = time.monotonic() - began
            self.latency = took if self.latency is None else 0.9 * self.latency + 0.1 * took

    def lost(self) -> None:
        """The manager's connection may be another now, or none: nobody waits for the old one."""
        link = self._link
        if link is None or (link.alive and self._client is self._current()):
            return
        self._link = self._client = None
        self._unfollow()
        for front in list(link.fronts):
            front.link = None
        self._orphans += link.fronts
        link.fronts.clear()
        if self.relay.upstream.on_lost is not None:
            self.relay.upstream.on_lost(link, link.peer.end or ChannelClosed())

    async def adopt(self) -> None:
        """The server is there again, for those too who only listen to it."""
        orphans, self._orphans = self._orphans, []
        for front in orphans:
            caller = front.peer.conversation.peer
            if caller is None or front.introduction is None or not front.takes(_NEWS):
                continue
            if front.peer.connected and front.link is None:
                await self.relay.reconnect_session(front, caller)

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        await self.relay.end_streams()
        if self._link is not None and self._link.changes is not None:
            await self._link.changes.end()

    def hang_up(self, edge: object) -> None:
        """Hang up on one who only listens."""
        self.relay.hang_up(edge)
        if self._link is not None and self._link.changes is not None:
            self._link.changes.stop(edge)

    def _unfollow(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    async def close(self) -> None:
        following = self._following
        self._unfollow()
        if following is not None:
            await asyncio.wait((following,))
        await self.relay.close()
        if self._link is not None:
            await self._link.close()


def _borrowed(name: str, client: MCPClient, interceptors: Sequence[Interceptor]) -> Link:
    """A link on a client's connection: both hear what the server says."""
    transport = client.transport
    link = Link(name, transport.peer, interceptors=interceptors)
    before = transport.overhear

    def overhear(note: Notification) -> None:
        if before is not None:
            before(note)
        link.told(note)

    transport.overhear = overhear
    return link
