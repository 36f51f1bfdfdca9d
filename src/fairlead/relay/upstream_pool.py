"""One server behind us: its connections, by who may share them.

A stateless server has one connection, for everybody. A server of the handshake era has one for
each kind of caller, because what a client can do is settled once, when a connection is opened.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from ..client.connection.handshake import HandshakeOptions, open_conversation
from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    RpcError,
    ServerBusy,
)
from ..interceptor import Interceptor
from ..limits import CONNECTIONS_PER_CLIENT
from ..protocol.caller import Caller
from ..protocol.conversation.era_probe import (
    RefusedInitialize,
    judge_initialize,
    judge_refused_initialize,
    lacks_handshake,
)
from ..protocol.identity.principal import ANONYMOUS, UNNAMED, Principal
from ..protocol.outgoing_params import Identity
from ..protocol.public_reason import public_reason
from ..protocol.revisions import NEWEST
from ..transport.backoff import Backoff
from ..upstream.liveness import LivenessProbe
from ..upstream.start_limiter import StartLimiter
from ..wire import Success
from .bridge.client_capabilities import can_be_asked, fingerprint, for_handshake_server, has_roots
from .client_session import Front
from .relay_settings import RelaySettings
from .server_target import Way
from .turn_lock import Turn
from .upstream_connection import Link
from .upstream_param_headers import Marks

__all__ = ["Upstream"]

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds without another attempt after one that failed

MOST_BACKOFFS = 1024  # principals whose failed attempts are remembered
EVICTABLE_AFTER = 5.0  # seconds without use; a client that declares something else in each request
# would otherwise start a process with each of them
QUIET_AFTER = 60.0  # seconds without a call, after which others may take the place of a session
PROBE_TIMEOUT = 5.0  # seconds for `server/discover`, after the server has answered `initialize`

log = logging.getLogger("fairlead.gateway")


class _FailedAttempts:
    """The failed attempts of one principal to open a connection.

    They are counted per principal, because a client chooses what it declares, and some servers exit
    when they receive it.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None  # of the last attempt
        self._backoff = Backoff(FIRST_DELAY, LONGEST_DELAY, jitter=0.0)
        self._not_before = 0.0

    @property
    def waiting(self) -> bool:
        """Whether it is too early for another attempt."""
        return time.monotonic() < self._not_before

    def failed(self, error: BaseException) -> None:
        self._not_before = time.monotonic() + self._backoff.next()
        self.error = error

    def try_at_once(self) -> None:
        self._not_before = 0.0


