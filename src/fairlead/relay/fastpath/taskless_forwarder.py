"""Forwarding of requests from one connection to another without a task.

Most requests qualify: both sides have the same era and revision, the relay keeps no state for the
request, the server cannot request input on a shared stream, and no interceptor has to wait. All
other requests are handled by the relay in a task.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw

from ...errors import FairleadError, RequestTimeout, RpcError, TransportError
from ...interceptor import After, Answer, Exchange, Handler, Interceptor
from ...peer import DelegatedRequest, error_response
from ...protocol.caller import NO_HEAD, can_be_asked
from ...protocol.conversation.conversation import Fill
from ...protocol.envelope import SessionState
from ...protocol.own_errors import unreachable_error
from ...transport.background_tasks import BackgroundTasks
from ...upstream.connection.relayed_call import (
    ASKING,
    WORK,
    RelayedCall,
    RelayedParams,
    params_as_decoded,
    params_of,
)
from ...wire import Notification, RequestId
from ..round_state import needs_binding
from .sync_chain import ContinuedCall, SyncChain, unwind, without_stray_cancellation

if TYPE_CHECKING:
    from ...upstream.connection.connection_pool import UpstreamPool
    from ...upstream.connection.upstream_connection import UpstreamConnection
    from ..bridge.stateless_to_handshake import StatelessToHandshake
    from ..client_session import ClientSession

__all__ = ["TasklessForwarder"]

log = logging.getLogger("fairlead.gateway")

# stored in a constant, because looking up a member of an enumeration is slow
_ACTIVE: Final = SessionState.ACTIVE
# Methods for which the relay keeps state, or whose results it creates or changes.
_USUAL_WAY: Final = frozenset(
    {
        "initialize",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
    }
)

ForwardOutcome = bytes | Raw | Exception


class TasklessForwarder:
    """Forwarder of requests that need no task."""

    def __init__(
        self,
        pool: "UpstreamPool",
        bridge: "StatelessToHandshake",
        interceptors: Sequence[Interceptor],
        usual: Handler,
    ) -> None:
        """`usual` handles requests that have passed the interceptors but need a task."""
        self._pool = pool
        self.bridge = bridge
        self.chain = SyncChain(interceptors, usual)
        self.possible = self.chain.possible
        # The event loop holds tasks only weakly.
        self._flushing = BackgroundTasks()

    def take(self, session: "ClientSession", exchange: Exchange) -> DelegatedRequest | None:
        """Take over a request of a session. Return None if the request needs a task."""
        chain = self.chain
        if session.peer.channel.congested:
            return None
        if chain.empty:
            return self.pass_on(exchange, session)
        connection = (
            self._pool.stateless_connection if exchange.caller.stateless else session.connection
        )
        if session.passage.busy or (connection is not None and connection.passage.busy):
            return None  # interceptors must see messages in the order of their arrival
        if chain.looks and chain.passes(exchange):
            return self.pass_on(exchange, session)
        if not chain.first or exchange.message.method in _USUAL_WAY:
            return None
        return self._lead(exchange, session, None)

    def delegate_post(
        self, exchange: Exchange, done: Callable[[ForwardOutcome], None]
    ) -> Callable[[str], None] | None:
        """Take over a request without a session. Return a function that cancels it.

        Return None if the request needs a task. `done` receives the outcome.
        """
        chain = self.chain
        if exchange.caller.log_level is not None:
            return None
        if not chain.empty:
            connection = self._pool.stateless_connection
            if connection is not None and connection.passage.busy:
                return None
        if chain.empty or (chain.looks and chain.passes(exchange)):
            passed = self.pass_on(exchange, None, done)
            return None if passed is None else passed.cancel
        if not chain.first or exchange.message.method in _USUAL_WAY:
            return None
        return self._lead(exchange, None, done).cancel

    def _lead(
        self,
        exchange: Exchange,
        session: "ClientSession | None",
        tell: Callable[[ForwardOutcome], None] | None,
    ) -> "_TaskedCall | _ForwardedCall":
        """Call the synchronous interceptors, then forward the request or continue in a task."""
        chain = self.chain
        afters: list[After] = []
        try:
            asked = chain.lead_in(exchange, afters)
            # A forwarded request is answered under the id of its exchange.
            # If an interceptor changed the id, the request needs a task.
            same = asked is exchange or asked.request_id == exchange.request_id
        # Interceptors are third-party code. Their errors are delivered like errors of a handler.
        except (Exception, asyncio.CancelledError) as exc:
            led = _TaskedCall(exchange, session, tell)
            led.refuse(afters, exc)
            return led
        passes = chain.rest_passes(asked)
        if passes and same:
            passed = self.pass_on(asked, session, tell, afters)
            if passed is not None:
                return passed
        # Later requests must not overtake the task of this request.
        if session is not None:
            session.peer.delegated.preserve_order()
        led = _TaskedCall(exchange, session, tell)
        led.go_on(chain.usual if passes else chain.rest, asked, afters)
        return led

    def pass_on(
        self,
        exchange: Exchange,
        session: "ClientSession | None",
        done: Callable[[ForwardOutcome], None] | None = None,
        afters: list[After] | None = None,
    ) -> "_ForwardedCall | None":
        """Forward a request. Return None if it needs a task.

        `done` receives the outcome; without it, the outcome is sent on the client's connection. The
        outcome passes `afters` first, if the synchronous interceptors have been called.
        """
        caller = exchange.caller
        bridged: RelayedParams | None = None
        connection = self._connection_for(exchange, session)
        if connection is None and caller.stateless:
            plain = self.bridge.plain(exchange)
            if plain is not None:
                connection, bridged = plain
        if connection is None or connection.ending:
            return None
        peer = connection.peer
        if not peer.state.open or peer.congested:
            return None
        # The relay must read the result of `tools/list`,
        # which names the arguments that are repeated in headers, so the request needs a task.
        if connection.param_headers is not None and exchange.message.method == "tools/list":
            return None
        if peer.conversation.state is not _ACTIVE:
            return None
        passed = _ForwardedCall(
            self, connection, RelayedCall(exchange, session), session, done, bridged, afters
        )
        try:
            passed.send(self._pool.settings.call_timeout)
        except FairleadError:
            return None  # the request continues in a task, which reports the error or reconnects
        return passed

    def _connection_for(
        self, exchange: Exchange, session: "ClientSession | None"
    ) -> "UpstreamConnection | None":
        """Return the connection on which a request can be forwarded unchanged, or None."""
        method, caller = exchange.message.method, exchange.caller
        if method in _USUAL_WAY:
            return None
        if caller.stateless:
            connection = self._pool.stateless_connection
            if connection is None or needs_binding(exchange):
                return None
            # Over HTTP, some arguments may have to be repeated in headers.
            over_http = method == "tools/call" and connection.peer.channel.carries_headers
        else:
            connection = None if session is None or session.joining else session.connection
            if connection is None:
                return None
            over_http = False
        if (
            over_http
            or connection.agreement is None
            or connection.agreement.revision is not caller.revision
        ):
            return None
        # On a shared stream, calls during which the server may request input have to take turns.
        if caller.stateless or method not in ASKING or not can_be_asked(caller.capabilities):
            return connection
        return connection if connection.correlates_calls else None

    def refuse(
        self,
        session: "ClientSession",
        passed: "_ForwardedCall",
        exchange: Exchange,
        error: Exception,
    ) -> None:
        """Deliver an error on the client's connection, or start a task if the request was not
        delivered.
        """
        if isinstance(error, TransportError) and not error.delivered:
            session.peer.delegated.undelegate(passed, exchange)
        else:
            session.peer.delegated.answer(passed, exchange.request_id, self._refusal(error))

    def clean(self, outcome: Exception) -> Exception:
        """Return the error to send to the client. An undelivered request can be repeated, so its
        error stays unchanged.
        """
        if isinstance(outcome, TransportError) and not outcome.delivered:
            return outcome
        return self._refusal(outcome)

    def _refusal(self, error: Exception) -> RpcError:
        if isinstance(error, RpcError):
            return error
        log.warning("%s: %s", self._pool.name, error)
        assert isinstance(error, FairleadError)
        return unreachable_error(self._pool.name, error)

    def flush(
        self, connection: "UpstreamConnection", call: RelayedCall, then: Callable[[], None]
    ) -> None:
        """Call `then` once all notifications of a call have been sent.

        Notifications precede the response, even if the client reads slowly or an interceptor is
        still processing one of them.
        """

        async def wait() -> None:
            if connection.passage.busy:
                await connection.passage.passed()
            await call.flushed()
            then()

        self._flushing.start(wait())


class _TaskedCall:
    """A request that continues in a task after the forwarder has accepted it."""

    __slots__ = ("_over", "_task", "_tell", "exchange", "known_as", "session")

    def __init__(
        self,
        exchange: Exchange,
        session: "ClientSession | None",
        tell: Callable[[ForwardOutcome], None] | None,
    ) -> None:
        """`tell` receives the outcome. Without `tell`, it is sent on the session's connection."""
        self._tell = tell
        self._task: ContinuedCall | None = None
        self._over = False
        self.exchange = exchange
        self.session = session
        # The object that the connection has registered for the request, if not this one.
        self.known_as: DelegatedRequest | None = None

    def refuse(self, afters: list[After], cause: Exception | asyncio.CancelledError) -> None:
        """Deliver the error of a synchronous interceptor."""
        refused = unwind(afters, without_stray_cancellation(cause))
        # Called in the next iteration of the loop, because the request is not registered yet.
        asyncio.get_running_loop().call_soon(self._done, refused)

    def go_on(self, handler: Handler, exchange: Exchange, afters: list[After]) -> None:
        """Continue in a task."""
        self._task = ContinuedCall(handler, exchange, afters, self._done)

    def cancel(self, reason: str) -> None:
        """Cancel the request without delivering an outcome."""
        if not self._over:
            self._over = True
            if self._task is not None:
                self._task.cancel(reason)

    def _done(self, outcome: Answer | Exception) -> None:
        if self._over:
            return
        self._over = True
        self._task = None  # avoids a reference cycle
        if outcome is None:
            outcome = b"{}"
        elif isinstance(outcome, Exception):
            outcome = error_response(self.exchange, outcome)
        taken, self.known_as = self.known_as or self, None
        if self._tell is not None:
            self._tell(outcome)
        elif self.session is not None:
            self.session.peer.delegated.answer(taken, self.exchange.request_id, outcome)


