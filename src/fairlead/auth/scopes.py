"""Selection of the scopes that a client requests, at first and after a 403."""

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
    *,
    offline: bool = True,
) -> tuple[str, ...]:
    """Return the scopes of a first request; an empty tuple omits the parameter.

    Configured scopes are used as they are. Otherwise the challenge decides, then the metadata of
    the resource. `offline_access` is requested only if the authorization server announces it, and
    not alone; it is not added if `offline` is False.
    """
    if configured is not None:
        return tuple(configured)
    chosen = tuple(challenge.scopes) if challenge is not None else ()
    if not chosen and resource is not None:
        chosen = tuple(resource.scopes_supported or ())
    if OFFLINE_ACCESS not in (server.scopes_supported or ()):
        return tuple(scope for scope in chosen if scope != OFFLINE_ACCESS)
    if chosen and offline and OFFLINE_ACCESS not in chosen:
        return (*chosen, OFFLINE_ACCESS)
    return chosen


class ScopeHistory:
    """The sets of scopes that were requested, so that no set is requested twice.

    A server that always demands more must not cause endless logins.
    """

    MAX_STEPS = 2  # maximum number of further authorizations in a row without effect

    def __init__(self) -> None:
        self._asked: set[frozenset[str]] = set()
        self._without_effect = 0

    def step_up(self, held: Iterable[str], needed: Iterable[str]) -> tuple[str, ...] | None:
        """Return the scopes to request after a 403; None if that would not help."""
        union = tuple(dict.fromkeys((*held, *needed)))
        repeated = frozenset(union) in self._asked
        return None if repeated or self._without_effect >= self.MAX_STEPS else union

    def requested(self, scopes: Iterable[str], *, more: bool = False) -> None:
        """Note scopes that were granted or denied; `more` means that a 403 demanded them."""
        self._asked.add(frozenset(scopes))
        self._without_effect += more

    def succeeded(self) -> None:
        """Note that the server accepted the request for which scopes were requested."""
        self._without_effect = 0
