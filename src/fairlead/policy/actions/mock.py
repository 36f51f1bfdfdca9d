"""Answers that are made up."""

from typing import Any, ClassVar

from ...errors import RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.own_errors import own_error
from ...wire import Request, to_json

__all__ = ["Mock"]


class Mock(InterceptorBase):
    """Answers itself, and asks nobody."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self, result: str | dict[str, Any] | None = None, *, error: dict[str, Any] | None = None
    ) -> None:
        """A text is the content of a tool's result; a map is the result itself. An error has a
        `code`, a `message` and perhaps `data`.
        """
        if (result is None) == (error is None):
            raise ValueError("either `result` or `error` is expected")
        if isinstance(result, str):
            result = {"content": [{"type": "text", "text": result}]}
        self._result = to_json(result)
        self._stateless = to_json({"resultType": "complete", **(result or {})})
        if error is not None:
            _refusal(error)  # what is wrong with it is said now
        self._error = error

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not isinstance(exchange.message, Request):
            exchange.note("dropped: mocked")  # nobody waits for an answer
            return None
        exchange.note("mocked")
        if self._error is not None:
            raise _refusal(self._error)
        return self._stateless if exchange.caller.stateless else self._result


def _refusal(error: dict[str, Any]) -> RpcError:
    code, message = error.get("code"), error.get("message", "Refused")
    strange = error.keys() - {"code", "message", "data"}
    if type(code) is not int or not isinstance(message, str) or strange:
        raise ValueError("an error has a `code`, which is a whole number, a `message` and `data`")
    if "data" in error:
        return RpcError(code, message, error["data"])  # as the server would have said it
    return own_error(code, message)