class Upstream:
    """The connections to one server."""

    def __init__(
        self,
        way: Way,
        settings: RelaySettings,
        info: dict[str, str],
        starts: StartLimiter | None = None,
    ) -> None:
        """`info` is how we introduce ourselves where no client does; `starts` limits processes."""
        self.way = way
        self._starts = starts or StartLimiter()
        self.name = way.name
        self.settings = settings
        # What it speaks, as far as it is known; or as far as it shall be used.
        self.speaks_stateless: bool | None = False if settings.era == "handshake" else None
        self.speaks_handshake: bool | None = False if settings.era == "stateless" else None
        self.asks_roots = False  # it has asked a client for its roots
        self._single_for: set[Hashable] = set()  # callers for whom a second process does not start
        self.wanted = False  # somebody has asked for a connection
        self.error: BaseException | None = None  # of the last attempt, while there is no connection
        self.base: Callable[[], Awaitable[Link]] | None = None  # a connection that is there anyway
        self.interceptors: Sequence[Interceptor] = ()  # around what the server asks and tells
        self.on_link: Callable[[Link], None] | None = None  # told of each new connection
        self.on_lost: Callable[[Link, ChannelClosed], None] | None = None
        self.marks = Marks()
        self.evictable_after = EVICTABLE_AFTER
        self._info = info
        self._links: dict[Hashable, list[Link]] = {}
        self.own: set[Link] = set()  # those of one session each
        self._opening: dict[Hashable, asyncio.Task[Link]] = {}
        self._timers: dict[Link, asyncio.TimerHandle] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._liveness = LivenessProbe(settings.hang_timeout)
        self._reserved: Counter[Principal] = Counter()  # connections that are being opened
        self._backoffs: dict[Principal, _FailedAttempts] = {}
        self._closed = False

    @property
    def stateless_link(self) -> Link | None:
        """The connection that all stateless requests share, while there is one."""
        return None if self.base is not None else self._shared(_STATELESS)

    def handshake_link(self, caller: Caller) -> Link | None:
        """The connection for a request that stands alone, if there is one and the server is known
        to want a handshake."""
        if self.base is not None or self.speaks_stateless is not False:
            return None
        capabilities = for_handshake_server(caller.capabilities)
        return self._shared((caller.principal, fingerprint(capabilities)))

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
        try:
            return await self._for_caller(caller)
        except (ChannelClosed, ConnectFailed) as exc:
            return await self._first_process(exc, caller)

    async def _for_caller(self, caller: Caller) -> Link:
        base = await self._base_for(caller)
        if base is not None:
            return base
        if self.speaks_stateless is not False:
            link = self._shared(_STATELESS)
            if link is not None:
                return link
        capabilities = for_handshake_server(caller.capabilities)
        key = (caller.principal, fingerprint(capabilities))
        link = self._shared(key)
        if link is None and self.speaks_stateless is not False:
            link = await self._once(
                _STATELESS,
                caller.principal,
                lambda: self._find_out(capabilities, caller),
                file_as=lambda link: _STATELESS if link.stateless else key,
            )
            if not link.stateless and link not in self._links.get(key, ()):
                link = self._shared(key)  # it was opened for somebody else
        if link is None:
            greeting = _introduction(capabilities, caller)
            try:
                link = await self._once(
                    key,
                    caller.principal,
                    lambda: self._greet(greeting, caller.principal),
                    file_as=lambda link: _STATELESS if link.stateless else key,
                )
            except (RpcError, HttpError) as exc:
                if not self._doubted(exc):
                    raise
                return await self._for_caller(caller)
        return link

    async def for_asking(self, caller: Caller) -> tuple[Link, Turn | None]:
        """The same for one who may be asked back, where it has to be alone on its connection.

        With the turn that it has there, if it needs one; whoever calls this releases it.

        Raises:
            FairleadError: the server cannot be reached.
            TimeoutError: all connections were busy for too long.
        """
        link = await self.for_caller(caller)
        if link.stateless or link.correlates_calls:
            return link, None
        if link.borrowed:
            return link, await link.turns.take(object(), self.settings.turn_timeout)
        capabilities = for_handshake_server(caller.capabilities)
        key = (caller.principal, fingerprint(capabilities))
        me = object()  # each call for itself: a client without a session has nothing but calls
        room = True
        while True:
            links = [one for one in self._links.get(key, ()) if one.alive]
            for one in links:
                turn = one.turns.try_take(me)
                if turn is not None:
                    return one, turn
            if links and (len(links) >= self.settings.max_channels or not room):
                one, turn = await _first_turn(links, me, self.settings.turn_timeout)
                if one.alive:
                    return one, turn
                turn.release()
                continue
            try:
                await self._one_more(key, len(links), capabilities, caller)
            except FairleadError:
                if not links:
                    raise
                room = False  # then those that there are have to do

    async def _one_more(
        self, key: Hashable, number: int, capabilities: bytes, caller: Caller
    ) -> None:
        greeting = _introduction(capabilities, caller)
        await self._once(
            (key, number),
            caller.principal,
            lambda: self._greet(greeting, caller.principal),
            lambda _: key,
        )

    async def _base_for(self, caller: Caller) -> Link | None:
        """The connection that is there anyway, for all whom its server cannot confuse."""
        if self.base is None:
            return None
        link = await self.base()
        if link.stateless or _single_key(caller) in self._single_for:
            return link
        # What a session changes in such a server is no other principal's business.
        return (
            link
            if caller.principal is ANONYMOUS and not can_be_asked(caller.capabilities)
            else None
        )

    # For sessions of the handshake era

    async def for_session(self, front: Front, introduction: Raw, caller: Caller) -> Link:
        """The connection of a session; `introduction` are the params of its `initialize`.

        Raises:
            RpcError: the server said no.
            FairleadError: it cannot be reached.
        """
        own = self.settings.upstream == "per-session"
        base = None if own else await self._base_for(caller)
        if base is not None:
            return self._attach(base, front)
        if self.speaks_handshake is False:
            return self._attach(await self._stateless_for_session(caller), front)
        try:
            return self._attach(await self._handshake_for_session(introduction, caller), front)
        except (RpcError, HttpError) as exc:
            if self.speaks_handshake and not self._doubted(exc):
                raise
            return self._attach(await self._without_handshake(exc, caller), front)
        except (ChannelClosed, ConnectFailed) as exc:
            return self._attach(await self._first_process(exc, caller), front)

    async def _first_process(self, exc: ChannelClosed | ConnectFailed, caller: Caller) -> Link:
        """Return the connection that is there anyway, if a second process exited at its start.

        Some servers cannot run twice: they have a fixed port, a lock or a profile. The server then
        cannot ask such a client. Clients with names never share: what one of them declares may
        make a process exit, and must not lead to a process that others use.

        Raises:
            ChannelClosed, ConnectFailed: The error; there is no other process.
        """
        named = caller.principal not in (ANONYMOUS, UNNAMED)
        if exc.exit_code is None or not self.way.shared or self.base is None or named:
            raise exc
        try:
            link = await self.base()
        except FairleadError:
            raise exc from None
        if not link.alive:
            raise exc
        log.warning(
            "%s: a second process exited during its start (%s); the first serves all clients",
            *(self.name, public_reason(exc)),
        )
        if len(self._single_for) < MOST_BACKOFFS:
            self._single_for.add(_single_key(caller))
        return link

    def _doubted(self, refusal: RpcError | HttpError) -> bool:
        """Whether a server that knows no handshake any more may have become a newer one."""
        refused = judge_refused_initialize(refusal)
        if self.settings.era != "auto" or self.links or refused is _FOR_THIS_CLIENT:
            return False
        changed = self.speaks_handshake is True
        self.speaks_stateless = self.speaks_handshake = None
        return changed

    async def _handshake_for_session(self, introduction: Raw, caller: Caller) -> Link:
        shared = self.way.shared and self.settings.upstream == "shared"
        if not shared or (self.asks_roots and has_roots(caller.capabilities)):
            return await self._of_its_own(introduction, caller.principal)
        version = msgspec.json.decode(introduction, type=dict[str, Raw]).get("protocolVersion")
        declared = fingerprint(caller.capabilities)
        key = ("session", caller.principal, declared, bytes(version or b""))
        links = [link for link in self._links.get(key, ()) if link.alive]
        room = len(links) < self.settings.max_channels and can_be_asked(caller.capabilities)
        least = min(links, key=lambda each: len(each.fronts), default=None)
        if least is not None and (not least.fronts or not room):
            return least
        # One after the other: the next one looks again whether there is room.
        return await self._once(
            (key, len(links)),
            caller.principal,
            lambda: self._open(lambda link: self._handshake(link, introduction), caller.principal),
            lambda link: _STATELESS if link.stateless else key,
        )

    async def _of_its_own(self, introduction: Raw, principal: Principal) -> Link:
        # Sessions over HTTP cost little, and are counted in front.
        with self._reserve(principal) if self.way.shared else contextlib.nullcontext():
            link = await self._open(lambda link: self._handshake(link, introduction), principal)
        if link.stateless:
            return await self._made(principal, lambda: _at_once(link), lambda _: _STATELESS)
        self.own.add(link)
        self._look_after(link)
        return link

    async def _stateless_for_session(self, caller: Caller) -> Link:
        link = await self.for_caller(caller)
        if not link.stateless:
            raise ConnectFailed(
                f"{self.name} does not speak the stateless era either",
                public="does not speak the stateless era either",
            )
        return link

    async def _without_handshake(self, refusal: RpcError | HttpError, caller: Caller) -> Link:
        """Open a connection to a server that refused `initialize`, if it is a stateless one.

        Raises:
            RpcError, HttpError: The refusal: the server has a handshake, or cannot be reached.
        """
        refused = judge_refused_initialize(refusal)
        # A process has been asked already. It is started once more only if it must be stateless.
        asked = self.way.shared and refused is RefusedInitialize.UNCLEAR
        if self.settings.era != "auto" or asked or refused is _FOR_THIS_CLIENT:
            raise refusal
        link = self._shared(_STATELESS)
        if link is not None:
            return link
        said = _introduction(for_handshake_server(caller.capabilities), caller)
        identity = Identity(said["clientInfo"], said["capabilities"])
        try:
            return await self._made(
                caller.principal,
                lambda: self._open(
                    lambda link: self._probe_refused(link, said, refusal),
                    caller.principal,
                    identity,
                ),
                lambda _: _STATELESS,
            )
        except FairleadError as exc:
            log.debug("%s: nor is it stateless: %s", self.name, exc)
            raise refusal from None

    def _belongs_to(self, link: Link, front: Front) -> None:
        """The server asks for the roots of a session: no other session may use the connection.

        Servers keep the first answer, so others would work in the folders of this one.
        """
        caller = front.peer.conversation.peer
        if caller is None or not has_roots(caller.capabilities):
            return  # it has none to tell
        if not self.asks_roots:
            log.info("%s: it asks for roots, so sessions with roots do not share it", self.name)
        self.asks_roots = True
        if link in self.own or not self.way.shared:
            return
        self._forget(link)
        self.own.add(link)
        self._look_after(link)
        for other in [one for one in link.fronts if one is not front]:
            del link.fronts[other]
            other.link = None  # it gets another one with its next request
            for uri in list(link.uris):
                link.uris[uri].discard(other)
                if not link.uris[uri]:
                    del link.uris[uri]

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
        elif link.idle and not link.stateless and not link.borrowed and not self._keeps(link):
            self._forget(link)
            await link.close()
        else:
            link.used = link.now()

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
        principal: Principal,
        make: Callable[[], Awaitable[Link]],
        file_as: Callable[[Link], Hashable],
    ) -> Link:
        """Make a connection, however many want it; who gives up takes nobody else with him."""
        task = self._opening.get(key)
        if task is None:
            task = asyncio.ensure_future(self._made(principal, make, file_as))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    async def _made(
        self,
        principal: Principal,
        make: Callable[[], Awaitable[Link]],
        file_as: Callable[[Link], Hashable],
    ) -> Link:
        with self._reserve(principal):
            link = await make()
        if link.stateless and (there := self._shared(_STATELESS)) is not None:
            self._retire(link)  # two were opened before it was known that one is enough
            return there
        self._links.setdefault(file_as(link), []).append(link)
        self._look_after(link)
        return link

    # Connections that nobody uses

    @contextlib.contextmanager
    def _reserve(self, principal: Principal) -> Iterator[None]:
        """Make room for a connection of `principal`, and count it while it is being opened.

        Raises:
            ServerBusy: all connections are in use.
        """
        self._make_room(principal)
        self._reserved[principal] += 1
        try:
            yield
        finally:
            self._reserved[principal] -= 1
            if not self._reserved[principal]:
                del self._reserved[principal]

    def _make_room(self, principal: Principal) -> None:
        """Make room for another connection of `principal`, by ending one that is not in use.

        A client that was authenticated has at most half of the connections, and when all are open,
        one of the principal with the most connections is ended.

        Raises:
            ServerBusy: all connections are in use.
        """
        most = self.settings.max_connections
        used = sum(len(links) for links in self._links.values()) + self._reserved.total()
        if self.way.shared:
            used += len(self.own)
        links = [link for link in self.links if not link.stateless]
        if principal is not ANONYMOUS:
            own = [link for link in links if link.principal == principal]
            held = len(own) + self._reserved[principal]
            if held >= max(1, most // 2):
                CONNECTIONS_PER_CLIENT.hit()
                self._retire_one(own, held)
                return
        if used < most:
            return
        shares = Counter(link.principal for link in links)
        most_held = max(shares.values(), default=0)
        candidates = [link for link in links if shares[link.principal] == most_held]
        self._retire_one(candidates, used)

    def _retire_one(self, links: list[Link], used: int) -> None:
        """End the one of these connections that has not been used for the longest time."""
        now = asyncio.get_running_loop().time()
        idle = [link for link in links if link.idle and link.used <= now - self.evictable_after]
        # Sessions that have been quiet for long get another connection with their next request.
        quiet = [link for link in links if link.quiet and link.used <= now - QUIET_AFTER]
        if candidates := idle or quiet:
            self._retire(min(candidates, key=lambda link: link.used))
            return
        why = f"is busy: {used} connections to it are in use. Try again later"
        raise ServerBusy(f"{self.name} {why}", public=why)

    def _look_after(self, link: Link) -> None:
        """End a connection that was not used for a while.

        Sessions of clients that vanished may still have it: one that comes back gets another.
        """
        linger, loop = self.settings.linger, asyncio.get_running_loop()
        if not linger or link.stateless:
            return

        def look() -> None:
            left = link.used + linger - loop.time()
            if left <= 0 and link.alive and (link.idle or link.abandoned):
                self._retire(link)
            elif link.alive:
                self._timers[link] = loop.call_later(left if left > 0 else linger, look)

        self._timers[link] = loop.call_later(linger, look)

    def _retire(self, link: Link) -> None:
        self._forget(link)
        task = asyncio.get_running_loop().create_task(link.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _open(
        self,
        converse: Callable[[Link], Awaitable[None]],
        principal: Principal,
        identity: Identity | None = None,
    ) -> Link:
        """A connection on which the conversation is open.

        Raises:
            FairleadError: and why there is none.
        """
        self._check_open()
        self.wanted = True
        backoff = self._backoffs.get(principal)
        if backoff is not None and backoff.error is not None and backoff.waiting:
            raise ConnectFailed(
                f"{self.name} is not there: {backoff.error}", public=public_reason(backoff.error)
            )
        link: Link | None = None
        try:
            async with self._slot(), asyncio.timeout(self.settings.connect_timeout or None):
                channel = await self.way.open()
                link = Link(
                    self.name,
                    channel,
                    identity=identity,
                    id_format=self.way.id_format,
                    input_timeout=self.settings.input_timeout,
                    directed=self.settings.strict,
                    interceptors=self.interceptors,
                    on_close=self._lost,
                )
                link.principal = principal
                link.on_roots = partial(self._belongs_to, link)
                link.marks = self.marks
                if self.way.shared:  # a process of ours, which can be ended
                    link.on_unanswered = partial(self._doubt, link)
                link.peer.channel.param_headers_of = self.marks.of
                await converse(link)
                self._check_open()  # or nobody would close it
        except BaseException as exc:
            if link is not None:
                await link.close()
            error = exc
            if isinstance(exc, TimeoutError) and not isinstance(exc, FairleadError):
                seconds = self.settings.connect_timeout
                why = f"did not answer within {seconds:g} s"
                error = ConnectFailed(f"{self.name} {why}", public=why)
            if isinstance(error, ChannelClosed) and error.exit_code is not None:
                error.public = f"{public_reason(error)} during start-up"
            if isinstance(error, LocalResourceError):
                self._starts.shortage.report(error)
            elif not isinstance(error, asyncio.CancelledError | RpcError | HttpError):
                self._failed(error, principal)
            if error is exc:
                raise  # with its cause, which `public_reason` may need
            raise error from None
        self.error = None
        self._starts.shortage.clear()
        self._backoffs.pop(principal, None)
        if self.on_link is not None:
            self.on_link(link)
        return link

    def _slot(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return what a start has to wait for: only processes slow each other down."""
        return self._starts.starting() if self.way.shared else contextlib.nullcontext()

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectFailed(
                f"{self.name}: the gateway ends", public="is not served any more: the gateway ends"
            )

    def _failed(self, exc: BaseException, principal: Principal) -> None:
        self.error = exc
        if principal not in self._backoffs and len(self._backoffs) >= MOST_BACKOFFS:
            del self._backoffs[next(iter(self._backoffs))]
        self._backoffs.setdefault(principal, _FailedAttempts()).failed(exc)

    async def _handshake(self, link: Link, introduction: Raw) -> None:
        """Pass an `initialize` on as it is; `initialized` follows when the client says so."""
        try:
            result = await link.peer.forward(
                "initialize", lambda _: introduction, timeout=self.settings.connect_timeout
            )
        except RpcError as exc:
            if not self._may_stay(exc):
                raise
            await self._probe_refused(link, msgspec.json.decode(introduction), exc)
            return
        agreement = judge_initialize(Success(0, result))
        link.introduction = result.copy()
        link.agreement = agreement
        link.peer.conversation.set_agreement(agreement)
        self.speaks_handshake = True

    def _may_stay(self, refusal: RpcError) -> bool:
        """Whether a process that refused `initialize` is asked if it is stateless, not ended.

        Over HTTP a new connection costs nothing, and an old one may stand for a session.
        """
        refused = judge_refused_initialize(refusal)
        if not self.way.shared or self.settings.era != "auto" or refused is _FOR_THIS_CLIENT:
            return False
        return not self.speaks_handshake or self._doubted(refusal)

    async def _probe_refused(
        self, link: Link, said: dict[str, Any], refusal: RpcError | HttpError
    ) -> None:
        """Ask a server that refused `initialize` whether it is a stateless one.

        Raises:
            RpcError, HttpError: The refusal: it is none, or does not say.
        """
        timeout = min(PROBE_TIMEOUT, self.settings.connect_timeout / 2 or PROBE_TIMEOUT)
        asking = HandshakeOptions(said, version=NEWEST.value, timeout=timeout)
        try:
            agreement = await open_conversation(link.peer, asking)
        except FairleadError as exc:
            log.debug("%s: nor is it stateless: %s", self.name, exc)
            raise refusal from None
        if not lacks_handshake(refusal, agreement):
            raise refusal
        link.agreement = agreement
        self.speaks_stateless, self.speaks_handshake = True, False

    async def _greet(self, introduction: dict[str, Any], principal: Principal) -> Link:
        return await self._converse(introduction, principal, stateless=False)

    async def _find_out(self, capabilities: bytes, caller: Caller) -> Link:
        introduction = _introduction(capabilities, caller)
        try:
            link = await self._converse(introduction, caller.principal, stateless=None)
        except ChannelClosed as exc:
            if exc.exit_code is None or not exc.delivered or self.settings.era == "stateless":
                raise
            # Some servers die of a first message they do not know; they get the one they expect.
            self._backoffs[caller.principal].try_at_once()
            link = await self._converse(introduction, caller.principal, stateless=False)
            self.speaks_stateless = False
        return link

    async def _converse(
        self, introduction: dict[str, Any], principal: Principal, stateless: bool | None
    ) -> Link:
        identity = Identity(introduction["clientInfo"], introduction["capabilities"])

        async def converse(link: Link) -> None:
            # Who speaks both eras takes the first word for the choice: it must be the right one.
            version = NEWEST.value if self.settings.era == "stateless" else "auto"
            timeout = self.settings.connect_timeout
            opening = HandshakeOptions(introduction, version=version, timeout=timeout)
            try:
                link.agreement = await open_conversation(link.peer, opening, stateless=stateless)
            except RpcError as exc:
                if stateless is None or not self._may_stay(exc):
                    raise
                await self._probe_refused(link, introduction, exc)
                return
            if stateless is None:
                self.speaks_stateless = link.agreement.revision.stateless
            if not link.agreement.revision.stateless:
                self.speaks_handshake = True

        return await self._open(converse, principal, identity)

    # Ending

    def _doubt(self, link: Link) -> None:
        """Somebody gave up waiting on it: is it busy, or does it hang?"""
        if not self._closed:
            self._liveness.check_hang(link.peer, partial(self._hangs, link))

    def _hangs(self, link: Link, why: str) -> None:
        """Who waits hears so; the next one who asks gets another process."""
        public = why.removeprefix("it ")

        async def end() -> None:
            await link.peer.close(why, public=public)
            await link.close()

        task = asyncio.get_running_loop().create_task(end())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        self._lost(link, ChannelClosed(why, public=public))

    def _lost(self, link: Link, end: ChannelClosed) -> None:
        self._forget(link)
        for front in list(link.fronts):
            front.link = None
        link.fronts.clear()
        if self.on_lost is not None and not self._closed:
            self.on_lost(link, end)

    def _forget(self, link: Link) -> None:
        timer = self._timers.pop(link, None)
        if timer is not None:
            timer.cancel()
        self.own.discard(link)
        for key, links in list(self._links.items()):
            if link in links:
                links.remove(link)
                if not links:
                    del self._links[key]

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        self._liveness.close()
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for timer in self._timers.values():
            timer.cancel()
        closing = (link.close() for link in self.links)
        await asyncio.gather(*closing, *self._retiring, return_exceptions=True)


_STATELESS = "stateless"
_FOR_THIS_CLIENT = RefusedInitialize.FOR_THIS_CLIENT


async def _at_once(link: Link) -> Link:
    return link


async def _first_turn(links: list[Link], who: object, seconds: float) -> tuple[Link, Turn]:
    """A turn on whichever connection has one first. Raises `TimeoutError`."""
    waiting = {asyncio.ensure_future(link.turns.take(who, seconds)): link for link in links}
    chosen: Turn | None = None
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        task = next((one for one in waiting if one.done() and not one.exception()), None)
        if task is None:
            raise TimeoutError
        chosen = task.result()
        return waiting[task], chosen
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        for task in waiting:
            if not task.cancelled() and not task.exception() and task.result() is not chosen:
                task.result().release()


def _single_key(caller: Caller) -> Hashable:
    return caller.principal, fingerprint(caller.capabilities)


def _introduction(capabilities: bytes, caller: Caller) -> dict[str, Any]:
    info = None if caller.info is None else msgspec.json.decode(caller.info)
    return {
        "capabilities": msgspec.json.decode(capabilities),
        "clientInfo": info if isinstance(info, dict) else {"name": "fairlead", "version": "0"},
    }