class _ForwardedCall:
    """A forwarded request that waits for its response."""

    __slots__ = (
        *("_afters", "_again", "_bridged", "_call", "_done"),
        *("_id", "_connection", "_over", "_forwarder", "_session"),
    )

    def __init__(
        self,
        shortcut: TasklessForwarder,
        connection: "UpstreamConnection",
        call: RelayedCall,
        session: "ClientSession | None",
        done: Callable[[ForwardOutcome], None] | None,
        bridged: RelayedParams | None,
        afters: list[After] | None,
    ) -> None:
        """`bridged` are the params for a server of the other era."""
        self._forwarder = shortcut
        self._bridged = bridged
        self._connection = connection
        self._call = call
        self._session = session
        self._done = done
        self._afters = afters
        self._again: _TaskedCall | None = None  # continues the call in a task
        self._id: RequestId  # set by `send`
        self._over = False

    def send(self, timeout: float) -> None:
        call, connection = self._call, self._connection
        exchange = call.exchange
        message = exchange.message
        fill: Fill | None = None
        overhear = None
        if self._bridged is None and exchange.alias is None:
            # Interceptors have read the decoded members. If a name occurs twice in the params,
            # the server must receive the value that the interceptors have read.
            if not self._forwarder.chain.empty:
                fill = params_as_decoded(exchange)
            # Params without `_meta` have no progress token, so their bytes are forwarded unchanged.
            elif exchange.head.meta is UNSET and exchange.head is not NO_HEAD:
                fill = message.params
        if fill is None:
            passing = self._bridged or params_of(exchange)
            fill = passing.fill
            overhear = self._progressed if passing.tracked else None
        self._id = connection.peer.outbound.forward_nowait(
            message.method,
            fill,
            self._settled,
            extra=message.extra,
            timeout=timeout,
            # `UpstreamConnection` limits the total time with the same factor.
            max_total=timeout * 24,
            overhear=overhear,
        )
        call.sent_as = self._id
        connection.calls[self._id] = call

    def _progressed(self, note: Notification) -> None:
        connection = self._connection
        connection.passage.put(note, connection.peer, self._call.progressed, self._id)

    def cancel(self, reason: str) -> None:
        """Cancel the request at the server, and notify the interceptors."""
        # Reset to break the reference cycle between the task and this object.
        again, self._again = self._again, None
        if again is not None:
            again.cancel(reason)
            return
        if not self._over:
            self._leave()
            self._connection.peer.outbound.cancel_forwarded(self._id, reason)
            self._connection.on_unanswered()
        # Replaced, so that a late outcome does not reach the client.
        if self._done is not None:
            self._done = _ignore_outcome
        afters, self._afters = self._afters, None
        if afters is not None:
            unwind(afters, asyncio.CancelledError(reason))

    def _settled(self, outcome: Raw | Exception) -> None:
        if self._over:
            return
        self._over = True
        if isinstance(outcome, RequestTimeout):
            self._connection.on_unanswered()
        if self._bridged is not None:
            method = self._call.exchange.message.method
            outcome = self._forwarder.bridge.plain_outcome(method, self._connection, outcome)
        outbox = self._call.outbox
        if (outbox is None or not outbox.busy) and not self._connection.passage.busy:
            self._finish(outcome)
        # Queued notifications look up the call by id, so it stays registered until they are sent.
        else:
            self._forwarder.flush(self._connection, self._call, lambda: self._finish(outcome))

    def _finish(self, outcome: Raw | Exception) -> None:
        connection = self._connection
        connection.calls.pop(self._id, None)
        connection.used = connection.now()
        connection.called = connection.called or self._call.exchange.message.method in WORK
        call, session = self._call, self._session
        if self._afters is not None:
            self._lead_back(outcome, self._afters)
        elif self._done is not None:
            self._done(
                self._forwarder.clean(outcome) if isinstance(outcome, Exception) else outcome
            )
        elif session is None:
            pass  # a call without a session always has `done`
        elif not isinstance(outcome, Exception):
            session.peer.delegated.answer(self, call.exchange.request_id, outcome)
        else:
            self._forwarder.refuse(session, self, call.exchange, outcome)

    def _lead_back(self, outcome: Raw | Exception, afters: list[After]) -> None:
        """Pass the outcome through all interceptors, then deliver it."""
        exchange, session = self._call.exchange, self._session
        if not isinstance(outcome, Exception):
            # Most interceptors and the encoder work on `bytes`.
            found = unwind(afters, bytes(outcome))
        elif isinstance(outcome, TransportError) and not outcome.delivered:
            self._try_again(exchange, afters)  # a task may reconnect to the server
            return
        else:
            found = unwind(afters, self._forwarder.clean(outcome))
        if found is None:
            found = b"{}"
        elif isinstance(found, Exception):
            found = error_response(exchange, found)
        if self._done is not None:
            self._done(found)
        elif session is not None:
            session.peer.delegated.answer(self, exchange.request_id, found)

    def _try_again(self, exchange: Exchange, afters: list[After]) -> None:
        shortcut = self._forwarder
        self._afters = None  # the task calls the `after` functions
        self._again = led = _TaskedCall(exchange, self._session, self._done)
        led.known_as = self
        led.go_on(shortcut.chain.usual, exchange, afters)

    def _leave(self) -> None:
        self._over = True
        self._connection.calls.pop(self._id, None)
        self._connection.used = self._connection.now()
        self._connection.called = True


def _ignore_outcome(outcome: ForwardOutcome) -> None:
    """Drop the outcome of a cancelled call."""
