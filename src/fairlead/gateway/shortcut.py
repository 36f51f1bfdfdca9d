"""Requests that only have to be passed on: without a task, from one connection to the other.

Most of them are: the same era and revision on both sides, nothing to remember, nobody who may be
asked back on a shared line, no interceptor. Everything else takes the usual way through the relay.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from ..errors import FairleadError, RpcError, TransportError
from ..interceptor import Exchange
from ..peer import Taken
from ..protocol.envelope import SessionState
from ..wire import RequestId
from .bridge.errors import unreachable
from .call import ASKING, Call
from .params import Passing, params_of
from .upstream import asks_back

if TYPE_CHECKING:
    from .front import Front
    from .link import Link
    from .upstream import Upstream

__all__ = ["Shortcut"]

log = logging.getLogger("fairlead.gateway")

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

Outcome = bytes | Raw | Exception


class Shortcut:
    """Passes requests on without a task, where nothing else has to be done."""

    def __init__(self, upstream: "Upstream", call_timeout: float) -> None:
        self._upstream = upstream
        self._timeout = call_timeout
        self._flushing: set[asyncio.Task[None]] = set()

    def take(self, front: "Front", exchange: Exchange) -> Taken | None:
        """Take over a request of a client on a connection; None if it needs the usual way."""
        link = self._way_for(exchange, front)
        if link is None or front.peer.channel.congested:
            return None

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, TransportError) and not outcome.delivered:
                front.peer.give_back(exchange)
            elif isinstance(outcome, Exception):
                front.peer.answer(exchange.request_id, self._refusal(outcome))
            else:
                front.peer.answer(exchange.request_id, outcome)

        return self._pass_on(link, Call(exchange, front), done)

    def take_alone(
        self, exchange: Exchange, done: Callable[[Outcome], None]
    ) -> Callable[[str], None] | None:
        """The same for a request that stands alone; returns what cancels it."""
        if exchange.caller.log_level is not None:
            return None
        link = self._way_for(exchange, None)
        if link is None:
            return None

        def answered(outcome: Outcome) -> None:
            failed = isinstance(outcome, Exception)
            lost = isinstance(outcome, TransportError) and not outcome.delivered
            done(self._refusal(outcome) if failed and not lost else outcome)  # type: ignore[arg-type]

        passed = self._pass_on(link, Call(exchange, None), answered)
        return None if passed is None else passed.cancel

    def _way_for(self, exchange: Exchange, front: "Front | None") -> "Link | None":
        """The connection on which a request can be passed on as it is, if there is one."""
        method, caller = exchange.message.method, exchange.caller
        if method in _USUAL_WAY:
            return None
        if caller.stateless:
            link = self._upstream.stateless_link
        else:
            link = None if front is None else front.link
        if link is None or link.ending or link.agreement is None:
            return None
        peer = link.peer
        if not peer.connected or peer.channel.congested:
            return None
        if link.agreement.revision is not caller.revision:
            return None
        if method == "tools/list" and link.marks is not None:
            return None  # which learns from it
        if caller.stateless:
            # Over HTTP some arguments may have to be repeated in headers.
            over_http = hasattr(peer.channel, "add_headers")
            return None if over_http and method == "tools/call" else link
        if peer.conversation.state is not SessionState.ACTIVE:
            return None
        alone = method in ASKING and not link.tells_apart and asks_back(caller.capabilities)
        return None if alone else link

    def _pass_on(
        self, link: "Link", call: Call, done: Callable[[Outcome], None]
    ) -> "_Passed | None":
        passed = _Passed(self, link, call, done)
        try:
            passed.send(params_of(call.exchange), self._timeout)
        except FairleadError:
            return None  # the usual way says what is wrong, or mends it
        return passed

    def _refusal(self, error: Exception) -> RpcError:
        if isinstance(error, RpcError):
            return error
        log.warning("%s: %s", self._upstream.name, error)
        assert isinstance(error, FairleadError)
        return unreachable(self._upstream.name, error)

    def flush(self, call: Call, then: Callable[[], None]) -> None:
        """The client reads slowly: what it was told comes before the answer."""

        async def wait() -> None:
            await call.flushed()
            then()

        task = asyncio.get_running_loop().create_task(wait())
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)


class _Passed:
    """One request under way."""

    __slots__ = ("_call", "_done", "_id", "_link", "_over", "_shortcut")

    def __init__(
        self, shortcut: Shortcut, link: "Link", call: Call, done: Callable[[Outcome], None]
    ) -> None:
        self._shortcut = shortcut
        self._link = link
        self._call = call
        self._done = done
        self._id: RequestId = 0
        self._over = False

    def send(self, passing: Passing, timeout: float) -> None:
        message, link = self._call.exchange.message, self._link
        self._id = link.peer.hand_on(
            message.method,
            passing.fill,
            self._settled,
            extra=message.extra,
            timeout=timeout,
            max_total=timeout * 24,
            overhear=self._call.progressed if passing.tracked else None,
        )
        link.calls[self._id] = self._call

    def cancel(self, reason: str) -> None:
        """Nobody waits for it any more: the server is told."""
        if not self._over:
            self._leave()
            self._link.peer.give_up(self._id, reason)

    def _settled(self, outcome: Raw | Exception) -> None:
        if self._over:
            return
        self._leave()
        outbox = self._call.outbox
        if outbox is None or outbox.empty:
            self._done(outcome)
        else:
            self._shortcut.flush(self._call, lambda: self._done(outcome))

    def _leave(self) -> None:
        self._over = True
        self._link.calls.pop(self._id, None)
        self._link.used = asyncio.get_running_loop().time()
