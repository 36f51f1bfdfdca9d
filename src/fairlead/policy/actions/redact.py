"""Action that removes secrets from forwarded messages, not only from logs and recordings."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Raw

from ...errors import RpcError
from ...interceptor import After, Exchange, ExtraMembers, Outcome, SyncInterceptor
from ...protocol.envelope import Direction
from ...protocol.json_edit import members_of
from ...redaction.redact_messages import Redactor
from ...wire import to_json
from ..edit_message import error_json, with_whole_params

__all__ = ["Redact"]


_ANSWERS: Final = (bytes, Raw)
_UP: Final = Direction.CLIENT_TO_SERVER


class Redact(SyncInterceptor):
    """Action that redacts params, results and errors sent to clients, servers or both."""

    pure: ClassVar = True

    def __init__(
        self,
        *,
        to: Literal["client", "server", "both"] = "client",
        names: Sequence[str] = (),
        keep: Sequence[str] = (),
        patterns: Sequence[str] = (),
        values: Sequence[str] = (),
        known: Redactor | None = None,
    ) -> None:
        """Set the direction and the secrets; the other options are described in `Redactor`.

        Secrets that are registered in `known` are redacted too.
        """
        self._redactor = Redactor(names=names, keep=keep, patterns=patterns, values=values)
        if known is not None:
            self._redactor.follow(known)
        to_server, to_client = to in ("server", "both"), to in ("client", "both")
        # For each direction: whether to redact requests, and whether to redact their responses.
        self._up, self._down = (to_server, to_client), (to_client, to_server)

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        there, back = self._up if exchange.direction is _UP else self._down
        message = exchange.message
        if there:
            if message.params is not UNSET:
                raw = bytes(message.params)
                clean = self._redactor.message(raw)
                # An unchanged message is returned as the same object, so identity is compared.
                if clean is not raw:
                    exchange.note("redacted")
                    exchange = with_whole_params(exchange, Raw(clean))
            if message.extra is not None:
                extra = self._clean(exchange, message.extra)
                if extra is not message.extra:
                    changed = msgspec.structs.replace(exchange.message, extra=extra)
                    exchange = msgspec.structs.replace(exchange, message=changed)
        return exchange, partial(self._after, exchange) if back else None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        if isinstance(outcome, _ANSWERS):
            raw = bytes(outcome)
        elif isinstance(outcome, RpcError):
            raw = error_json(outcome)
        else:
            return outcome
        clean = self._redactor.message(raw)
        if clean is raw:
            return outcome
        exchange.note("redacted")
        if isinstance(outcome, RpcError):
            return RpcError(outcome.code, self._redactor.text(outcome.message), raw=clean)
        return clean

    def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        """Redact unknown members of a response."""
        _, back = self._up if exchange.direction is _UP else self._down
        return self._clean(exchange, members) if back else members

    def _clean(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        raw = to_json(members)
        clean = self._redactor.message(raw)
        if clean is raw:
            return members
        exchange.note("redacted")
        return members_of(clean) or {}
