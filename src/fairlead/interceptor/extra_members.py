"""What stands beside the result or the error of an answer: the protocol knows no such members, but
what peers send is passed on."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Raw

from .chain import Interceptor
from .exchange import Exchange
from .interceptor_base import InterceptorBase, hooks_of, overrides

__all__ = ["EditExtraMembers", "ExtraMembers", "extra_members_hook"]

log = logging.getLogger("fairlead.interceptor")

ExtraMembers: TypeAlias = dict[str, Raw]
EditExtraMembers: TypeAlias = Callable[[Exchange, ExtraMembers], ExtraMembers]


def extra_members_hook(interceptors: Iterable[Interceptor]) -> EditExtraMembers | None:
    """Combine the hooks `extra_members` of interceptors; None if no interceptor defines it.

    The function gets the request that is answered, and returns the members that are passed on.
    """
    wanting: list[EditExtraMembers] = [
        one.extra_members
        for one in map(hooks_of, interceptors)
        if overrides(one, InterceptorBase.extra_members)
    ]
    if not wanting:
        return None

    def passed(exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        try:
            for change in wanting:
                members = change(exchange, members)
        except Exception as exc:  # somebody else's code, and nobody can be told
            log.error("an interceptor failed beside an answer: %s", type(exc).__name__)
            return {}
        return members

    return passed
