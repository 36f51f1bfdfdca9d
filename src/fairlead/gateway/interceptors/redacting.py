"""Secrets out of what passes: not only out of what is kept."""

from collections.abc import Sequence
from typing import ClassVar, Literal, cast

from msgspec import UNSET, Raw

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Proceed
from ...observe.redactor import Redactor
from ...protocol.envelope import Direction
from ...wire import to_json
from .editing import with_whole_params

__all__ = ["Redact"]


class Redact:
    """Takes secrets out of what goes to clients, to servers, or both: params, results, errors."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self,
        *,
        to: Literal["client", "server", "both"] = "client",
        names: Sequence[str] = (),
        keep: Sequence[str] = (),
        patterns: Sequence[str] = (),
        values: Sequence[str] = (),
    ) -> None:
        """The rest is as `Redactor` has it."""
        self._redactor = Redactor(names=names, keep=keep, patterns=patterns, values=values)
        self._to_server = to in ("server", "both")
        self._to_client = to in ("client", "both")

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        up = exchange.direction is Direction.CLIENT_TO_SERVER
        if (self._to_server if up else self._to_client) and exchange.message.params is not UNSET:
            exchange = self._params(exchange)
        if not (self._to_client if up else self._to_server):
            return await proceed(exchange)
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            clean = self._error(exc)
            if clean is exc:
                raise
            exchange.note("redacted")
            raise clean from None
        if answer is None:
            return None
        raw = bytes(answer)
        clean_answer = self._redactor.message(raw)
        if clean_answer is raw:
            return answer
        exchange.note("redacted")
        return clean_answer

    def _params(self, exchange: Exchange) -> Exchange:
        raw = bytes(cast(Raw, exchange.message.params))
        clean = self._redactor.message(raw)
        if clean is raw:
            return exchange
        exchange.note("redacted")
        return with_whole_params(exchange, Raw(clean))

    def _error(self, error: RpcError) -> RpcError:
        raw = error.raw
        if raw is None:
            plain = {"code": error.code, "message": error.message, "data": error.data}
            raw = to_json({key: value for key, value in plain.items() if value is not None})
        clean = self._redactor.message(raw)
        if clean is raw:
            return error
        return RpcError(error.code, self._redactor.text(error.message), raw=clean)
