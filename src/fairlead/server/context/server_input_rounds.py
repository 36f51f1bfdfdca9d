"""Requests for input during a call of a stateless client, to which a server cannot send requests.

At the first request for input, the call ends with the result `input_required`. When the client
retries the call with the responses, the function runs again from the top, and earlier requests
return their responses at once. The sealed `requestState` contains the responses so far, so that the
server keeps no state and any replica can serve any round.

A round ends as follows: the request for input is recorded and awaits a future that is never set.
Two iterations of the event loop later, when all concurrent requests have been recorded, the
function is cancelled. `except Exception` therefore cannot swallow the end of a round, and `finally`
and `async with` clean up.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType, field

from ...errors import RpcError
from ...interceptor import Exchange
from ...limits import STATE_BYTES
from ...protocol.caller import principal_key
from ...protocol.sealed_state import BadSeal, KeyRing
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS

__all__ = ["ServerInputRounds", "canonical", "digest"]

MAX_STATE = STATE_BYTES.value


class _State(Struct, omit_defaults=True):
    """The sealed content of `requestState`: the call it belongs to, and the responses so far."""

    method: str
    request: str  # digest of the name or URI and of the arguments
    principal: str | None = None  # None for an anonymous caller
    asked: dict[str, str] = {}  # digests of the input requests in the last round
    answers: dict[str, tuple[str, Raw]] = {}  # digest of the request for input, and its response
    steps: dict[str, Raw] = {}


class _RoundParams(Struct):
    input_responses: dict[str, Raw] = field(default_factory=dict, name="inputResponses")
    request_state: str | None = field(default=None, name="requestState")


class ServerInputRounds:
    """The requests for input and the steps of one call of a stateless client.

    Raises:
        RpcError: -32602, the `requestState` of the call is invalid.
    """

    def __init__(
        self,
        exchange: Exchange,
        ring: KeyRing,
        ttl: float,
        task: "asyncio.Task[Any] | None" = None,
    ) -> None:
        """`task` is the task that serves the call; it is cancelled when the round ends."""
        self.ended = False
        self._exchange = exchange
        self._ring = ring
        self._ttl = ttl
        self._position = 0
        self._questions: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
        self._volunteered: dict[str, Raw] = {}  # responses that were sent without a state
        self._ending: asyncio.Handle | None = None
        self._task = task or asyncio.current_task()
        self._state = self._read_state()
        # results of completed steps, including those of earlier rounds
        self.steps = self._state.steps

    async def ask(self, method: str, params: Mapping[str, Any], key: str | None) -> Raw:
        """Return the response to a request for input; end the round if it is missing.

        If a request has an explicit key, the client may send the response in advance. Without a
        key, only the state shows which request a response belongs to.
        """
        volunteered = None if key is None else self._volunteered.get(key)
        if key is None:
            # The position identifies a request only if each round asks in the same order.
            key = f"q{self._position}"
            self._position += 1
        sign = digest([method, dict(params)])
        answer = self._state.answers.get(key)
        # The digest differs if the function sends another request under the same key.
        if answer is not None and answer[0] == sign:
            return answer[1]
        if volunteered is not None:
            self._state.answers[key] = (sign, volunteered)
            return volunteered
        self._questions[key] = (sign, method, params)
        if self._ending is None:
            loop = asyncio.get_running_loop()
            # After two iterations: tasks started by `gather` record their requests in the next one.
            self._ending = loop.call_soon(lambda: loop.call_soon(self._end))
        never: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        return await never  # Never set; `_end` cancels the task.

    def result(self, tail_members: Mapping[str, Any]) -> bytes:
        """Return the `input_required` result that ends this round.

        Raises:
            RpcError: -32602, the sealed state is larger than `MAX_STATE`.
        """
        state = self._state
        state.asked = {key: sign for key, (sign, _, _) in self._questions.items()}
        sealed = self._ring.seal(msgspec.json.encode(state), ttl=self._ttl)
        if len(sealed) > MAX_STATE:
            STATE_BYTES.hit()
            raise RpcError(
                INVALID_PARAMS,
                f"The state of this call takes {len(sealed)} bytes; the limit is {MAX_STATE}",
            )
        requests = {
            key: {"method": method, "params": params}
            for key, (_, method, params) in self._questions.items()
        }
        return to_json(
            {
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": sealed,
                **tail_members,
            }
        )

    def _end(self) -> None:
        if self._task is not None and not self._task.done():
            self.ended = True
            self._task.cancel()

    def _read_state(self) -> _State:
        exchange = self._exchange
        name = principal_key(exchange.caller.principal)
        belongs = (exchange.method, _request_digest(exchange), name)
        fresh = _State(*belongs)
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return fresh
        try:
            given = msgspec.json.decode(params, type=_RoundParams)
        except msgspec.DecodeError as exc:
            raise RpcError(INVALID_PARAMS, f"Invalid input responses: {exc}") from exc
        if given.request_state is None:
            self._volunteered = given.input_responses
            return fresh
        try:
            state = msgspec.json.decode(self._ring.open(given.request_state), type=_State)
        except BadSeal as exc:
            raise RpcError(INVALID_PARAMS, f"requestState is not valid: {exc}") from exc
        # A valid seal proves only that this server made the state, not that it is for this call.
        if (state.method, state.request, state.principal) != belongs:
            raise RpcError(INVALID_PARAMS, "requestState belongs to another request")
        for key, sign in state.asked.items():
            # Responses to requests that were not sent are ignored.
            if (answer := given.input_responses.get(key)) is not None:
                state.answers[key] = (sign, answer)
        state.asked = {}
        return state


def digest(value: Any) -> str:
    """Return a short digest of a JSON value that does not depend on its formatting."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted keys, in which 1.0 and 1 are equal."""
    return msgspec.json.encode(_normalized(msgspec.to_builtins(value)), order="sorted")


def _normalized(value: Any) -> Any:
    # From 2**53 on, several integers have the same float.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _normalized(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalized(item) for item in value]
    return value


def _request_digest(exchange: Exchange) -> str:
    arguments = exchange.head.arguments
    given = None if isinstance(arguments, UnsetType) else msgspec.json.decode(arguments)
    return digest([exchange.target, given or {}])
