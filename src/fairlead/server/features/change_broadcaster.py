"""Notifications of changed lists and resources, for clients of both eras.

A change is a key, not a message: until the first change of a list or URI has been sent to a client,
further changes of it are merged with the first. A slow client therefore costs at most one
entry for each list and for each URI it subscribed to.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Container, Coroutine, Hashable, Iterable, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

from msgspec import UNSET, Raw, UnsetType

from ...errors import RpcError, TransportError
from ...interceptor import Exchange
from ...limits import SESSION_SUBSCRIPTIONS
from ...protocol.caller import has_capability
from ...protocol.envelope import SessionContext, SessionState
from ...protocol.identity.scoped_name import ScopedName
from ...protocol.identity.token_principal import TokenPrincipal
from ...wire import Notification, to_json
from ...wire.error_codes import MISSING_CAPABILITY
from ..decode_params import decode_params
from .subscription_quota import HeldUris, SubscriptionQuota

if TYPE_CHECKING:
    from ...protocol.types.subscriptions import SubscriptionFilter

__all__ = ["ChangeBroadcaster", "subscribed_uris"]

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
TASKS = "io.modelcontextprotocol/tasks"
UPDATED = "notifications/resources/updated"
GRACE = 1.0  # seconds for the final results of listen streams
MAX_URIS = SESSION_SUBSCRIPTIONS.value  # per session or listen stream

log = logging.getLogger("fairlead.server")

_Change = tuple[str, str | None]  # method of the notification, and the URI if it has one
_Serving: TypeAlias = Coroutine[Any, Any, bytes]
_UNCHANGED = nullcontext()
_LISTS: dict[str, _Change] = {
    kind: (f"notifications/{kind}/list_changed", None) for kind in ("tools", "resources", "prompts")
}


@runtime_checkable
class _Audience(Protocol):
    """Connection that outlives its requests and carries the notifications of a session."""

    @property
    def session(self) -> SessionContext: ...

    async def notify(self, method: str, params: Mapping[str, Any] | Raw | None = None) -> None: ...


class ChangeSender(Protocol):
    """Transport of change notifications to clients. By default they are sent directly."""

    async def to_session(self, edge: Any, note: Notification) -> None:
        """Send a notification to a session.

        Raises:
            TransportError: The notification could not be sent.
        """
        await edge.notify(note.method, None if isinstance(note.params, UnsetType) else note.params)

    async def to_listener(self, exchange: Exchange, note: Notification) -> None:
        """Send a notification to a listen stream.

        Raises:
            ChannelClosed: The stream is closed.
        """
        await exchange.edge.notify_caller(exchange, note)


class _DirectSender(ChangeSender):
    """Sender with the default methods, which send notifications directly."""


class _Session:
    """Client of the handshake era: the declared notifications, and the changes not sent yet."""

    def __init__(self, promised: tuple[_Change, ...], uris: HeldUris) -> None:
        self.promised = promised
        self.uris = uris
        self.untold: dict[_Change, None] = {}
        self.teller: asyncio.Task[None] | None = None

    def wants(self, change: _Change) -> bool:
        return change in self.promised or change[1] in self.uris


class _Listener:
    """One running `subscriptions/listen` request."""

    # Slots and no `asyncio.Event`s, because a server may have thousands of idle listeners.
    __slots__ = ("_listeners", "_waiter", "done", "edge", "ending", "untold", "wanted")

    def __init__(self, edge: object, wanted: Set[_Change], listeners: "set[_Listener]") -> None:
        self.edge = edge
        self._listeners = listeners
        self.wanted = wanted
        self.untold: dict[_Change, None] = {}
        self.ending = False
        self.done: asyncio.Event | None = None  # set at the end; created when the end is requested
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """End the stream with its result."""
        self.ending = True
        self.wake()

    def news(self) -> "asyncio.Future[None]":
        """Return a future that is done after a change or at the end."""
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        if self.untold or self.ending:
            waiter.set_result(None)
        return waiter

    # Registered before the acknowledgement is sent, so that no change after it is missed. The block
    # sends changes only after the acknowledgement.

    def __enter__(self) -> Self:
        self._listeners.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._listeners.discard(self)
        if self.done is not None:
            self.done.set()


class ChangeBroadcaster:
    """Notifier of connected clients. Changes are merged once per iteration of the event loop, not
    queued.
    """

    def __init__(
        self, telling: ChangeSender | None = None, quota: SubscriptionQuota | None = None
    ) -> None:
        self._sender: ChangeSender = telling or _DirectSender()
        self.quota = quota or SubscriptionQuota()
        # One `_Room` per event loop, because the tasks and events of a client belong to its loop.
        self._rooms: dict[asyncio.AbstractEventLoop, _Room] = {}
        self.followers: list[Callable[[str], None]] = []  # called with every URI that has changed

    def updated(self, uri: str) -> None:
        """Notify subscribers that a resource has changed. Safe to call from any thread."""
        self.changed(UPDATED, uri)
        for follower in self.followers:
            follower(uri)

    def changed(self, method: str, uri: str | None = None) -> None:
        """Notify clients of a change. Safe to call from any thread."""
        # A copy, because another thread may add the `_Room` of its loop meanwhile.
        for loop, room in list(self._rooms.items()):
            if loop.is_closed():
                self._rooms.pop(loop, None)
            else:
                room.changed((method, uri))

    def changed_for(self, edges: Container[object], method: str, uri: str | None = None) -> None:
        """Notify only these connections of a change."""
        self._room().tell([(method, uri)], edges)

    def all_lists_changed(self, edges: Container[object]) -> None:
        """Notify only these connections that every list has changed."""
        self._room().tell(_LISTS.values(), edges)

    def introduced(self, exchange: Exchange, capabilities: Mapping[str, Any]) -> None:
        """Register a session with the capabilities that were declared to it."""
        edge = exchange.edge
        # A message without a connection has no channel for later notifications.
        if isinstance(edge, _Audience):
            promised = tuple(
                change
                for kind, change in _LISTS.items()
                if has_capability(capabilities, f"{kind}.listChanged")
            )
            # A client may send `initialize` again; its old subscriptions no longer count.
            self.forget(edge)
            self._room().sessions[edge] = _Session(promised, self.quota.held(_key(exchange)))

    def forget(self, edge: object) -> None:
        """Remove the session of a closed connection and release its subscriptions."""
        session = self._room().sessions.pop(edge, None)  # type: ignore[call-overload]
        if session is not None:
            session.uris.clear()

    def subscribe(self, edge: object, uri: str) -> None:
        """Subscribe the session of a connection to a resource.

        Raises:
            RpcError: -32602, the session or the client has too many subscriptions.
        """
        session = self._room().sessions.get(edge)  # type: ignore[call-overload]
        # A message without a connection has no session, and no channel for notifications.
        if session is not None:
            session.uris.add(uri)

    def unsubscribe(self, edge: object, uri: str) -> None:
        session = self._room().sessions.get(edge)  # type: ignore[call-overload]
        if session is not None:
            session.uris.discard(uri)
            # No unsent change may follow the response to `resources/unsubscribe`.
            session.untold.pop((UPDATED, uri), None)

    def admitted(self, exchange: Exchange, uris: int) -> AbstractContextManager[None]:
        """Count a listen stream for its client until the context ends.

        Raises:
            RpcError: -32602, the client has too many streams or subscriptions.
        """
        return self.quota.listening(_key(exchange), exchange.edge, uris)

    # Plain functions, because each suspended coroutine of an idle stream needs 300 bytes.

    def listen(self, exchange: Exchange, capabilities: Mapping[str, Any]) -> _Serving:
        """Return a coroutine that serves one `subscriptions/listen` until it is cancelled, its
        token expires or the server stops.

        The coroutine raises RpcError if the client has too many streams or subscriptions.

        Raises:
            RpcError: The filter is malformed, or needs a capability that the client lacks.
        """
        honoured = self._honoured(exchange, capabilities)
        counted = self.admitted(exchange, len(honoured.get("resourceSubscriptions", ())))
        return self._serve(exchange, honoured, counted)

    def listen_admitted(self, exchange: Exchange, capabilities: Mapping[str, Any]) -> _Serving:
        """Serve a `subscriptions/listen` request that already counts towards the limits. Otherwise
        like `listen`.
        """
        return self._serve(exchange, self._honoured(exchange, capabilities), _UNCHANGED)

    async def _serve(
        self, exchange: Exchange, honoured: dict[str, Any], counted: AbstractContextManager[None]
    ) -> bytes:
        """Send notifications to a listen stream until the stream ends or its token expires."""
        tag = {SUBSCRIPTION_KEY: exchange.request_id}
        with (
            counted,
            self._room().listening(exchange.edge, honoured) as listener,
            _ended_at_expiry(exchange, listener),
        ):
            await self._tell(
                exchange,
                "notifications/subscriptions/acknowledged",
                {"notifications": honoured, "_meta": tag},
            )
            del honoured  # not needed while the stream is idle
            while not listener.ending:
                await listener.news()
                while listener.untold and not listener.ending:
                    # One at a time: changes during the `await` are merged with pending changes.
                    method, uri = change = next(iter(listener.untold))
                    del listener.untold[change]
                    about = {} if uri is None else {"uri": uri}
                    await self._tell(exchange, method, {**about, "_meta": tag})
            return to_json({"_meta": tag, "resultType": "complete"})

    async def _tell(self, exchange: Exchange, method: str, params: dict[str, Any]) -> None:
        await self._sender.to_listener(exchange, Notification(method, Raw(to_json(params))))

    def stop(self, edge: object | None = None) -> list[_Listener]:
        """Mark the listeners of one connection, or all listeners of this event loop, as ending, and
        return them.
        """
        ending = [x for x in self._room().listeners if edge in (None, x.edge)]
        for listener in ending:
            listener.ending = True
            listener.done = listener.done or asyncio.Event()
            listener.wake()
        return ending

    async def end(self, edge: object | None = None) -> None:
        """End the listeners of one connection, or all listeners of this event loop, and wait for
        their final results.
        """
        ending = self.stop(edge)
        if not ending:
            return
        # Loaded on first use: a starting server needs no timeouts.
        from ...transport import timeouts

        try:
            async with timeouts.timeout(GRACE):
                for listener in ending:
                    assert listener.done is not None  # created by `stop`
                    await listener.done.wait()
                await asyncio.sleep(0)  # One more iteration of the loop sends their results.
        except TimeoutError:
            log.warning("a client does not read its listen stream; its final result is dropped")

    def _honoured(self, exchange: Exchange, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of the filter that the server supports."""
        # Loaded on first use: few servers have subscribers.
        from ...protocol.types.subscriptions import ListenParams

        asked = decode_params(exchange.message.params, ListenParams).notifications
        if asked.task_ids is not UNSET:
            extensions = exchange.caller.declared.get("extensions")
            if not isinstance(extensions, Mapping) or TASKS not in extensions:
                raise RpcError(
                    MISSING_CAPABILITY,
                    f"taskIds requires the client capability {TASKS}",
                    {"requiredCapabilities": {"extensions": {TASKS: {}}}},
                )
        honoured: dict[str, Any] = {}
        for kind, wanted in (
            ("tools", asked.tools_list_changed),
            ("prompts", asked.prompts_list_changed),
            ("resources", asked.resources_list_changed),
        ):
            if wanted is True and has_capability(capabilities, f"{kind}.listChanged"):
                honoured[f"{kind}ListChanged"] = True
        wants_resources = not isinstance(asked.resource_subscriptions, UnsetType)
        if wants_resources and has_capability(capabilities, "resources.subscribe"):
            # The acknowledgement lists the URIs, so the client can see which ones were dropped.
            honoured["resourceSubscriptions"] = subscribed_uris(asked)
        return honoured

    def _room(self) -> "_Room":
        loop = asyncio.get_running_loop()
        room = self._rooms.get(loop)
        if room is None:
            room = self._rooms[loop] = _Room(loop, self._sender)
        return room


