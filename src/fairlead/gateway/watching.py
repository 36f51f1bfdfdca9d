"""Which resources of which servers are watched, for how many clients."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import FairleadError, LocalProtocolError, RpcError
from ..manager import MCPManager
from .member import Member

__all__ = ["Watching"]

log = logging.getLogger("fairlead.gateway")

_Key = tuple[str, str]  # the name of a member, and a URI


class Watching:
    """Asks servers to tell of a resource as long as somebody wants to hear of it.

    A server that is asked once is asked again by the manager after each reconnect. One that could
    not be asked is asked as soon as it is there.
    """

    def __init__(
        self, manager: MCPManager, start: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    ) -> None:
        """`start` runs something until it is done or the gateway ends."""
        self._manager = manager
        self._start = start
        self._counts: dict[_Key, int] = {}
        self._asked: set[tuple[str, str]] = set()  # replicas and URIs

    def __len__(self) -> int:
        return len(self._counts)

    def wants(self, member: Member, uri: str) -> bool:
        """Whether somebody watches this resource of that server."""
        return (member.name, uri) in self._counts

    def uris(self, member: Member, changed: str | None = None) -> list[str]:
        """What is watched at a server: all of it, or what is concerned if something has changed.

        A server may tell of a part of what was asked for; that is a change of the whole.
        """
        if changed is not None and self.wants(member, changed):
            return [changed]
        watched = [uri for name, uri in self._counts if name == member.name]
        return [uri for uri in watched if changed is None or changed.startswith(uri)]

    async def add(self, member: Member, uri: str, deadline: float) -> bool:
        """One more client watches; False if the server says that it does not tell of it.

        A server that is slow, or away, is not waited for longer than `deadline`.
        """
        key = member.name, uri
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] > 1:
            return True
        asking = [self._start(self._ask(member, one.name, uri)) for one in member.replicas]
        done, _ = await asyncio.wait(asking, timeout=deadline)
        if len(done) == len(asking) and not any(task.result() for task in done):
            self.remove(member, uri)
            return False
        return True

    def remove(self, member: Member, uri: str) -> None:
        """One client less."""
        key = member.name, uri
        count = self._counts.get(key, 0)
        if count > 1:
            self._counts[key] = count - 1
            return
        self._counts.pop(key, None)
        for replica in member.replicas:
            self._asked.discard((replica.name, uri))
            supervisor = self._manager.describe().get(replica.name)
            if supervisor is not None:
                self._start(_quietly(supervisor.unsubscribe(uri)))

    def forget(self, member: Member) -> None:
        """A server has gone, and all that was watched there."""
        self._counts = {key: n for key, n in self._counts.items() if key[0] != member.name}
        names = {replica.name for replica in member.replicas}
        self._asked = {pair for pair in self._asked if pair[0] not in names}

    def connected(self, member: Member, replica: str) -> None:
        """A server is there: it may not have heard of everything yet."""
        for name, uri in list(self._counts):
            if name == member.name and (replica, uri) not in self._asked:
                self._start(self._ask(member, replica, uri))

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
                await _quietly(supervisor.unsubscribe(uri))
        return True


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)
