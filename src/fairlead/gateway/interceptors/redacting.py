"""Secrets out of what passes: not only out of what is kept."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Raw

from ...errors import RpcError
from ...interceptor import After, Exchange, Members, Outcome, TwoHalves
from ...observe.redactor import Redactor
from ...protocol.envelope import Direction
from ...protocol.rewriting import members_of
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
        if exchange.message.extra is not None:
            exchange = self._without_extra_secrets(exchange, up)
        if self._to_client if up else self._to_server:
            return exchange, partial(self._after, exchange)
        return exchange, None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        clean = outcome
        if isinstance(outcome, _ANSWERS):
            raw = bytes(outcome)
            found = self._message(raw)
            if found is raw:
                return outcome
            clean = found
        elif isinstance(outcome, RpcError):
            clean = self._error(outcome)
        if clean is not outcome:
            exchange.note("redacted")
        return clean

    def members(self, exchange: Exchange, members: Members) -> Members:
        """The same for what stands beside a result or an error."""
        up = exchange.direction is Direction.CLIENT_TO_SERVER
        clean = self._clean(members) if (self._to_client if up else self._to_server) else members
        if clean is not members:
            exchange.note("redacted")
        return clean

    def _without_extra_secrets(self, exchange: Exchange, up: bool) -> Exchange:
        extra = exchange.message.extra
        if extra is None or not (self._to_server if up else self._to_client):
            return exchange
        clean = self._clean(extra)
        if clean is extra:
            return exchange
        exchange.note("redacted")
        message = msgspec.structs.replace(exchange.message, extra=clean)
        return msgspec.structs.replace(exchange, message=message)

    def _clean(self, members: Members) -> Members:
        raw = to_json(members)
        clean = self._message(raw)
        return members if clean is raw else members_of(clean) or {}

    def _error(self, error: RpcError) -> RpcError:
        raw = error.raw
        if raw is None:
            plain = {"code": error.code, "message": error.message, "data": error.data}
            raw = to_json({key: value for key, value in plain.items() if value is not None})
        clean = self._message(raw)
        if clean is raw:
            return error
        return RpcError(error.code, self._redactor.text(error.message), raw=clean)
