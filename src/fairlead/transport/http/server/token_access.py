"""Interfaces through which HTTP endpoints verify access tokens; `auth.server` implements them."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from ....protocol.caller import Principal
from ....wire import Notification, Request

__all__ = ["AccessControl", "AccessFactory", "RequestRefusal", "RequiredScopes", "TokenAccess"]

# Returns the scopes that a message of a principal requires.
RequiredScopes: TypeAlias = Callable[[Request | Notification, Principal], Sequence[str]]


class RequestRefusal(Struct, frozen=True):
    """A refusal of a request by its headers or its token."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    reason: str = "other"  # short name of the reason, for metrics


class TokenAccess(Protocol):
    """Verifier of the access tokens in requests to one endpoint. All methods may be called
    concurrently.
    """

    @property
    def names(self) -> Container[str] | None:
        """The plain names that it may return as principals; None if they are not known before."""
        ...

    def verify_now(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal | None:
        """Return the principal of a token or its refusal.

        Never waits. None means that `verify` has to decide.
        """
        ...

    async def verify(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal:
        """Return the principal of a request, or the refusal with its challenge.

        `path` is the request's path if it differs from the endpoint's.
        """
        ...

    def refuse_scopes(
        self, principal: Principal, scopes: Sequence[str], path: str | None = None
    ) -> RequestRefusal | None:
        """Return the 403 for a principal that lacks a scope of the server or of the operation.

        The challenge names all scopes of the server and of the operation.
        """
        ...


class AccessControl(Protocol):
    """Access control for all endpoints of one application: keys, verified tokens and metadata."""

    @property
    def base(self) -> str | None:
        """The public base URL of the endpoints, if it is known."""
        ...

    def endpoint(self, path: str, aliases: Mapping[str, str]) -> TokenAccess:
        """Return the verifier for an endpoint. `aliases` maps further paths of the server to
        the path that clients connect to.
        """
        ...

    def reserve(self, path: str) -> None:
        """Treat every name below a path as an endpoint, so that neither metadata nor challenges
        reveal which endpoints exist.
        """
        ...

    def unused(self, path: str) -> TokenAccess | None:
        """Return the verifier for a path without an endpoint below the reserved path; None
        for all other paths.
        """
        ...

    def listens_at(self, url: str | None) -> None:
        """Set the address of the socket: a URL on this machine, or None if there is no such URL.

        Raises:
            ConfigError: The metadata URLs are unknown; set `public_url`.
        """
        ...

    def check_address(self) -> None:
        """Check that the metadata URLs are known.

        Raises:
            ConfigError: The metadata URLs are unknown; set `public_url`.
        """
        ...

    def metadata(self, path: str) -> bytes | None:
        """Return the metadata document at a path below `/.well-known`, or None."""
        ...

    def forget(self, path: str) -> None:
        """Forget an endpoint that is no longer served."""
        ...

    async def close(self) -> None:
        """Cancel requests to authorization servers."""
        ...


class AccessFactory(Protocol):
    """Authorization settings of a server, such as `ServerAuth`."""

    def open_access(self, scopes: Callable[[], Sequence[str]]) -> AccessControl:
        """Return the access control of one application.

        `scopes` returns the scopes that individual tools, resources and prompts currently require.
        """
        ...
