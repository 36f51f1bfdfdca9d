"""Answers that are made up."""

from typing import Any, ClassVar

from ...interceptor import Answer, Exchange, Proceed
from ...wire import Request, to_json
from ..bridge.errors import ours

__all__ = ["Mock"]


class Mock:
    """Answers itself, and asks nobody."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self, result: str | dict[str, Any] | None = None, *, error: dict[str, Any] | None = None
    ) -> None:
        """A text is the content of a tool's result; a map is the result itself. An error has a
        `code` and a `message`.
        """
        if (result is None) == (error is None):
            raise ValueError("either `result` or `error` is expected")
        if isinstance(result, str):
            result = {"content": [{"type": "text", "text": result}]}
        self._result = to_json(result)
        self._stateless = to_json({"resultType": "complete", **(result or {})})
        self._error = None if error is None else _refusal(error)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange.note("mocked")
        if not isinstance(exchange.message, Request):
            return None
        if self._error is not None:
            code, message = self._error
            raise ours(code, message)
        return self._stateless if exchange.caller.stateless else self._result


def _refusal(error: dict[str, Any]) -> tuple[int, str]:
    code, message = error.get("code"), error.get("message", "Refused")
    if type(code) is not int or not isinstance(message, str) or error.keys() - {"code", "message"}:
        raise ValueError("an error has a `code`, which is a whole number, and a `message`")
    return code, message
