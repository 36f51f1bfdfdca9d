"""Sealing of the `requestState` that servers send to stateless clients.

A stateless client returns the state of a round with its next request. A sealed state is accepted
only from the client that received it, and names the replica that sent it.
"""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct, UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange
from ..protocol.caller import ANONYMOUS, UNNAMED, Principal, principal_key
from ..protocol.json_edit import encoded, members_of
from ..protocol.own_errors import own_error
from ..protocol.sealed_state import BadSeal, KeyRing
from ..upstream.connection.relayed_call import ASKING
from ..wire.error_codes import INVALID_PARAMS
from .request_params import with_members

__all__ = ["RoundStates", "needs_binding"]

LIFETIME: Final = 24 * 3600.0  # seconds for which a state is accepted


class _Sealed(Struct, array_like=True):
    server: str
    replica: str
    principal: str | None
    state: str


class _Round(Struct, rename="camel"):
    request_state: str | None = None


class RoundStates:
    """Key ring for sealing states for clients and opening states that clients return."""

    # Created on first use, because most servers never send a state.
    @cached_property
    def _ring(self) -> KeyRing:
        return KeyRing.from_environment()

    async def bind(
        self, exchange: Exchange, server: str, answer: Callable[[Exchange], Awaitable[Answer]]
    ) -> Answer:
        """Answer a request so that no other client can return the state in its result.

        Raises:
            RpcError: The request has a state that was issued to another client, or is refused.
        """
        if not needs_binding(exchange):
            return await answer(exchange)
        principal = exchange.caller.principal
        exchange, _ = self.open(exchange, server)
        result = await answer(exchange)
        return self.seal(result, server=server, replica=server, principal=principal)

    def seal(self, answer: Answer, *, server: str, replica: str, principal: Principal) -> Answer:
        """Return the result of a call with its state sealed, if it has one."""
        # Nearly all results contain no state, and searching takes a tenth of the time of decoding.
        if answer is None or b"input_required" not in bytes(answer):
            return answer
        state, members = _state_in(answer), members_of(answer)
        if state is None or members is None:
            return answer
        content = _Sealed(server, replica, principal_key(principal), state)
        sealed = self._ring.seal(msgspec.msgpack.encode(content), ttl=LIFETIME)
        return encoded({**members, "requestState": encoded(sealed)})

    def open(self, exchange: Exchange, server: str) -> tuple[Exchange, str | None]:
        """Return a request with the original state, and the replica that created the state.

        The replica is None if the request has no state.

        Raises:
            RpcError: The state was not issued to this client by this server (-32602).
        """
        state = exchange.head.request_state
        if isinstance(state, UnsetType):
            return exchange, None
        try:
            content = msgspec.msgpack.decode(self._ring.open(state), type=_Sealed)
        except (BadSeal, msgspec.DecodeError) as exc:
            raise _refused(str(exc)) from None
        if content.principal != principal_key(exchange.caller.principal):
            raise _refused("the state was issued to another client")
        if content.server != server:
            raise _refused("the state belongs to another server")
        return with_members(exchange, requestState=content.state), content.replica


def needs_binding(exchange: Exchange) -> bool:
    """Return True if a result may contain a state that only this client may return."""
    caller = exchange.caller
    # All bearers of the one token of a relay or gateway have the same principal.
    named = caller.principal not in (ANONYMOUS, UNNAMED)
    return caller.stateless and named and exchange.message.method in ASKING


def _state_in(result: Any) -> str | None:
    try:
        return msgspec.json.decode(result, type=_Round).request_state
    except (msgspec.DecodeError, RecursionError):
        return None


def _refused(why: str) -> RpcError:
    return own_error(
        INVALID_PARAMS, f"requestState is not valid: {why}. Repeat the call without it"
    )
