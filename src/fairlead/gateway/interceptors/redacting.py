"""Secrets out of what passes: not only out of what is kept."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final, Literal

from msgspec import UNSET, Raw

from ...errors import RpcError
from ...interceptor import After, Exchange, Outcome, TwoHalves
from ...observe.redactor import Redactor
from ...protocol.envelope import Direction
from ...wire import to_json
from .editing import with_whole_params

__all__ = ["Redact"]


_ANSWERS: Final = (bytes, Raw)


class Redact(TwoHalves):
    """Takes secrets out of what goes to clients, to servers, or both: params, results, errors."""

    pure: ClassVar = True

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
        self._message = self._redactor.message
        self._to_server = to in ("server", "both")
        self._to_client = to in ("client", "both")

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        up = exchange.direction is Direction.CLIENT_TO_SERVER
        params = exchange.message.params
        if params is not UNSET and (self._to_server if up else self._to_client):
            raw = bytes(params)
            clean = self._message(raw)
            if clean is not raw:
                exchange.note("redacted")
                exchange = with_whole_params(exchange, Raw(clean))
        if self._to_client if up else self._to_server:
            return exchange, partial(self._after, exchange)
        return exchange, None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        clean: Outcome = outcome
        if isinstance(outcome, _ANSWERS):
            raw = bytes(outcome)
            found = self._message(raw)
            if found is not raw:
                clean = found
        elif isinstance(outcome, RpcError):
            clean = self._error(outcome)
        if clean is not outcome:
            exchange.note("redacted")
        return clean

    def _error(self, error: RpcError) -> RpcError:
        raw = error.raw
        if raw is None:
            plain = {"code": error.code, "message": error.message, "data": error.data}
            raw = to_json({key: value for key, value in plain.items() if value is not None})
        clean = self._message(raw)
        if clean is raw:
            return error
        return RpcError(error.code, self._redactor.text(error.message), raw=clean)
