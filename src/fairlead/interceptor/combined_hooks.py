"""Hooks of several interceptors, combined into one function."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from .chain import Interceptor
from .exchange import Exchange
from .interceptor_base import EditExtraMembers, ExtraMembers, InterceptorBase, hooks_of, overrides
from .malformed_frame import MalformedFrame, OnMalformed

__all__ = ["extra_members_hook", "malformed_frame_hook"]

log = logging.getLogger("fairlead.interceptor")


def extra_members_hook(interceptors: Iterable[Interceptor]) -> EditExtraMembers | None:
    """Combine the `extra_members` hooks of interceptors; None if no interceptor defines it.

    The function takes the request and the members of its response and returns the members that are
    forwarded.
    """
    wanting: list[EditExtraMembers] = [
        one.extra_members for one in _defining(InterceptorBase.extra_members, interceptors)
    ]
    if not wanting:
        return None

    def passed(exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        try:
            for change in wanting:
                members = change(exchange, members)
        # Hooks are user code. Any exception they raise is only logged. The response is sent anyway.
        except Exception as exc:
            log.error("extra_members of an interceptor failed: %s", type(exc).__name__)
            return {}
        return members

    return passed


def malformed_frame_hook(interceptors: Iterable[Interceptor]) -> OnMalformed | None:
    """Combine the `on_malformed` hooks of interceptors.

    Returns None if no interceptor defines the hook; then frames need not be kept until they are
    decoded.
    """
    wanting: list[OnMalformed] = [
        one.on_malformed for one in _defining(InterceptorBase.on_malformed, interceptors)
    ]
    if not wanting:
        return None

    def report(frame: MalformedFrame) -> None:
        for hook in wanting:
            try:
                hook(frame)
            except Exception as exc:  # hooks are user code and may raise any exception
                log.error("on_malformed of an interceptor failed: %s", type(exc).__name__)

    return report


def _defining(
    hook: Callable[..., Any], interceptors: Iterable[Interceptor]
) -> list[InterceptorBase]:
    return [one for one in map(hooks_of, interceptors) if overrides(one, hook)]
