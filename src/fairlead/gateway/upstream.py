"""One server behind us: its connections, by who may share them.

A stateless server has one connection, for everybody. A server of the handshake era has one for
each kind of caller, because what a client can do is settled once, when a connection is opened.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec
from msgspec import Raw

from ..client.opening import Introduction, open_conversation
from ..errors import ChannelClosed, ConnectFailed, FairleadError, HttpError, RpcError
from ..protocol.caller import Caller
from ..protocol.methods import has_capability
from ..protocol.outgoing import Identity
from ..protocol.probe import judge_initialize
from ..wire import Success
from .bridge.capabilities import for_handshake_server
from .front import Front
from .link import Link
from .settings import RelaySettings
from .way import Way

__all__ = ["Upstream", "asks_back"]

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds without another attempt after one that failed

log = logging.getLogger("fairlead.gateway")

ASKED_BACK = ("elicitation", "sampling", "roots")


def asks_back(capabilities: bytes) -> bool:
    """Whether somebody with these capabilities may be asked something by a server."""
    declared = msgspec.json.decode(capabilities)
    return isinstance(declared, dict) and any(has_capability(declared, c) for c in ASKED_BACK)


class Upstream:
    """The connections to one server."""

    def __init__(self, way: Way, settings: RelaySettings, info: dict[str, str]) -> None:
        """`info` is how we introduce ourselves where no client does."""
        self.way = way
        self.name = way.name
        self.settings = settings
        # What it speaks, as far as it is known; or as far as it shall be used.
        self.speaks_stateless: bool | None = False if settings.era == "handshake" else None
        self.speaks_handshake: bool | None = False if settings.era == "stateless" else None
        self.error: BaseException | None = None  # of the last attempt, while there is no connection
        self.base: Callable[[], Awaitable[Link]] | None = None  # a connection that is there anyway
        self.on_link: Callable[[Link], None] | None = None  # told of each new connection
        self.on_lost: Callable[[Link, ChannelClosed], None] | None = None
        self._info = info
        self._links: dict[Hashable, list[Link]] = {}
        self.own: set[Link] = set()  # those of one session each
        self._opening: dict[Hashable, asyncio.Task[Link]] = {}
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def links(self) -> list[Link]:
        """All connections that there are."""
        return [*(link for links in self._links.values() for link in links), *self.own]

    # For stateless clients

    async def for_caller(self, caller: Caller) -> Link:
        """A connection for a request that stands alone.

        Raises:
            FairleadError: the server cannot be reached.
        """
        base = await self._base_for(caller)
        if base is not None:
            return base
        if self.speaks_stateless is not False:
            link = self._shared(_STATELESS)
            if link is not None:
                return link
        capabilities = for_handshake_server(caller.capabilities)
        key = (caller.principal, capabilities)
        link = self._shared(key)
        if link is not None:
            return link
        if self.speaks_stateless is False:
            greeting = _introduction(capabilities, caller)
            return await self._once(key, lambda: self._greet(greeting), file_as=lambda _: key)
        await self._once(
            _STATELESS,
            lambda: self._find_out(capabilities, caller),
            file_as=lambda link: _STATELESS if link.stateless else key,
        )
        return await self.for_caller(caller)  # now it is known where to look

    async def for_asking(self, caller: Caller) -> Link:
        """The same for one who may be asked back, where it has to be alone on its connection.

        Its turn has been taken; whoever calls this releases it.

        Raises:
            FairleadError: the server cannot be reached.
            TimeoutError: all connections were busy for too long.
        """
        link = await self.for_caller(caller)
        if link.stateless or link.tells_apart:
            return link
        key = (caller.principal, for_handshake_server(caller.capabilities))
        while True:
            links = [one for one in self._links.get(key, ()) if one.alive]
            for one in links:
                if one.turns.try_take():
                    return one
            if len(links) >= self.settings.max_channels:
                one = min(links, key=lambda each: each.turns.waiting)
                await one.turns.take(self.settings.turn_timeout)
                if one.alive:
                    return one
                one.turns.release()
                continue
            await self._one_more(key, len(links), _introduction(key[1], caller))

    async def _one_more(self, key: Hashable, number: int, greeting: dict[str, Any]) -> None:
        await self._once((key, number), lambda: self._greet(greeting), lambda _: key)

    async def _base_for(self, caller: Caller) -> Link | None:
        """The connection that is there anyway, for all whom its server cannot confuse."""
        if self.base is None:
            return None
        link = await self.base()
        return link if link.stateless or not asks_back(caller.capabilities) else None

    # For sessions of the handshake era

    async def for_session(self, front: Front, introduction: Raw, caller: Caller) -> Link:
        """The connection of a session; `introduction` are the params of its `initialize`.

        Raises:
            RpcError: the server said no.
            FairleadError: it cannot be reached.
        """
        base = await self._base_for(caller)
        if base is not None:
            return self._attach(base, front)
        if self.speaks_handshake is False:
            return self._attach(await self._stateless_for_session(caller), front)
        try:
            return self._attach(await self._handshake_for_session(introduction, caller), front)
        except (RpcError, HttpError) as exc:
            if self.speaks_handshake or not _may_be_stateless(exc):
                raise
            try:
                link = await self._stateless_for_session(caller)
            except FairleadError as other:
                log.debug("%s: nor is it stateless: %s", self.name, other)
                raise exc from None
            self.speaks_handshake = False
            return self._attach(link, front)

    async def _handshake_for_session(self, introduction: Raw, caller: Caller) -> Link:
        shared = self.way.shared and self.settings.upstream == "shared"
        if not shared:
            link = await self._open(lambda link: self._handshake(link, introduction))
            self.own.add(link)
            return link
        version = msgspec.json.decode(introduction, type=dict[str, Raw]).get("protocolVersion")
        key = ("session", caller.principal, caller.capabilities, bytes(version or b""))
        links = [link for link in self._links.get(key, ()) if link.alive]
        room = len(links) < self.settings.max_channels and asks_back(caller.capabilities)
        least = min(links, key=lambda each: len(each.fronts), default=None)
        if least is not None and (not least.fronts or not room):
            return least
        # One after the other: the next one looks again whether there is room.
        return await self._once(
            (key, len(links)),
            lambda: self._open(lambda link: self._handshake(link, introduction)),
            lambda _: key,
        )

    async def _stateless_for_session(self, caller: Caller) -> Link:
        link = await self.for_caller(caller)
        if not link.stateless:
            raise ConnectFailed(f"{self.name} does not speak the stateless era either")
        return link

    def _attach(self, link: Link, front: Front) -> Link:
        link.fronts[front] = None
        front.link = link
        return link

    async def leave(self, front: Front) -> None:
        """A session is over; a connection of its own ends with it."""
        link, front.link = front.link, None
        if link is None:
            return
        link.fronts.pop(front, None)
        if link in self.own:
            self.own.discard(link)
            await link.close()
        elif not link.fronts and not link.calls and not link.stateless and not self._keeps(link):
            self._forget(link)
            await link.close()

    def _keeps(self, link: Link) -> bool:
        """Of connections that nobody uses, the first of each kind stays for the next one."""
        return any(links and links[0] is link for links in self._links.values())

    # Opening

    def _shared(self, key: Hashable) -> Link | None:
        for link in self._links.get(key, ()):
            if link.alive:
                return link
        return None

    async def _once(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[Link]],
        file_as: Callable[[Link], Hashable],
    ) -> Link:
        """Make a connection, however many want it; who gives up takes nobody else with him."""
        task = self._opening.get(key)
        if task is None:
            task = asyncio.ensure_future(self._made(make, file_as))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    async def _made(
        self, make: Callable[[], Awaitable[Link]], file_as: Callable[[Link], Hashable]
    ) -> Link:
        link = await make()
        self._links.setdefault(file_as(link), []).append(link)
        return link

    async def _open(
        self, converse: Callable[[Link], Awaitable[None]], identity: Identity | None = None
    ) -> Link:
        """A connection on which the conversation is open.

        Raises:
            FairleadError: and why there is none.
        """
        self._check_open()
        if self.error is not None and time.monotonic() < self._not_before:
            raise ConnectFailed(f"{self.name} is not there: {self.error}")
        link: Link | None = None
        try:
            async with asyncio.timeout(self.settings.connect_timeout or None):
                channel = await self.way.open()
                link = Link(
                    self.name,
                    channel,
                    identity=identity,
                    id_format=self.way.id_format,
                    input_timeout=self.settings.input_timeout,
                    on_close=self._lost,
                )
                await converse(link)
                self._check_open()  # or nobody would close it
        except BaseException as exc:
            if link is not None:
                await link.close()
            error = exc
            if isinstance(exc, TimeoutError) and not isinstance(exc, FairleadError):
                seconds = self.settings.connect_timeout
                error = ConnectFailed(f"{self.name} did not answer within {seconds:g} s")
            if not isinstance(error, asyncio.CancelledError | RpcError | HttpError):
                self._failed(error)
            raise error from None
        self.error, self._failures = None, 0
        if self.on_link is not None:
            self.on_link(link)
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectFailed(f"{self.name}: the gateway ends")

    def _failed(self, exc: BaseException) -> None:
        self.error = exc
        delay = min(FIRST_DELAY * 2**self._failures, LONGEST_DELAY)
        self._failures += 1
        self._not_before = time.monotonic() + delay

    async def _handshake(self, link: Link, introduction: Raw) -> None:
        """Pass an `initialize` on as it is; `initialized` follows when the client says so."""
        result = await link.peer.forward(
            "initialize", lambda _: introduction, timeout=self.settings.connect_timeout
        )
        agreement = judge_initialize(Success(0, result))
        link.introduction = result.copy()
        link.agreement = agreement
        link.peer.conversation.agreed(agreement)
        self.speaks_handshake = True

    async def _greet(self, introduction: dict[str, Any]) -> Link:
        return await self._converse(introduction, stateless=False)

    async def _find_out(self, capabilities: bytes, caller: Caller) -> Link:
        introduction = _introduction(capabilities, caller)
        try:
            link = await self._converse(introduction, stateless=None)
        except ChannelClosed as exc:
            if exc.exit_code is None:
                raise
            # Some servers die of a first message they do not know; they get the one they expect.
            self._not_before = 0.0
            link = await self._converse(introduction, stateless=False)
        return link

    async def _converse(self, introduction: dict[str, Any], stateless: bool | None) -> Link:
        identity = Identity(introduction["clientInfo"], introduction["capabilities"])

        async def converse(link: Link) -> None:
            opening = Introduction(introduction, timeout=self.settings.connect_timeout)
            link.agreement = await open_conversation(link.peer, opening, stateless=stateless)
            if stateless is None:
                self.speaks_stateless = link.agreement.revision.stateless
            if not link.agreement.revision.stateless:
                self.speaks_handshake = True

        return await self._open(converse, identity)

    # Ending

    def _lost(self, link: Link, end: ChannelClosed) -> None:
        self._forget(link)
        for front in list(link.fronts):
            front.link = None
        link.fronts.clear()
        if self.on_lost is not None and not self._closed:
            self.on_lost(link, end)

    def _forget(self, link: Link) -> None:
        self.own.discard(link)
        for key, links in list(self._links.items()):
            if link in links:
                links.remove(link)
                if not links:
                    del self._links[key]

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(link.close() for link in self.links), return_exceptions=True)


_STATELESS = "stateless"


def _introduction(capabilities: bytes, caller: Caller) -> dict[str, Any]:
    info = None if caller.info is None else msgspec.json.decode(caller.info)
    return {
        "capabilities": msgspec.json.decode(capabilities),
        "clientInfo": info if isinstance(info, dict) else {"name": "fairlead", "version": "0"},
    }


def _may_be_stateless(exc: RpcError | HttpError) -> bool:
    """Whether a refused `initialize` may come from a server that knows no handshake."""
    if isinstance(exc, HttpError):
        return exc.status in (400, 404, 405, 406, 415, 422)
    return exc.code in (-32600, -32601, -32602, -32022, -32020)
