"""Which scopes a client requests, and when it requests more."""

from collections.abc import Iterable, Sequence

from .challenge import Challenge
from .metadata import AuthorizationServer, ProtectedResource

__all__ = ["OFFLINE_ACCESS", "ScopeHistory", "choose_scopes", "parse_scopes"]

OFFLINE_ACCESS = "offline_access"


def parse_scopes(value: object) -> tuple[str, ...]:
    """Return the scopes of a `scope` or `scp` value: a string, or a list of strings."""
    if isinstance(value, str):
        return tuple(dict.fromkeys(value.split()))
    if isinstance(value, list):
        return tuple(dict.fromkeys(word for word in value if isinstance(word, str) and word))
    return ()


def choose_scopes(
    configured: Sequence[str] | None,
    challenge: Challenge | None,
    resource: ProtectedResource | None,
    server: AuthorizationServer,
) -> tuple[str, ...]:
    """Return the scopes of a first request; an empty tuple omits the parameter.

    Configured scopes are used as they are. Otherwise the challenge decides, then the metadata of
    the resource. `offline_access` is added only if the authorization server announces it.
    """
    if configured is not None:
        return tuple(configured)
    chosen = tuple(challenge.scopes) if challenge is not None else ()
    if not chosen and resource is not None:
        chosen = tuple(resource.scopes_supported or ())
    if OFFLINE_ACCESS in (server.scopes_supported or ()) and OFFLINE_ACCESS not in chosen:
        chosen = (*chosen, OFFLINE_ACCESS)
    return chosen


class ScopeHistory:
    """The sets of scopes that were requested, so that none is requested twice in vain.

    A server that always demands more must not cause endless logins.
    """

    MAX_STEPS = 2  # further authorizations for one resource

    def __init__(self) -> None:
        self._asked: set[frozenset[str]] = set()

    def step_up(self, held: Iterable[str], needed: Iterable[str]) -> tuple[str, ...] | None:
        """Return the union to request after a 403, or None if it was requested before."""
        union = tuple(dict.fromkeys((*held, *needed)))
        key = frozenset(union)
        if key in self._asked or len(self._asked) >= self.MAX_STEPS:
            return None
        self._asked.add(key)
        return union
