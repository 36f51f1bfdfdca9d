"""Input rounds: a stateless request is repeated with the input that the server requested."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw, Struct, UnsetType

from ...errors import InputNotGiven, RemoteProtocolError, RequestTimeout, RpcError
from ...observe.log_filter import ABOUT
from ...protocol.types.base import decode, decode_or_raise
from ...protocol.types.input_required import InputRequest, InputRequests, InputRequiredResult
from ...transport import timeouts
from ...wire.error_codes import INVALID_REQUEST
from ...wire.json import read_json
from .answers import InputCallbacks

__all__ = ["ClientInputRounds", "is_input_required"]

log = logging.getLogger("fairlead.client")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds of the first and the longest pause before a retry


class _Kind(Struct, rename="camel"):
    result_type: str = "complete"


def is_input_required(result: Raw) -> bool:
    """Return True if a result is a request for input."""
    return read_json(result, _Kind, _Kind()).result_type == "input_required"


class ClientInputRounds(Struct):
    """Repetition of a request with the requested input, until the server returns a final result."""

    answers: InputCallbacks
    limit: int = 20
    input_timeout: float = 600.0  # seconds to wait for answers, in all rounds together
    max_total: float = 600.0  # seconds for all rounds together, not counting the wait for answers

    async def finish(
        self,
        method: str,
        params: dict[str, Any],
        result: Raw,
        ask: Callable[[dict[str, Any]], Awaitable[Raw]],
    ) -> Raw:
        """Return the final result.

        `result` is the first response; `ask` sends the request with new params.

        Raises:
            InputNotGiven: A callback is missing or failed.
            RemoteProtocolError: The server requests input too often, or the request is malformed.
            RequestTimeout: The input was not provided in time.
        """
        loop = asyncio.get_running_loop()
        started, waited, pause = loop.time(), 0.0, FIRST_PAUSE
        for _ in range(self.limit):
            wanted = _wanted(result)
            again = dict(params)
            if not isinstance(wanted.input_requests, UnsetType):
                asked = loop.time()
                again["inputResponses"] = await self._collect(
                    wanted.input_requests, method, self.input_timeout - waited
                )
                waited += loop.time() - asked
                pause = FIRST_PAUSE
            else:
                # Without input requests, the server only asks the client to retry.
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            if not isinstance(wanted.request_state, UnsetType):
                again["requestState"] = wanted.request_state
            if self.max_total and loop.time() - started - waited > self.max_total:
                raise RequestTimeout(self.max_total, method)
            result = await ask(again)
            if not is_input_required(result):
                return result
        raise RemoteProtocolError(
            f"{method}: the server still requests input after {self.limit} rounds",
            code=INVALID_REQUEST,
        )

    async def _collect(
        self, questions: InputRequests, method: str, seconds: float
    ) -> dict[str, dict[str, Any]]:
        """Answer all input requests concurrently. If one fails, cancel the others."""
        what = f"An input request of {method}"
        asked = {key: decode_or_raise(raw, InputRequest, what) for key, raw in questions.items()}
        # Checked before the user is asked, because the call fails if a capability is missing.
        for question in asked.values():
            missing = self.answers.missing(question.method)
            if missing is not None:
                raise InputNotGiven(
                    f"{method} needs an answer to {question.method}, and this client does not "
                    f"offer the capability {missing!r}",
                    method=question.method,
                    capability=missing,
                )
        tasks = [asyncio.ensure_future(self._answer(question)) for question in asked.values()]
        try:
            async with timeouts.timeout(max(seconds, 0.0) if self.input_timeout else None):
                given = await asyncio.gather(*tasks)
        except TimeoutError as exc:
            raise RequestTimeout(self.input_timeout, f"{method}, waiting for input") from exc
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        return dict(zip(asked, given, strict=True))

    async def _answer(self, question: InputRequest) -> dict[str, Any]:
        params = question.params
        given = {} if isinstance(params, UnsetType) else decode(params, dict[str, Any])
        try:
            return await self.answers.answer(question.method, given)
        except RpcError as exc:
            why = exc.message
            cause: Exception = exc
        # The callback is user code and may raise any exception.
        except Exception as exc:
            log.exception("the callback for %s failed", question.method, extra={ABOUT: given})
            why, cause = str(exc) or type(exc).__name__, exc
        raise InputNotGiven(
            f"{question.method} was not answered: {why}", method=question.method
        ) from cause


def _wanted(result: Raw) -> InputRequiredResult:
    wanted = decode_or_raise(result, InputRequiredResult, "The request for input")
    if isinstance(wanted.input_requests, UnsetType) and isinstance(wanted.request_state, UnsetType):
        raise RemoteProtocolError(
            "The request for input has neither inputRequests nor requestState", code=INVALID_REQUEST
        )
    return wanted
