"""Admission of requests by Host, Origin and bearer token, before the body is read.

A web page can make a browser send requests to this machine under any host name that resolves to it
(DNS rebinding). Therefore a connection to a loopback address must name this machine in `Host`, and
the origin of a page must be allowed.
"""

import hmac
import inspect
import logging
import traceback
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import structs

from ....errors import ConfigError
from ....protocol.caller import ANONYMOUS, UNNAMED, Principal
from ....protocol.identity.client_names import is_reserved
from ....protocol.identity.principal_scopes import missing_scopes
from ....protocol.identity.token_principal import TokenPrincipal
from .http_settings import HttpSettings
from .token_access import RequestRefusal, TokenAccess

__all__ = ["RequestGuard", "RequestRefusal"]

log = logging.getLogger("fairlead.transport")

_OUR_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


# response headers that pages of allowed origins may read
_EXPOSED = b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce"

_MISSING = RequestRefusal(
    401,
    "A valid bearer token is required: Authorization: Bearer ...",
    # The connection is closed, because the body is not read.
    ((b"www-authenticate", b"Bearer"), (b"connection", b"close")),
    reason="missing_token",
)
_INVALID = structs.replace(_MISSING, reason="invalid_token")
# The program's function failed; not a 401, as the token may be valid.
_UNAVAILABLE = RequestRefusal(
    503,
    "The token cannot be verified now; try again later",
    ((b"retry-after", b"5"), (b"connection", b"close")),
    reason="verification_unavailable",
)


