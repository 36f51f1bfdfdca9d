"""Admission of requests by Host, Origin and bearer token, before the body is read.

A web page can make a browser send requests to this machine under any host name that resolves to it
(DNS rebinding). Therefore a connection to a loopback address must name this machine in `Host`, and
the origin of a page must be allowed.
"""

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from ....protocol.caller import ANONYMOUS, UNNAMED, Principal
from .http_settings import HttpSettings

__all__ = ["RequestGuard", "RequestRefusal"]

_OUR_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class RequestRefusal(Struct, frozen=True):
    """A refusal of a request before its body is read."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_UNAUTHORIZED = RequestRefusal(
    401,
    "A valid bearer token is required: Authorization: Bearer ...",
    # closed, because the body is not read
    ((b"www-authenticate", b"Bearer"), (b"connection", b"close")),
)


class RequestGuard:
    """Checks of the headers that apply to every request."""

    def __init__(self, settings: HttpSettings) -> None:
        self._token = settings.auth_token.encode() if settings.auth_token is not None else None
        self._verify = settings.verify_token
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        # pairs of `Host` and server address that passed the check
        self._passed: set[tuple[bytes, object]] = set()
        self.open = self._token is None and self._verify is None

    def refuse(
        self, headers: Mapping[bytes, bytes], server: tuple[str, int | None] | None
    ) -> RequestRefusal | None:
        """Return the reason to refuse a request, or None; tokens are checked separately."""
        host = headers.get(b"host")
        if host is not None and (host, server) not in self._passed:
            if not self._host_fits(host, server):
                return RequestRefusal(
                    403,
                    f"Host {_shown(host)} is not served here; "
                    "add it to allowed_hosts if it is a name of this server",
                )
            # Bounded, because clients choose the value.
            if len(self._passed) < 64:
                self._passed.add((host, server))
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_fits(origin, server):
            return RequestRefusal(
                403,
                f"Origin {_shown(origin)} may not use this server; "
                "add it to allowed_origins to allow its pages",
            )
        if origin is None and _is_embedded(headers):
            return RequestRefusal(403, "Pages of other sites cannot embed resources of this server")
        return None

    def principal(self, headers: Mapping[bytes, bytes]) -> Principal | RequestRefusal:
        """Return the principal of the token, or ANONYMOUS if no token is required."""
        if self.open:
            return ANONYMOUS
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return _UNAUTHORIZED
        token = token.strip()
        # Compared in constant time, so that the duration does not reveal a prefix of the token.
        if self._token is not None and hmac.compare_digest(token, self._token):
            return UNNAMED
        if self._verify is not None:
            whose = self._verify(token.decode("latin-1"))
            if whose is not None:
                return whose
        return _UNAUTHORIZED

    def cors(self, headers: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that allow a page of a listed origin to read the response."""
        origin = headers.get(b"origin")
        if origin is None or origin.decode("latin-1").lower() not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"mcp-session-id, mcp-protocol-version"),
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
