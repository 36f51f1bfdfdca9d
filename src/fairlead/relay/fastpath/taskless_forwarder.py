"""Requests that only have to be passed on: without a task, from one connection to the other.

Most of them are: the same era and revision on both sides, nothing to remember, nobody who may be
asked back on a shared line, no interceptor that waits for anything. Everything else takes the usual
way through the relay.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw

from ...errors import FairleadError, RequestTimeout, RpcError, TransportError
from ...interceptor import After, Answer, Exchange, Handler, Interceptor
from ...peer import DelegatedRequest, error_response
from ...protocol.caller import NO_HEAD
from ...protocol.conversation.conversation import Fill
from ...protocol.envelope import SessionState
from ...protocol.own_errors import unreachable_error
from ...wire import Notification, RequestId
from ..bridge.client_capabilities import can_be_asked
from ..relayed_call import ASKING, RelayedCall
from ..relayed_params import RelayedParams, params_as_decoded, params_of
from .sync_chain import ContinuedCall, SyncChain, unwind, without_stray_cancellation

if TYPE_CHECKING:
    from ..bridge.stateless_to_handshake import StatelessToHandshake
    from ..client_session import Front
    from ..upstream_connection import Link
    from ..upstream_pool import Upstream

__all__ = ["TasklessForwarder"]

log = logging.getLogger("fairlead.gateway")

_ACTIVE: Final = SessionState.ACTIVE  # an enumeration is slow to ask for its members
# What a relay has to remember, to answer itself, or to change.
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
    """Passes requests on without a task, where nothing else has to be done."""

    def __init__(
        self,
        upstream: "Upstream",
        bridge: "StatelessToHandshake",
        call_timeout: float,
        interceptors: Sequence[Interceptor],
        usual: Handler,
    ) -> None:
        """`usual` answers what has passed the interceptors, whatever it takes."""
        self._upstream = upstream
        self.bridge = bridge
        self._timeout = call_timeout
        self.chain = SyncChain(interceptors, usual)
        self.possible = self.chain.possible
        self._flushing: set[asyncio.Task[None]] = set()

    def take(self, front: "Front", exchange: Exchange) -> DelegatedRequest | None:
        """Take over a request of a client on a connection; None if it needs the usual way."""
        chain = self.chain
        if front.peer.channel.congested:
            return None
        if chain.empty:
            return self.pass_on(exchange, front)
        link = self._upstream.stateless_link if exchange.caller.stateless else front.link
        if front.passage.busy or (link is not None and link.passage.busy):
            return None  # the interceptors see what came first first
        if chain.looks and chain.passes(exchange):
            return self.pass_on(exchange, front)
        if not chain.first or exchange.message.method in _USUAL_WAY:
            return None
        return self._lead(exchange, front, None)

    def delegate_post(
        self, exchange: Exchange, done: Callable[[ForwardOutcome], None]
    ) -> Callable[[str], None] | None:
        """The same for a request that stands alone; returns what cancels it."""
        chain = self.chain
        if exchange.caller.log_level is not None:
            return None
        if not chain.empty:
            link = self._upstream.stateless_link
            if link is not None and link.passage.busy:
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
        front: "Front | None",
        tell: Callable[[ForwardOutcome], None] | None,
    ) -> "_TaskedCall | _ForwardedCall":
        """Call the first halves, then forward the request, or continue in a task."""
        chain = self.chain
        afters: list[After] = []
        try:
            asked = chain.lead_in(exchange, afters)
            same = asked is exchange or asked.request_id == exchange.request_id
        except (Exception, asyncio.CancelledError) as exc:
            led = _TaskedCall(exchange, front, tell)
            led.refuse(afters, exc)
            return led
        passes = chain.rest_passes(asked)
        if passes and same:
            passed = self.pass_on(asked, front, tell, afters)
            if passed is not None:
                return passed
        if front is not None:
            front.peer.delegated.preserve_order()
        led = _TaskedCall(exchange, front, tell)
        led.go_on(chain.usual if passes else chain.rest, asked, afters)
        return led

    def pass_on(
        self,
        exchange: Exchange,
        front: "Front | None",
        done: Callable[[ForwardOutcome], None] | None = None,
        afters: list[After] | None = None,
    ) -> "_ForwardedCall | None":
        """Pass it on, if nothing else has to be done about it.

        `done` gets the outcome; without it, the client's connection does. It passes `afters`
        before, which are those of all interceptors; without them, somebody else sees to that.
        """
        caller = exchange.caller
        bridged: RelayedParams | None = None
        link = self._link_for(exchange, front)
        if link is None and caller.stateless:
            plain = self.bridge.plain(exchange)
            if plain is not None:
                link, bridged = plain
        if link is None or link.ending:
            return None
        peer = link.peer
        if not peer.connected or peer.congested:
            return None
        if link.marks is not None and exchange.message.method == "tools/list":
            return None  # which learns from it
        if peer.conversation.state is not _ACTIVE:
            return None
        passed = _ForwardedCall(self, link, RelayedCall(exchange, front), done, bridged, afters)
        try:
            passed.send(self._timeout)
        except FairleadError:
            return None  # the usual way says what is wrong, or mends it
        return passed

    def _link_for(self, exchange: Exchange, front: "Front | None") -> "Link | None":
        """The connection on which a request can be passed on as it is, if there is one."""
        method, caller = exchange.message.method, exchange.caller
        if method in _USUAL_WAY:
            return None
        if caller.stateless:
            link = self._upstream.stateless_link
            if link is None:
                return None
            # Over HTTP some arguments may have to be repeated in headers.
            over_http = method == "tools/call" and link.peer.channel.carries_headers
        else:
            link = None if front is None or front.joining else front.link
            if link is None:
                return None
            over_http = False
        if over_http or link.agreement is None or link.agreement.revision is not caller.revision:
            return None
        if caller.stateless or method not in ASKING or not can_be_asked(caller.capabilities):
            return link
        return link if link.correlates_calls else None

    def refuse(
        self, front: "Front", passed: "_ForwardedCall", exchange: Exchange, error: Exception
    ) -> None:
        """Tell whoever asked on a connection; or begin again, if nothing was sent."""
        if isinstance(error, TransportError) and not error.delivered:
            front.peer.delegated.undelegate(passed, exchange)
        else:
            front.peer.delegated.answer(passed, exchange.request_id, self._refusal(error))

    def clean(self, outcome: Exception) -> Exception:
        """In the words of whoever asked; but for those after which it is tried again."""
        if isinstance(outcome, TransportError) and not outcome.delivered:
            return outcome
        return self._refusal(outcome)

    def _refusal(self, error: Exception) -> RpcError:
        if isinstance(error, RpcError):
            return error
        log.warning("%s: %s", self._upstream.name, error)
        assert isinstance(error, FairleadError)
        return unreachable_error(self._upstream.name, error)

    def flush(self, link: "Link", call: RelayedCall, then: Callable[[], None]) -> None:
        """What the client was told comes before the answer, also if it reads slowly, or somebody
        in between still looks at it."""

        async def wait() -> None:
            if link.passage.busy:
                await link.passage.passed()
            await call.flushed()
            then()

        task = asyncio.get_running_loop().create_task(wait())
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)


class _TaskedCall:
    """A request that was taken over but cannot be forwarded without a task."""

    __slots__ = ("_over", "_task", "_tell", "exchange", "front", "known_as")

    def __init__(
        self,
        exchange: Exchange,
        front: "Front | None",
        tell: Callable[[ForwardOutcome], None] | None,
    ) -> None:
        """Deliver the outcome to `tell`, or to the connection that the request came on."""
        self._tell = tell
        self._task: ContinuedCall | None = None
        self._over = False
        self.exchange = exchange
        self.front = front
        self.known_as: DelegatedRequest | None = None  # to that connection, if not as itself

    def refuse(self, afters: list[After], cause: Exception | asyncio.CancelledError) -> None:
        """Deliver the error of one of the first halves, once the request counts as taken over."""
        refused = unwind(afters, without_stray_cancellation(cause))
        asyncio.get_running_loop().call_soon(self._done, refused)

    def go_on(self, handler: Handler, exchange: Exchange, afters: list[After]) -> None:
        """Continue in a task."""
        self._task = ContinuedCall(handler, exchange, afters, self._done)

    def cancel(self, reason: str) -> None:
        """Drop the request: no outcome is delivered."""
        if not self._over:
            self._over = True
            if self._task is not None:
                self._task.cancel(reason)

    def _done(self, outcome: Answer | Exception) -> None:
        if self._over:
            return
        self._over = True
        self._task = None  # it refers to this call
        if outcome is None:
            outcome = b"{}"
        elif isinstance(outcome, Exception):
            outcome = error_response(self.exchange, outcome)
        taken, self.known_as = self.known_as or self, None
        if self._tell is not None:
            self._tell(outcome)
        elif self.front is not None:
            self.front.peer.delegated.answer(taken, self.exchange.request_id, outcome)


class _ForwardedCall:
    """One request under way."""

    __slots__ = (
        *("_afters", "_again", "_bridged", "_call", "_done"),
        *("_id", "_link", "_over", "_forwarder"),
    )

    def __init__(
        self,
        shortcut: TasklessForwarder,
        link: "Link",
        call: RelayedCall,
        done: Callable[[ForwardOutcome], None] | None,
        bridged: RelayedParams | None,
        afters: list[After] | None,
    ) -> None:
        """`bridged` are the params for a server of the other era."""
        self._forwarder = shortcut
        self._bridged = bridged
        self._link = link
        self._call = call
        self._done = done
        self._afters = afters
        self._again: _TaskedCall | None = None  # goes on with it
        self._id: RequestId = 0
        self._over = False

    def send(self, timeout: float) -> None:
        call, link = self._call, self._link
        exchange = call.exchange
        message = exchange.message
        fill: Fill | None = None
        overhear = None
        if self._bridged is None and exchange.alias is None:
            if not self._forwarder.chain.empty:
                fill = params_as_decoded(exchange)
            elif exchange.head.meta is UNSET and exchange.head is not NO_HEAD:
                fill = message.params
        if fill is None:
            passing = self._bridged or params_of(exchange)
            fill = passing.fill
            overhear = self._progressed if passing.tracked else None
        self._id = link.peer.outbound.forward_nowait(
            message.method,
            fill,
            self._settled,
            extra=message.extra,
            timeout=timeout,
            max_total=timeout * 24,
            overhear=overhear,
        )
        call.sent_as = self._id
        link.calls[self._id] = call

    def _progressed(self, note: Notification) -> None:
        link = self._link
        link.passage.put(note, link.peer, self._call.progressed, self._id)

    def cancel(self, reason: str) -> None:
        """Nobody waits for it any more: the server is told, and all in between."""
        again, self._again = self._again, None  # it leads back here
        if again is not None:
            again.cancel(reason)
            return
        if not self._over:
            self._leave()
            self._link.peer.outbound.cancel_forwarded(self._id, reason)
            self._link.unanswered()
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
            self._link.unanswered()
        if self._bridged is not None:
            method = self._call.exchange.message.method
            outcome = self._forwarder.bridge.plain_outcome(method, self._link, outcome)
        outbox = self._call.outbox
        if (outbox is None or outbox.empty) and not self._link.passage.busy:
            self._finish(outcome)
        else:  # on the way it is asked whose call it is, so it stays until then
            self._forwarder.flush(self._link, self._call, lambda: self._finish(outcome))

    def _finish(self, outcome: Raw | Exception) -> None:
        link = self._link
        link.calls.pop(self._id, None)
        link.used = link.now()
        call, front = self._call, self._call.front
        if self._afters is not None:
            self._lead_back(outcome, self._afters)
        elif self._done is not None:
            self._done(
                self._forwarder.clean(outcome) if isinstance(outcome, Exception) else outcome
            )
        elif front is None:
            pass  # a call without a client session always has `done`
        elif not isinstance(outcome, Exception):
            front.peer.delegated.answer(self, call.exchange.request_id, outcome)
        else:
            self._forwarder.refuse(front, self, call.exchange, outcome)

    def _lead_back(self, outcome: Raw | Exception, afters: list[After]) -> None:
        """The outcome passes all interceptors."""
        exchange, front = self._call.exchange, self._call.front
        if not isinstance(outcome, Exception):
            found = unwind(afters, bytes(outcome))  # as most of them want it, and who writes it
        elif isinstance(outcome, TransportError) and not outcome.delivered:
            self._try_again(exchange, afters)  # the server comes back, perhaps
            return
        else:
            found = unwind(afters, self._forwarder.clean(outcome))
        if found is None:
            found = b"{}"
        elif isinstance(found, Exception):
            found = error_response(exchange, found)
        if self._done is not None:
            self._done(found)
        elif front is not None:
            front.peer.delegated.answer(self, exchange.request_id, found)

    def _try_again(self, exchange: Exchange, afters: list[After]) -> None:
        shortcut = self._forwarder
        self._afters = None  # they are no longer ours to tell
        self._again = led = _TaskedCall(exchange, self._call.front, self._done)
        led.known_as = self
        led.go_on(shortcut.chain.usual, exchange, afters)

    def _leave(self) -> None:
        self._over = True
        self._link.calls.pop(self._id, None)
        self._link.used = self._link.now()


def _ignore_outcome(outcome: ForwardOutcome) -> None:
    """Drop the outcome of a call whose caller has gone."""