def subscribed_uris(wanted: "SubscriptionFilter") -> list[str]:
    """Return the first `MAX_URIS` resources of a listen stream, without duplicates."""
    uris = wanted.resource_subscriptions
    return [] if isinstance(uris, UnsetType) else list(dict.fromkeys(uris))[:MAX_URIS]


class _Room:
    """The sessions and listeners of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, telling: ChangeSender) -> None:
        self._loop = loop
        self._sender = telling
        self._lock = threading.Lock()
        self._news: dict[_Change, None] = {}
        # Weak, so that a session does not keep a closed connection alive.
        self.sessions: weakref.WeakKeyDictionary[_Audience, _Session] = weakref.WeakKeyDictionary()
        self.listeners: set[_Listener] = set()
        # The event loop keeps only weak references to tasks.
        self._tellers: set[asyncio.Task[None]] = set()

    def listening(self, edge: object, honoured: Mapping[str, Any]) -> _Listener:
        """Return a listener, which records changes from the start of its context."""
        return _Listener(edge, _wanted(honoured), self.listeners)

    def changed(self, change: _Change) -> None:
        with self._lock:
            first = not self._news
            self._news[change] = None
        if first:
            try:
                self._loop.call_soon_threadsafe(self._spread)
            except RuntimeError:
                pass  # The event loop was closed meanwhile.

    def _spread(self) -> None:
        with self._lock:
            news, self._news = self._news, {}
        self.tell(news)

    def tell(self, news: Iterable[_Change], edges: Container[object] | None = None) -> None:
        """Notify all subscribers, or only those of the given connections."""
        for listener in self.listeners:
            if edges is None or listener.edge in edges:
                listener.untold.update((c, None) for c in news if c in listener.wanted)
            if listener.untold:
                listener.wake()
        for edge, session in list(self.sessions.items()):
            if edges is not None and edge not in edges:
                continue
            # Before `notifications/initialized`, the specification allows only pings and logging.
            if edge.session.state is SessionState.ACTIVE:
                session.untold.update((c, None) for c in news if session.wants(c))
                self._start_telling(edge, session)

    def _start_telling(self, edge: _Audience, session: _Session) -> None:
        if session.untold and session.teller is None:
            session.teller = self._loop.create_task(self._tell_session(edge, session))
            self._tellers.add(session.teller)
            session.teller.add_done_callback(self._tellers.discard)

    async def _tell_session(self, edge: _Audience, session: _Session) -> None:
        try:
            while session.untold:
                method, uri = change = next(iter(session.untold))
                del session.untold[change]
                about = UNSET if uri is None else Raw(to_json({"uri": uri}))
                await self._sender.to_session(edge, Notification(method, about))
        except TransportError as exc:
            log.debug("cannot notify a client of a change: %s", exc)
            session.untold.clear()
        finally:
            session.teller = None


def _ended_at_expiry(exchange: Exchange, listener: _Listener) -> AbstractContextManager[None]:
    """Return a context that ends the stream when the token of its client is no longer accepted."""
    who = exchange.caller.principal
    if not isinstance(who, TokenPrincipal | ScopedName):
        return _UNCHANGED
    # Loaded on first use: few clients have such tokens.
    from ...transport.http.server.token_expiry import expiring

    return expiring(lambda: who, listener.end)


def _key(exchange: Exchange) -> Hashable:
    # Loaded on first use: few servers have subscribers.
    from ...protocol.identity.client_key import connection_key

    return connection_key(exchange.caller.principal, exchange.transport, exchange.edge)


def _wanted(honoured: Mapping[str, Any]) -> Set[_Change]:
    lists = _wanted_lists(tuple(kind for kind in _LISTS if f"{kind}ListChanged" in honoured))
    uris: Iterable[str] = honoured.get("resourceSubscriptions", ())
    return lists | {(UPDATED, uri) for uri in uris} if uris else lists


@cache
def _wanted_lists(kinds: tuple[str, ...]) -> frozenset[_Change]:
    """Return the changes of these kinds of lists, cached so that idle streams share one set."""
    return frozenset(_LISTS[kind] for kind in kinds)
