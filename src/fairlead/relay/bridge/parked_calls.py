"""Calls to handshake-era servers that wait for input from stateless clients.

A server of the handshake era sends requests during a call. The call is parked: the client receives
`input_required` with a sealed state that names the call. When the client returns with the
responses, they are sent to the server, and the same call continues.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from secrets import token_urlsafe
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ...config.upstream_settings import UpstreamSettings
from ...interceptor import Exchange
from ...limits import KEPT_OUTCOME_BYTES, KEPT_OUTCOMES, PARKED_CALLS
from ...protocol.caller import ROUND_MEMBERS, has_capability, needed_capability, principal_key
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.own_errors import own_error
from ...protocol.sealed_state import BadSeal, KeyRing
from ...upstream.connection.relayed_call import RelayedCall
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = ["ParkedCall", "ParkedCalls"]

KEPT: Final = 60.0  # seconds that the outcome of a round is kept for repeated requests
MAX_KEPT: Final = KEPT_OUTCOMES.value
MAX_KEPT_BYTES: Final = KEPT_OUTCOME_BYTES.value

log = logging.getLogger("fairlead.gateway")


class _State(Struct, array_like=True):
    """The content of a sealed `requestState`."""

    id: str
    round: int
    principal: str | None  # None: anonymous
    digest: bytes


class _Question(Struct):
    key: str
    body: Raw
    answer: "asyncio.Future[Raw]"


class ParkedCall:
    """One open call to a server, and the rounds in which the client supplies input."""

    def __init__(
        self,
        lot: "ParkedCalls",
        call: RelayedCall,
        digest: bytes,
        work: "asyncio.Task[Raw]",
        settings: UpstreamSettings,
    ) -> None:
        """`settings` are those of the server when the call was made."""
        self.id = token_urlsafe(18)
        self.principal = call.exchange.caller.principal
        self.digest = digest
        self.round = 0
        self.call = call
        self.work = work
        self.heard = True  # True while a request of the client waits for this call
        self._lot = lot
        self._settings = settings
        self._asked: dict[str, _Question] = {}  # input requests without a response
        self._news = asyncio.Event()
        self._keys = 0
        self._expiry: asyncio.TimerHandle | None = None

    # Server side

    async def ask(self, exchange: Exchange) -> Raw:
        """Send a request of the server to the client in the next round and wait for the response.

        Raises:
            RpcError: The client did not declare the capability or did not continue the call, or too
                many calls are parked.
        """
        method, caller = exchange.method, self.call.exchange.caller
        capability = needed_capability(method, string_of(_params(exchange).get("mode")))
        if capability is None or not has_capability(caller.declared, capability):
            raise own_error(
                METHOD_NOT_FOUND,
                f"{method}: the client did not declare the capability {capability!r}",
            )
        if self._lot.full(self):
            raise own_error(
                METHOD_NOT_FOUND, f"{method}: too many calls of this client wait for input"
            )
        self._keys += 1
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        question = _Question(f"q{self._keys}", _embedded(exchange), answer)
        self._asked[question.key] = question
        self._news.set()
        try:
            return await answer
        finally:
            self._asked.pop(question.key, None)

    # Client side

    async def next(self, exchange: Exchange) -> Raw:
        """Return the result of the call, or the next input requests.

        Raises:
            RpcError: The server refused the call.
        """
        # From now on, notifications and the outcome are sent as part of this request.
        self._wake(exchange)
        try:
            while True:
                waiting = asyncio.ensure_future(self._news.wait())
                try:
                    await asyncio.wait((self.work, waiting), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                if self.work.done():
                    self._lot.forget(self)
                    return self.work.result()
                # Requests that the server sends within this time are sent to the client together.
                await asyncio.wait((self.work,), timeout=self._settings.collect)
                # The state may change while this task waits or flushes, so each step checks it.
                if self._asked and not self.work.done():
                    await self.call.flushed()  # notifications must be sent before the result
                if self._asked and not self.work.done():
                    return self._input_required()
                if not self._asked:
                    self._news.clear()
        except asyncio.CancelledError as exc:
            # The call runs in its own task, which must be cancelled with the client's request.
            why = exc.args[0] if exc.args else None
            self.give_up(why if isinstance(why, str) else "the client disconnected")
            raise

    def answer(self, given: RawMembers) -> None:
        """Deliver the client's responses. Input requests without a response are sent again."""
        for key, question in list(self._asked.items()):
            answer = given.get(key)
            # A response that is not an object is treated as missing.
            if answer is None or question.answer.done() or members_of(answer) is None:
                continue
            # A copy, because a `Raw` keeps the buffer of its message alive.
            question.answer.set_result(answer.copy())
            del self._asked[key]
        if not self._asked:
            self._news.clear()

    def _input_required(self) -> Raw:
        self.round += 1
        state = _State(self.id, self.round, principal_key(self.principal), self.digest)
        sealed = self._lot.keys.seal(msgspec.json.encode(state), ttl=self._settings.park_timeout)
        self._sleep()
        return encoded(
            {
                "resultType": "input_required",
                "inputRequests": {key: question.body for key, question in self._asked.items()},
                "requestState": sealed,
            }
        )

    def _wake(self, exchange: Exchange) -> None:
        self.stop_clock()
        self.call.moved_to(exchange)
        self.heard = True

    def _sleep(self) -> None:
        self.heard = False
        self._expiry = asyncio.get_running_loop().call_later(
            self._settings.park_timeout, self.give_up, "the client did not continue the call"
        )

    def give_up(self, why: str) -> None:
        """Refuse the server's requests and cancel the call; `why` is the reason."""
        self._lot.forget(self)
        self.stop_clock()
        for question in self._asked.values():
            if not question.answer.done():
                question.answer.set_exception(own_error(METHOD_NOT_FOUND, f"No response: {why}"))
        # If the task has already failed, `cancel` keeps asyncio from logging its error.
        self.work.cancel(why)

    def stop_clock(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class ParkedCalls:
    """The parked calls of a relay or gateway."""

    def __init__(self, limit: int, keys: KeyRing | None = None) -> None:
        """`limit` is the maximum number of parked calls per principal; it may be changed."""
        self.limit = limit
        self.keys = keys or KeyRing.from_environment()
        self._parked: OrderedDict[str, ParkedCall] = OrderedDict()
        self._recent: OrderedDict[tuple[str, int], tuple[float, asyncio.Future[Raw]]]
        self._recent = OrderedDict()

    def __len__(self) -> int:
        return len(self._parked)

    def full(self, mine: ParkedCall) -> bool:
        # A call counts as parked only while no request of the client waits for it.
        others = (p for p in self._parked.values() if p is not mine and not p.heard)
        same = sum(p.principal == mine.principal for p in others)
        if same < self.limit:
            return False
        PARKED_CALLS.hit()
        return True

    async def begin(
        self,
        call: RelayedCall,
        passing: RawMembers | None,
        work: "asyncio.Task[Raw]",
        settings: UpstreamSettings,
    ) -> Raw:
        """Start the first round of a call, which the task `work` performs.

        Raises:
            RpcError: The server refused the call.
        """
        parking = ParkedCall(self, call, _digest(call.exchange.method, passing), work, settings)
        call.parking = parking
        self._parked[parking.id] = parking
        return await parking.next(call.exchange)

    def retry_state(self, exchange: Exchange, members: RawMembers | None, ttl: float) -> str:
        """Return a sealed state for a client that must repeat its request but supply no input.

        The state expires after `ttl` seconds.
        """
        digest = _digest(exchange.method, members)
        state = _State("", 0, principal_key(exchange.caller.principal), digest)
        return self.keys.seal(msgspec.json.encode(state), ttl=ttl)

    async def resume(self, exchange: Exchange, members: RawMembers, state: str) -> Raw | None:
        """Continue a call with the client's responses.

        Return None for a state from `retry_state`: the caller then forwards the request again.

        Raises:
            RpcError: The state is invalid, already used, or belongs to another client or request.
        """
        try:
            said = msgspec.json.decode(self.keys.open(state), type=_State)
        except (BadSeal, msgspec.DecodeError) as exc:
            raise own_error(INVALID_PARAMS, f"requestState is not valid: {exc}") from None
        if said.principal != principal_key(exchange.caller.principal):
            raise own_error(INVALID_PARAMS, "requestState was issued to another client")
        if said.digest != _digest(exchange.method, members):
            raise own_error(INVALID_PARAMS, "requestState belongs to another request")
        if not said.id:
            _check_visited(members)
            return None
        key = said.id, said.round
        # A client that lost the connection may repeat its request.
        # It gets the same outcome again, and the server gets only one response.
        known = self._recent.get(key)
        if known is not None and (not known[1].done() or known[0] > time.monotonic()):
            # shielded, because the first request still waits for this outcome
            return await asyncio.shield(known[1])
        parking = self._parked.get(said.id)
        if parking is None or said.round != parking.round or parking.heard:
            raise own_error(
                INVALID_PARAMS, "requestState has already been used, or its call has ended"
            )
        parking.answer(members_of(members.get("inputResponses")) or {})
        return await self._remember(key, parking, exchange)

    async def _remember(self, key: tuple[str, int], parking: ParkedCall, exchange: Exchange) -> Raw:
        outcome: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        # mark the exception as retrieved, or asyncio would log it
        outcome.add_done_callback(lambda f: f.exception())
        self._recent[key] = 0.0, outcome
        try:
            result = await parking.next(exchange)
        except asyncio.CancelledError:
            # A repeated request, which was not cancelled itself, must receive an error.
            outcome.set_exception(
                own_error(INVALID_PARAMS, "The request with this state was cancelled")
            )
            raise
        except BaseException as exc:
            outcome.set_exception(exc)
            raise
        else:
            outcome.set_result(result)
            return result
        finally:
            if key in self._recent:
                self._recent[key] = time.monotonic() + KEPT, outcome
            self._drop_old()

    def _drop_old(self) -> None:
        """Drop outcomes that have expired or exceed the limits, the oldest first."""
        now, size = time.monotonic(), 0
        done = [entry for entry in self._recent.items() if entry[1][1].done()]
        for number, (key, (until, outcome)) in enumerate(reversed(done)):
            if outcome.exception() is None:
                size += len(memoryview(outcome.result()))
            if number >= MAX_KEPT or size > MAX_KEPT_BYTES or until <= now:
                del self._recent[key]

    def forget(self, parking: ParkedCall) -> None:
        self._parked.pop(parking.id, None)

    def close(self) -> None:
        for parking in list(self._parked.values()):
            parking.give_up("the gateway is closing")
        self._recent.clear()


def _check_visited(members: RawMembers) -> None:
    """Raise an error if the user declined a visit, because a retry would request it again."""
    given = members_of(members.get("inputResponses")) or {}
    for answer in given.values():
        action = string_of((members_of(answer) or {}).get("action"))
        if action in ("decline", "cancel"):
            raise own_error(
                INTERNAL_ERROR,
                f"The server requires a visit to a page, but the user chose {action!r}",
            )


def _digest(method: str, members: RawMembers | None) -> bytes:
    """Return a digest that is the same for a request in all its rounds."""
    # `_meta` has a new progress token in each request.
    same = {
        name: value
        for name, value in (members or {}).items()
        if name != "_meta" and name not in ROUND_MEMBERS
    }
    text = msgspec.json.encode([method, {name: _ordered(same[name]) for name in sorted(same)}])
    return hashlib.sha256(text).digest()


def _ordered(value: Raw) -> Raw:
    """Return a value with its members sorted by name."""
    try:
        plain = msgspec.json.decode(value)
        return Raw(msgspec.json.encode(plain, order="sorted"))
    # Values that cannot be decoded, such as huge numbers, are compared byte for byte.
    except (ValueError, RecursionError):
        return value


def _params(exchange: Exchange) -> RawMembers:
    params = exchange.message.params
    return (members_of(params) if isinstance(params, Raw) else None) or {}


def _embedded(exchange: Exchange) -> Raw:
    """Return a request of the server as an input request for a stateless client."""
    members = _params(exchange)
    # The stateless era has no such tasks and no visit ids.
    for name in ("task", "elicitationId"):
        members.pop(name, None)
    meta = members_of(members.get("_meta"))
    if meta is not None:
        # A progress token is valid on one connection only.
        meta.pop("progressToken", None)
        if meta:
            members["_meta"] = encoded(meta)
        else:
            del members["_meta"]
    question: dict[str, Any] = {"method": exchange.method}
    if members or isinstance(exchange.message.params, Raw):
        question["params"] = members
    return encoded(question)