class RequestGuard:
    """Checks of the headers that apply to every request."""

    def __init__(self, settings: HttpSettings, access: TokenAccess | None = None) -> None:
        """`access` verifies tokens that neither `auth_token` nor `verify_token` accepts.

        Raises:
            ConfigError: The `auth_token` is empty, or two functions would return names of clients,
                which could be equal.
        """
        if settings.auth_token == "":
            raise ConfigError("auth_token is empty: set it to a secret, or to None without a token")
        if settings.verify_token is not None and access is not None and access.names is None:
            raise ConfigError(
                "verify_token cannot be combined with `verify` of ServerAuth: "
                "both could return the same name for different clients"
            )
        self.access = access
        self._token = settings.auth_token.encode() if settings.auth_token is not None else None
        self._verify = settings.verify_token
        self._awaits = inspect.iscoroutinefunction(settings.verify_token)
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        # pairs of `Host` and server address that passed the check
        self._passed: set[tuple[bytes, object]] = set()
        self.open = self._token is None and self._verify is None and access is None

    def refuse(
        self, headers: Mapping[bytes, bytes], server: tuple[str, int | None] | None
    ) -> RequestRefusal | None:
        """Return the reason to refuse a request, or None; tokens are checked separately."""
        return self.refuse_host(headers, server) or self.refuse_page(headers, server)

    def refuse_host(
        self, headers: Mapping[bytes, bytes], server: tuple[str, int | None] | None
    ) -> RequestRefusal | None:
        """Return the reason to refuse the `Host` of a request, or None."""
        host = headers.get(b"host")
        if host is not None and (host, server) not in self._passed:
            if not self._host_fits(host, server):
                return RequestRefusal(
                    403,
                    f"Host {_shown(host)} is not served here; "
                    "add it to allowed_hosts (or --allow-host) if it is a name of this server",
                    reason="host",
                )
            # Bounded, because clients choose the value.
            if len(self._passed) < 64:
                self._passed.add((host, server))
        return None

    def refuse_page(
        self, headers: Mapping[bytes, bytes], server: tuple[str, int | None] | None
    ) -> RequestRefusal | None:
        """Return the reason to refuse a request from a web page, or None; `Host` is not checked."""
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_fits(origin, server):
            return RequestRefusal(
                403,
                f"Origin {_shown(origin)} may not use this server; "
                "add it to allowed_origins to allow its pages",
                reason="origin",
            )
        if origin is None and _is_embedded(headers):
            return RequestRefusal(
                403, "Pages of other sites cannot embed resources of this server", reason="origin"
            )
        return None

    def principal(
        self, headers: Mapping[bytes, bytes], method: str = "POST", path: str | None = None
    ) -> Principal | RequestRefusal | None:
        """Return the principal of the token, or ANONYMOUS if no token is required.

        Never waits. None means that `authenticate` has to decide.
        """
        if self.open:
            return ANONYMOUS
        token = _bearer_token(headers)
        # Compared in constant time, so that the duration does not reveal a prefix of the token.
        ours = self._token
        if token is not None and ours is not None and hmac.compare_digest(token, ours):
            return UNNAMED
        if token is not None and self._verify is not None:
            if self._awaits:
                return None
            try:
                whose = self._verify(token.decode("latin-1"))
            # The function is user code and may raise anything.
            except Exception as exc:
                return _failed(exc)
            # The usual results are recognised by their type: `isawaitable` costs 1 % of a call.
            if type(whose) is not str and whose is not None and inspect.isawaitable(whose):
                self._awaits = True
                if inspect.iscoroutine(whose):
                    whose.close()
                return None
            if whose is not None and (named := self._admissible(whose)) is not None:
                return named
        if self.access is not None:
            return self.access.verify_now(headers, method, path)
        return _MISSING if token is None else _INVALID

    async def authenticate(
        self, headers: Mapping[bytes, bytes], method: str = "POST", path: str | None = None
    ) -> Principal | RequestRefusal:
        """Return the principal of a request, or its refusal; verify the token if necessary.

        `path` is the request's path if it differs from the endpoint's.
        """
        known = self.principal(headers, method, path)
        if known is not None:
            return known
        token = _bearer_token(headers)
        if self._awaits and token is not None and self._verify is not None:
            try:
                whose = self._verify(token.decode("latin-1"))
                if inspect.isawaitable(whose):
                    whose = await whose
            # The function is user code and may raise anything.
            except Exception as exc:
                return _failed(exc)
            if whose is not None and (named := self._admissible(whose)) is not None:
                return named
        if self.access is None:
            return _MISSING if token is None else _INVALID
        return await self.access.verify(headers, method, path)

    def _admissible(self, whose: object) -> Principal | None:
        """Return the principal that `verify_token` returned, unless it belongs to another source.

        A gateway returns `UNNAMED` itself for its own token.
        """
        if whose is UNNAMED:
            return UNNAMED
        if not isinstance(whose, str):
            return _usable(whose)
        taken = () if self.access is None else self.access.names or ()
        if is_reserved(whose) or whose in taken:
            log.error("verify_token returned the name of another client or issuer: %.60r", whose)
            return None
        return whose

    def refuse_scopes(
        self, principal: Principal, scopes: Sequence[str], path: str | None = None
    ) -> RequestRefusal | None:
        """Return the 403 for a principal that lacks a required scope, or None."""
        if self.access is not None:
            return self.access.refuse_scopes(principal, scopes, path)
        if not scopes or self.open or not missing_scopes(principal, scopes):
            return None
        text = f"This operation needs the scopes: {' '.join(scopes)}"
        return RequestRefusal(403, text, reason="insufficient_scope")

    def cors(self, headers: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that allow a page of a listed origin to read the response."""
        origin = headers.get(b"origin")
        if origin is None or origin.decode("latin-1").lower() not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        )

    def _host_fits(self, host: bytes, server: tuple[str, int | None] | None) -> bool:
        name = _name_of(host.decode("latin-1").lower())
        if name in self._hosts:
            return True
        # On a loopback address the names of this machine remain valid beside `allowed_hosts`.
        if self._hosts and not _is_loopback(server):
            return False
        return name in _OUR_NAMES or not _is_loopback(server)

    def _origin_fits(self, origin: bytes, server: tuple[str, int | None] | None) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return True
        try:
            name = urlsplit(text).hostname or ""
        except ValueError:  # invalid IPv6 address in brackets
            return False
        return _is_loopback(server) and name in _OUR_NAMES


def _usable(whose: object) -> TokenPrincipal | None:
    """Return a principal that `verify_token` returned, if it is valid.

    A function that returns True or False would otherwise accept every token.
    """
    if not isinstance(whose, TokenPrincipal):
        kind = type(whose).__name__
        log.error("verify_token returned %s; expected a name, a TokenPrincipal or None", kind)
        return None
    if whose.fault is not None:
        log.error("verify_token returned an unusable TokenPrincipal: %s", whose.fault)
        return None
    return None if whose.has_expired() else whose


def _failed(exc: Exception) -> RequestRefusal:
    # The message of the exception is not logged, because it may quote the token.
    frames = "".join(traceback.format_tb(exc.__traceback__))
    log.error("verify_token raised %s:\n%s", type(exc).__name__, frames)
    return _UNAVAILABLE


def _bearer_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _is_embedded(headers: Mapping[bytes, bytes]) -> bool:
    """Return True for an image, script or similar resource in a page of another site.

    Browsers send these without `Origin`. Following a link is allowed.
    """
    return (
        headers.get(b"sec-fetch-site") == b"cross-site"
        and headers.get(b"sec-fetch-mode") != b"navigate"
    )


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _is_loopback(server: tuple[str, int | None] | None) -> bool:
    """Return True if the connection was accepted on a loopback address."""
    if server is None or server[1] is None:
        return False  # a unix socket, which browsers cannot use
    try:
        return ip_address(server[0]).is_loopback
    except ValueError:
        return server[0] == "localhost"


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
