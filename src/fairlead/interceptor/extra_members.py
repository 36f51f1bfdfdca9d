"""What stands beside the result or the error of an answer: the protocol knows no such members, but
what peers send is passed on."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Raw

from .exchange import Exchange

__all__ = ["Members", "OnMembers", "beside"]

log = logging.getLogger("fairlead.interceptor")

Members: TypeAlias = dict[str, Raw]
OnMembers: TypeAlias = Callable[[Exchange, Members], Members]


def beside(interceptors: Iterable[Any]) -> OnMembers | None:
    """Those interceptors who change such members too: who have a method `members`.

    It gets the request that is answered, and returns what is passed on. None, if there are none.
    """
    wanting: list[OnMembers] = [
        change for one in interceptors if (change := getattr(one, "members", None)) is not None
    ]
    if not wanting:
        return None

    def passed(exchange: Exchange, members: Members) -> Members:
        try:
            for change in wanting:
                members = change(exchange, members)
        except Exception as exc:  # somebody else's code, and nobody can be told
            log.error("an interceptor failed beside an answer: %s", type(exc).__name__)
            return {}
        return members

    return passed
