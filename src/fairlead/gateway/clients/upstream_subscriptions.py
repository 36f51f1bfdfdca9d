"""Subscriptions to resources of servers, each shared by the clients that watch the resource."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ...errors import FairleadError, LocalProtocolError, RpcError
from ...manager import MCPManager
from ..backends.backend import Member
from ..background_tasks import BackgroundTasks

__all__ = ["URIS_PER_TURN", "UpstreamSubscriptions", "log_failure"]

URIS_PER_TURN = 16  # of one request, before other work gets its turn

log = logging.getLogger("fairlead.gateway")

_Key = tuple[str, str]  # the name of a member, and a URI


class UpstreamSubscriptions:
    """Subscribes to a resource of a server for as long as a client watches it.

    The manager renews a subscription after each reconnect. A server that could not be reached
    gets the request once it is connected; so does one that replaces another of its name.
    """

    def __init__(
        self, manager: MCPManager, members: Mapping[str, Member], tasks: BackgroundTasks
    ) -> None:
        self._manager = manager
        self._members = members
        self._tasks = tasks
        self._watchers: dict[_Key, set[object]] = {}
        self._by_member: dict[str, dict[str, None]] = {}  # their URIs, by the name of a member
        self._asking: dict[_Key, asyncio.Task[bool]] = {}  # servers that have not answered yet
        self._asked: set[tuple[str, str]] = set()  # replicas and URIs

    def __len__(self) -> int:
        return len(self._watchers)

    def wants(self, member: Member, uri: str) -> bool:
        """Return True if a client watches this resource of that server."""
        return (member.name, uri) in self._watchers

    def uris(self, member: Member, changed: str | None = None) -> list[str]:
        """What is watched at a server: all of it, or what is concerned if something has changed.

        A server may tell of a part of what was asked for; that is a change of the whole.
        """
        watched = self._by_member.get(member.name, {})
        if changed is None:
            return list(watched)
        if changed in watched:
            return [changed]
        if len(changed) < len(watched):  # the shorter way: a server chooses how often we look
            return [start for end in range(len(changed)) if (start := changed[:end]) in watched]
        return [uri for uri in watched if changed.startswith(uri)]

    async def add(self, member: Member, uri: str, who: object, deadline: float) -> bool:
        """One more watches; False if the server says that it does not tell of it.

        A server that is slow, or away, is not waited for longer than `deadline`. Who does not wait
        that long does not watch.
        """
        return bool(await self.add_all({uri: member}, who, deadline))

    async def add_all(
        self, wanted: Mapping[str, Member], who: object, deadline: float
    ) -> Sequence[str]:
        """The same for several resources. Returns those of which their servers tell."""
        asked: dict[str, asyncio.Task[bool] | None] = {}
        try:
            for uri, member in wanted.items():
                asked[uri] = self._begin(member, uri, who)
                if len(asked) % URIS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if waiting := [task for task in asked.values() if task is not None]:
                await asyncio.wait(waiting, timeout=deadline)
        except asyncio.CancelledError:
            for uri in asked:
                self.remove(wanted[uri].name, uri, who)
            raise
        told = []
        for uri, task in asked.items():
            if task is not None and task.done() and not task.cancelled() and not task.result():
                self.remove(wanted[uri].name, uri, who)
            else:
                told.append(uri)
        return told

    def _begin(self, member: Member, uri: str, who: object) -> "asyncio.Task[bool] | None":
        """One more watches. Returns the task that asks the server, while it does."""
        key = member.name, uri
        watchers = self._watchers.setdefault(key, set())
        self._by_member.setdefault(member.name, {})[uri] = None
        asking = self._asking.get(key)
        if not watchers and asking is None:
            asking = self._asking[key] = self._tasks.start(self._ask_all(member, uri))
            asking.add_done_callback(lambda _: self._asking.pop(key))
        watchers.add(who)
        return asking

    def remove(self, name: str, uri: str, who: object) -> None:
        """It watches no longer, if it did; the member of that name may have gone before."""
        key = name, uri
        watchers = self._watchers.get(key, set())
        watchers.discard(who)
        if watchers or self._watchers.pop(key, None) is None:
            return
        if (watched := self._by_member.get(name)) is not None:
            watched.pop(uri, None)
            if not watched:
                del self._by_member[name]
        member = self._members.get(name)
        for replica in () if member is None else member.replicas:
            self._asked.discard((replica.name, uri))
            supervisor = self._manager.describe().get(replica.name)
            if supervisor is not None and key not in self._asking:  # which looks who wants it then
                self._tasks.start(log_failure(supervisor.unsubscribe(uri)))

    def forget(self, member: Member) -> None:
        """A server has gone; who watches something there still does, should another come."""
        names = {replica.name for replica in member.replicas}
        self._asked = {pair for pair in self._asked if pair[0] not in names}

    def connected(self, member: Member, replica: str) -> None:
        """A server is there: it may not have heard of everything yet."""
        for uri in list(self._by_member.get(member.name, ())):
            if (replica, uri) not in self._asked:
                self._tasks.start(self._ask(member, replica, uri))

    async def _ask_all(self, member: Member, uri: str) -> bool:
        if len(member.replicas) == 1:
            return await self._ask(member, member.replicas[0].name, uri)
        asked = (self._ask(member, replica.name, uri) for replica in member.replicas)
        return any(await asyncio.gather(*asked))

    async def _ask(self, member: Member, replica: str, uri: str) -> bool:
        """Whether it tells of the resource, now or once it is there."""
        supervisor = self._manager.describe().get(replica)
        if supervisor is None:
            return True
        try:
            await supervisor.subscribe(uri)
        except (RpcError, LocalProtocolError) as exc:
            log.info("%s: it does not tell of changes of %s: %s", replica, uri, exc)
            return False
        except FairleadError as exc:
            log.info("%s: no subscription to %s yet: %s", replica, uri, exc)
        else:
            if self.wants(member, uri):
                self._asked.add((replica, uri))
            else:  # whoever wanted it has left meanwhile
                await log_failure(supervisor.unsubscribe(uri))
        return True


async def log_failure(work: Coroutine[Any, Any, object]) -> None:
    """Ask a server for something that nobody waits for; that it cannot be asked is only noted."""
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)
