"""Identity on whose behalf a request is made.

An entry point (an HTTP request, a WebSocket, a pipe) determines the principal once, before anything
else reads the message, and every layer above passes it on. *Anonymous* is a value of its own and
equals no name, not even `""`. A missing decision is a type error, because no parameter that takes a
principal has a default.
"""

from enum import Enum
from typing import Final, TypeAlias

__all__ = ["ANONYMOUS", "UNNAMED", "Anonymous", "Principal", "principal_from", "principal_name"]


class Anonymous(Enum):
    """Principal of a client that was not authenticated."""

    ANONYMOUS = "anonymous"

    # `Enum.__hash__` is a Python function, and principals are keys of dictionaries on hot paths.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Return False, so that `if not principal` in an interceptor rejects anonymous clients."""
        return False


ANONYMOUS: Final = Anonymous.ANONYMOUS
UNNAMED: Final = "token"  # principal of a token that belongs to no particular client
Principal: TypeAlias = str | Anonymous


def principal_name(principal: Principal) -> str | None:
    """Return the name for people, JSON and files, or `None` if the principal is anonymous."""
    return principal if isinstance(principal, str) else None


def principal_from(name: str | None) -> Principal:
    """Return the principal that `principal_name` wrote as `name`."""
    return ANONYMOUS if name is None else name
