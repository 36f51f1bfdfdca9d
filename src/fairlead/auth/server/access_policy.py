"""The rules that decide which access tokens an application accepts."""

from collections.abc import Callable, Container, Mapping, Sequence

from msgspec import Struct

from ...protocol.identity.scoped_name import ScopedName
from .proof_check import ProofCheck
from .token_verifiers import TokenVerifier

__all__ = ["AccessPolicy"]


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """The rules that all endpoints of an application share. Without rules, no token is accepted."""

    public_url: str | None = None  # None: the address of the socket
    authorization_servers: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()  # empty: each endpoint's audience is its URL
    scopes: tuple[str, ...] = ()  # scopes that every request needs
    login_scopes: tuple[str, ...] = ()  # scopes that a first login should request as well
    scopes_supported: Callable[[], Sequence[str]] = tuple
    tokens: Mapping[bytes, ScopedName] = {}  # configured clients, by the hash of their token
    names: Container[str] | None = ()  # names of clients; None if a function returns them
    verifier: TokenVerifier | None = None  # verifies all other tokens
    bearer: bool = True
    proofs: ProofCheck | None = None
