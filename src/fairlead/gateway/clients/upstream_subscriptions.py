"""Subscriptions at servers, each shared by all clients that watch the resource."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ...errors import FairleadError, LocalProtocolError, RpcError
from ...transport.background_tasks import BackgroundTasks
from ...upstream.upstream_registry import UpstreamRegistry
from ..backends.backend import Member

__all__ = ["URIS_PER_TURN", "UpstreamSubscriptions", "log_failure"]

URIS_PER_TURN = 16  # URIs of one request that are handled before other tasks run

log = logging.getLogger("fairlead.gateway")

_Key = tuple[str, str]  # name of a member, URI


class UpstreamSubscriptions(Struct, eq=False):
    """Subscriptions to resources of servers, which last as long as a client watches the resource.

    The upstream renews a subscription after each reconnect. A server that cannot be reached gets
    the request once it is connected, and so does a new server with the name of a removed one.
    """

    upstreams: UpstreamRegistry
    members: Mapping[str, Member]
    tasks: BackgroundTasks
    _watchers: dict[_Key, set[object]] = {}
    _by_member: dict[str, dict[str, None]] = {}  # watched URIs by the name of the member
    _asking: dict[_Key, asyncio.Task[bool]] = {}  # subscriptions in progress
    # completed subscriptions: the name of a replica, and the URI
    _asked: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._watchers)

    def uris(self, member: Member, changed: str | None = None) -> list[str]:
        """Return the watched URIs of a server; with `changed`, only those that a changed URI
        affects.

        The specification allows notifications about a part of a resource, which count as changes of
        the whole resource.
        """
        watched = self._by_member.get(member.name, {})
        if changed is None:
            return list(watched)
        if changed in watched:
            return [changed]
        # The smaller set is searched, because a server decides how often this runs.
        if len(changed) < len(watched):
            return [start for end in range(len(changed)) if (start := changed[:end]) in watched]
        return [uri for uri in watched if changed.startswith(uri)]

    async def add(self, member: Member, uri: str, watcher: object, deadline: float) -> bool:
        """Add a watcher of a resource; return False if the server refuses the subscription.

        After `deadline` seconds, a server that has not responded or is not connected counts as
        having accepted. If the wait is cancelled, the watcher is removed.
        """
        return bool(await self.add_all({uri: member}, watcher, deadline))

    async def add_all(
        self, wanted: Mapping[str, Member], watcher: object, deadline: float
    ) -> Sequence[str]:
        """Add a watcher of several resources; return the URIs whose servers have not refused."""
        asked: dict[str, asyncio.Task[bool] | None] = {}
        try:
            for uri, member in wanted.items():
                asked[uri] = self._begin(member, uri, watcher)
                if len(asked) % URIS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if waiting := [task for task in asked.values() if task is not None]:
                await asyncio.wait(waiting, timeout=deadline)
        except asyncio.CancelledError:
            for uri in asked:
                self.remove(wanted[uri].name, uri, watcher)
            raise
        granted = []
        for uri, task in asked.items():
            if task is not None and task.done() and not task.cancelled() and not task.result():
                self.remove(wanted[uri].name, uri, watcher)
            else:
                granted.append(uri)
        return granted

    def _begin(self, member: Member, uri: str, watcher: object) -> "asyncio.Task[bool] | None":
        """Add a watcher; return the task that subscribes at the server, while it runs."""
        key = member.name, uri
        watchers = self._watchers.setdefault(key, set())
        self._by_member.setdefault(member.name, {})[uri] = None
        asking = self._asking.get(key)
        if not watchers and asking is None:
            asking = self._asking[key] = self.tasks.start(self._ask_all(member, uri))
            asking.add_done_callback(lambda _: self._asking.pop(key))
        watchers.add(watcher)
        return asking

    def remove(self, name: str, uri: str, watcher: object) -> None:
        """Remove a watcher, if it is registered. The member may be removed already."""
        key = name, uri
        watchers = self._watchers.get(key, set())
        watchers.discard(watcher)
        if watchers or self._watchers.pop(key, None) is None:
            return
        if (watched := self._by_member.get(name)) is not None:
            watched.pop(uri, None)
            if not watched:
                del self._by_member[name]
        member = self.members.get(name)
        for own in () if member is None else member.names:
            self._asked.discard((own, uri))
            upstream = self.upstreams.get(own)
            # A subscription in progress checks for watchers itself when it is complete.
            if upstream is not None and key not in self._asking:
                self.tasks.start(log_failure(upstream.unsubscribe(uri)))

    def forget(self, member: Member) -> None:
        """Forget the subscriptions of a removed server.

        Its watchers stay registered, in case a server with the same name is added.
        """
        self._asked = {pair for pair in self._asked if pair[0] not in member.names}

    def connected(self, member: Member, replica: str) -> None:
        """Subscribe at a connected replica to the watched URIs that it does not have yet."""
        for uri in list(self._by_member.get(member.name, ())):
            if (replica, uri) not in self._asked:
                self.tasks.start(self._ask(member, replica, uri))

    async def _ask_all(self, member: Member, uri: str) -> bool:
        if len(member.names) == 1:
            return await self._ask(member, member.names[0], uri)
        asked = (self._ask(member, own, uri) for own in member.names)
        return any(await asyncio.gather(*asked))

    async def _ask(self, member: Member, replica: str, uri: str) -> bool:
        """Subscribe at a replica; return False if the server refuses."""
        upstream = self.upstreams.get(replica)
        if upstream is None:
            return True
        try:
            await upstream.subscribe(uri)
        except (RpcError, LocalProtocolError) as exc:
            log.info("%s: subscription to %s refused: %s", replica, uri, exc)
            return False
        except FairleadError as exc:
            log.info(
                "%s: subscription to %s failed, retried after reconnecting: %s", replica, uri, exc
            )
        else:
            if (member.name, uri) in self._watchers:
                self._asked.add((replica, uri))
            else:
                # The last watcher was removed during the request.
                await log_failure(upstream.unsubscribe(uri))
        return True


async def log_failure(work: Coroutine[Any, Any, object]) -> None:
    """Await a request whose result is not needed, and log its failure."""
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)
