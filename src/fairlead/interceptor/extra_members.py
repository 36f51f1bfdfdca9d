"""What stands beside the result or the error of an answer: the protocol knows no such members, but
what peers send is passed on."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Raw

from .exchange import Exchange

__all__ = ["EditExtraMembers", "ExtraMembers", "extra_members_hook"]

log = logging.getLogger("fairlead.interceptor")

ExtraMembers: TypeAlias = dict[str, Raw]
EditExtraMembers: TypeAlias = Callable[[Exchange, ExtraMembers], ExtraMembers]


def extra_members_hook(interceptors: Iterable[Any]) -> EditExtraMembers | None:
    """Those interceptors who change such members too: who have a method `extra_members`.

    It gets the request that is answered, and returns what is passed on. None, if there are none.
    """
    wanting: list[EditExtraMembers] = [
        change
        for one in interceptors
        if (change := getattr(one, "extra_members", None)) is not None
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
