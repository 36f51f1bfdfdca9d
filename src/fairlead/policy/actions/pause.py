"""Breakpoints: messages are held until an operator decides about them."""

from collections.abc import Callable
from typing import Literal

from msgspec import Raw, UnsetType

from ...errors import RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.json_edit import encoded, members_of
from ...wire import Params, Request
from ..edit_message import error_json, members_of_params, with_whole_params
from ..hold_desk import HoldDecision, HoldDesk, HoldOutcome, HoldPhase
from .block import blocked_error

__all__ = ["Pause"]


class Pause(InterceptorBase):
    """Action that holds the messages of an exchange if `condition` returns True for it.

    `when` selects the request, its response (a result or an error), or both. Notifications are held
    unless `when` is "answer".

        from fairlead.protocol.targets.targets import Patterns

        wanted = Patterns(["delete_everything"])
        Pause(desk, lambda exchange: any(map(wanted.deny, exchange.targets)))
    """

    def __init__(
        self,
        desk: HoldDesk,
        condition: Callable[[Exchange], bool] = lambda exchange: True,
        *,
        when: Literal["request", "answer", "both"] = "request",
        limit: float | None = None,
        otherwise: HoldOutcome | None = None,
        reason: str | None = None,
    ) -> None:
        """Set the condition and which messages are held;
        `limit` and `otherwise` default to the desk's values.
        """
        if limit is not None and limit <= 0:
            raise ValueError(f"`limit` must be greater than 0, not {limit:g}")
        self._desk = desk
        self._condition = condition
        self._when = when
        self._limit = limit
        self._otherwise: HoldOutcome | None = otherwise
        self._reason = reason

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not self._condition(exchange):
            return await proceed(exchange)
        is_request = isinstance(exchange.message, Request)
        if self._when != "answer":
            params = exchange.message.params
            phase: HoldPhase = "request" if is_request else "notification"
            verdict = await self._hold(phase, exchange, params)
            if verdict.action == "block":
                if not is_request:
                    exchange.drop(f"dropped: {verdict.reason}")
                    return None
                raise blocked_error(exchange, verdict.reason)
            if verdict.result is not None:
                return _spoken(exchange, verdict.result)
            if verdict.params is not None:
                exchange = with_whole_params(exchange, _with_meta(verdict.params, params))
        if self._when == "request" or not is_request:
            return await proceed(exchange)
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            verdict = await self._hold("error", exchange, error_json(exc))
            if verdict.action == "resume":
                raise
        else:
            verdict = await self._hold("answer", exchange, answer)
            if verdict.action == "resume":
                return answer
        if verdict.action == "block":
            raise blocked_error(exchange, verdict.reason)
        assert verdict.result is not None
        return _spoken(exchange, verdict.result)

    async def _hold(
        self, phase: HoldPhase, exchange: Exchange, message: Answer | UnsetType
    ) -> HoldDecision:
        verdict = await self._desk.hold(
            phase,
            exchange,
            message,
            reason=self._reason,
            limit=self._limit,
            otherwise=self._otherwise,
        )
        said = {"resume": "resumed", "change": "changed", "block": "blocked"}[verdict.action]
        exchange.note(f"paused: {said}{verdict.reason and f' ({verdict.reason})'}")
        return verdict


def _spoken(exchange: Exchange, result: Raw) -> Raw:
    """Add `resultType` to a stateless result, because operators may omit it."""
    members = members_of(result)
    if not exchange.caller.stateless or members is None or "resultType" in members:
        return result
    return encoded({"resultType": "complete", **members})


def _with_meta(params: Raw, before: Params) -> Raw:
    """Copy `_meta` from the old params, so that operators need not repeat it."""
    new, old = members_of(params), members_of_params(before)
    if new is None or old is None or "_meta" in new or "_meta" not in old:
        return params
    return encoded({**new, "_meta": old["_meta"]})
