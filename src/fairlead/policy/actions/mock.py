"""Action that answers requests with a fixed result or error."""

from typing import Any, ClassVar

from ...errors import RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.own_errors import own_error
from ...wire import Request, to_json

__all__ = ["Mock"]


class Mock(InterceptorBase):
    """Action that answers requests with a fixed response, and drops notifications."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self, result: str | dict[str, Any] | None = None, *, error: dict[str, Any] | None = None
    ) -> None:
        """Set the response: a `result` or an `error`.

        A string becomes the content of a tool result; a dict is the result itself. An error has a
        `code`, and optionally a `message` and `data`.

        Raises:
            ValueError: Both or neither of them are given, or the error is invalid.
        """
        if (result is None) == (error is None):
            raise ValueError("exactly one of `result` and `error` must be given")
        if isinstance(result, str):
            result = {"content": [{"type": "text", "text": result}]}
        self._result = to_json(result)
        # Every result of the stateless era must have a `resultType`.
        self._stateless = to_json({"resultType": "complete", **(result or {})})
        if error is not None:
            # An invalid error is reported when the rule is loaded, not at the first request.
            _refusal(error)
        self._error = error

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not isinstance(exchange.message, Request):
            exchange.drop("dropped: mocked")  # a notification has no response
            return None
        exchange.note("mocked")
        if self._error is not None:
            raise _refusal(self._error)
        return self._stateless if exchange.caller.stateless else self._result


def _refusal(error: dict[str, Any]) -> RpcError:
    code, message = error.get("code"), error.get("message", "Refused")
    strange = error.keys() - {"code", "message", "data"}
    if type(code) is not int or not isinstance(message, str) or strange:
        raise ValueError(
            "`error` must have an integer `code` and may have a string `message` and `data`"
        )
    if "data" in error:
        # With `data`, the error looks like the server's; without it, it names this proxy.
        return RpcError(code, message, error["data"])
    return own_error(code, message)
