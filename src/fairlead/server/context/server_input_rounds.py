"""Questions in the middle of a call, in an era in which a server cannot ask.

The first time a function asks, the call ends with `input_required`; when the client comes back
with the answers, the function runs again from the top, and what was asked before is answered at
once. The answers so far travel in `requestState`, sealed, so that no server has to remember
anything and any replica can serve any round.

How a round ends: the question is noted and waits for something that never comes. Two turns of the
loop later, when all questions that are asked together have been noted, the function is cancelled.
So `except Exception` cannot swallow it, and `finally` and `async with` clean up.
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
from ...protocol.identity.principal import principal_name
from ...protocol.sealed_state import BadSeal, KeyRing
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS

__all__ = ["ServerInputRounds", "canonical", "digest"]

MAX_STATE = STATE_BYTES.value


class _State(Struct, omit_defaults=True):
    """What travels, sealed: whose it is, what for, and what is known so far."""

    method: str
    request: str  # digest of name or URI, and arguments
    principal: str | None = None  # None: anonymous
    asked: dict[str, str] = {}  # digests of the questions of the last round
    answers: dict[str, tuple[str, Raw]] = {}  # digest of the question, and its answer
    steps: dict[str, Raw] = {}


class _RoundParams(Struct):
    input_responses: dict[str, Raw] = field(default_factory=dict, name="inputResponses")
    request_state: str | None = field(default=None, name="requestState")


class ServerInputRounds:
    """The questions and steps of one call by a stateless caller.

    Raises:
        RpcError: -32602, when built, if the state that came along cannot be accepted.
    """

    def __init__(
        self,
        exchange: Exchange,
        ring: KeyRing,
        ttl: float,
        task: "asyncio.Task[Any] | None" = None,
    ) -> None:
        """`task` is the one that serves the call; it is cancelled when the round ends."""
        self.ended = False
        self._exchange = exchange
        self._ring = ring
        self._ttl = ttl
        self._position = 0
        self._questions: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
        self._volunteered: dict[str, Raw] = {}  # answers that came without a state
        self._ending: asyncio.Handle | None = None
        self._task = task or asyncio.current_task()
        self._state = self._read_state()

    def steps(self) -> dict[str, Raw]:
        """What was done once and is not done again."""
        return self._state.steps

    async def ask(self, method: str, params: Mapping[str, Any], key: str | None) -> Raw:
        """The answer to a question, if it is there; else the round ends here.

        A question with a key of its own may be answered before it was asked. Of one without, only
        the state can say that this is the one that was answered.
        """
        volunteered = None if key is None else self._volunteered.get(key)
        if key is None:
            key = f"q{self._position}"
            self._position += 1
        sign = digest([method, dict(params)])
        answer = self._state.answers.get(key)
        if answer is not None and answer[0] == sign:
            return answer[1]
        if volunteered is not None:
            self._state.answers[key] = (sign, volunteered)
            return volunteered
        self._questions[key] = (sign, method, params)
        if self._ending is None:
            loop = asyncio.get_running_loop()
            self._ending = loop.call_soon(lambda: loop.call_soon(self._end))
        await asyncio.get_running_loop().create_future()  # never: `_end` cancels the function
        raise AssertionError("unreachable")

    def result(self, tail_members: Mapping[str, Any]) -> bytes:
        """The result that ends this round.

        Raises:
            RpcError: if the answers so far are more than may travel.
        """
        state = self._state
        state.asked = {key: sign for key, (sign, _, _) in self._questions.items()}
        sealed = self._ring.seal(msgspec.json.encode(state), ttl=self._ttl)
        if len(sealed) > MAX_STATE:
            STATE_BYTES.hit()
            raise RpcError(
                INVALID_PARAMS,
                f"The answers of this call take {len(sealed)} bytes, over {MAX_STATE}",
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
        name = principal_name(exchange.caller.principal)
        fresh = _State(exchange.method, _request_digest(exchange), name)
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return fresh
        try:
            given = msgspec.json.decode(params, type=_RoundParams)
        except msgspec.DecodeError as exc:
            raise RpcError(INVALID_PARAMS, f"Malformed answers: {exc}") from exc
        if given.request_state is None:
            self._volunteered = given.input_responses
            return fresh
        try:
            state = msgspec.json.decode(self._ring.open(given.request_state), type=_State)
        except BadSeal as exc:
            raise RpcError(INVALID_PARAMS, f"requestState is not accepted: {exc}") from exc
        if (state.method, state.request, state.principal) != (
            *(fresh.method, fresh.request, fresh.principal),
        ):
            raise RpcError(INVALID_PARAMS, "requestState belongs to another request")
        for key, sign in state.asked.items():
            if (answer := given.input_responses.get(key)) is not None:
                state.answers[key] = (sign, answer)
        state.asked = {}
        return state


def digest(value: Any) -> str:
    """A short name for a value: equal values have equal ones, however they were written."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, in which 1.0 and 1 are the same."""
    return msgspec.json.encode(_normalized(msgspec.to_builtins(value)), order="sorted")


def _normalized(value: Any) -> Any:
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
