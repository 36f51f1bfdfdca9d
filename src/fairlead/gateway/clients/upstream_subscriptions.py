"""Subscriptions to resources of servers, each shared by the clients that watch the resource."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ...errors import FairleadError, LocalProtocolError, RpcError
from ...upstream.upstream_registry import UpstreamRegistry
from ..backends.backend import Member
from ..background_tasks import BackgroundTasks

__all__ = ["URIS_PER_TURN", "UpstreamSubscriptions", "log_failure"]

URIS_PER_TURN = 16  # of one request, before other work gets its turn

log = logging.getLogger("fairlead.gateway")

_Key = tuple[str, str]  # the name of a member, and a URI


class UpstreamSubscriptions:
    """Subscribes to a resource of a server for as long as a client watches it.

    The upstream renews a subscription after each reconnect. A server that could not be reached
    gets the request once it is connected; so does one that replaces another of its name.
    """

    def __init__(
        self, upstreams: UpstreamRegistry, members: Mapping[str, Member], tasks: BackgroundTasks
    ) -> None:
        self._upstreams = upstreams
        self._members = members
        self._tasks = tasks
        self._watchers: dict[_Key, set[object]] = {}
        self._by_member: dict[str, dict[str, None]] = {}  # watched URIs, by the name of a member
        self._asking: dict[_Key, asyncio.Task[bool]] = {}  # subscriptions without an answer yet
        self._asked: set[tuple[str, str]] = set()  # replicas and URIs

    def __len__(self) -> int:
        return len(self._watchers)

    def wants(self, member: Member, uri: str) -> bool:
        """Return True if a client watches this resource of that server."""
        return (member.name, uri) in self._watchers

    def uris(self, member: Member, changed: str | None = None) -> list[str]:
        """Return the URIs that are watched at a server; with `changed`, those that it concerns.

        A server may notify of a part of a resource; that is a change of the whole.
        """
        watched = self._by_member.get(member.name, {})
        if changed is None:
            return list(watched)
        if changed in watched:
            return [changed]
        if len(changed) < len(watched):  # the cheaper way: a server decides how often this runs
            return [start for end in range(len(changed)) if (start := changed[:end]) in watched]
        return [uri for uri in watched if changed.startswith(uri)]

    async def add(self, member: Member, uri: str, watcher: object, deadline: float) -> bool:
        """Add a watcher of a resource; return False if the server refuses to notify of it.

        A server that is slow or not connected is waited for no longer than `deadline`, and counts
        as one that agrees. If the wait is cancelled, the watcher is removed again.
        """
        return bool(await self.add_all({uri: member}, watcher, deadline))

    async def add_all(
        self, wanted: Mapping[str, Member], watcher: object, deadline: float
    ) -> Sequence[str]:
        """Do the same for several resources; return those of which their servers notify."""
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
            asking = self._asking[key] = self._tasks.start(self._ask_all(member, uri))
            asking.add_done_callback(lambda _: self._asking.pop(key))
        watchers.add(watcher)
        return asking

    def remove(self, name: str, uri: str, watcher: object) -> None:
        """Remove a watcher if it is one; the member of that name may be removed by now."""
        key = name, uri
        watchers = self._watchers.get(key, set())
        watchers.discard(watcher)
        if watchers or self._watchers.pop(key, None) is None:
            return
        if (watched := self._by_member.get(name)) is not None:
            watched.pop(uri, None)
            if not watched:
                del self._by_member[name]
        member = self._members.get(name)
        for own in () if member is None else member.names:
            self._asked.discard((own, uri))
            upstream = self._upstreams.get(own)
            if upstream is not None and key not in self._asking:  # which checks for watchers then
                self._tasks.start(log_failure(upstream.unsubscribe(uri)))

    def forget(self, member: Member) -> None:
        """Forget what a removed server was asked; watchers stay for another of its name."""
        self._asked = {pair for pair in self._asked if pair[0] not in member.names}

    def connected(self, member: Member, replica: str) -> None:
        """Subscribe at a server that is connected to what it was not asked for yet."""
        for uri in list(self._by_member.get(member.name, ())):
            if (replica, uri) not in self._asked:
                self._tasks.start(self._ask(member, replica, uri))

    async def _ask_all(self, member: Member, uri: str) -> bool:
        if len(member.names) == 1:
            return await self._ask(member, member.names[0], uri)
        asked = (self._ask(member, own, uri) for own in member.names)
        return any(await asyncio.gather(*asked))

    async def _ask(self, member: Member, replica: str, uri: str) -> bool:
        """Return False if the server refuses to notify of the resource."""
        upstream = self._upstreams.get(replica)
        if upstream is None:
            return True
        try:
            await upstream.subscribe(uri)
        except (RpcError, LocalProtocolError) as exc:
            log.info("%s: it does not tell of changes of %s: %s", replica, uri, exc)
            return False
        except FairleadError as exc:
            log.info("%s: no subscription to %s yet: %s", replica, uri, exc)
        else:
            if self.wants(member, uri):
                self._asked.add((replica, uri))
            else:  # the watchers have been removed meanwhile
                await log_failure(upstream.unsubscribe(uri))
        return True


async def log_failure(work: Coroutine[Any, Any, object]) -> None:
    """Run a request whose result is not needed; log it if it fails."""
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)
