"""Who may talk to an endpoint at all: Host, Origin and bearer token, before anything is read.

A web page can make a browser send requests to this machine, under any host name that its owner
points here. So a connection that came in on a loopback address must name this machine, and a page
must be one that was allowed.
"""

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from ....protocol.identity.principal import ANONYMOUS, UNNAMED, Principal
from .http_settings import HttpSettings

__all__ = ["RequestGuard", "RequestRefusal"]

_OUR_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class RequestRefusal(Struct, frozen=True):
    """Why a request is not served."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_UNAUTHORIZED = RequestRefusal(
    401,
    "A valid bearer token is needed: Authorization: Bearer ...",
    ((b"www-authenticate", b"Bearer"), (b"connection", b"close")),  # no body is waited for
)


class RequestGuard:
    """Checks what every request has, whatever it asks for."""

    def __init__(self, settings: HttpSettings) -> None:
        self._token = settings.auth_token.encode() if settings.auth_token is not None else None
        self._verify = settings.verify_token
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        self._passed: set[tuple[bytes, object]] = set()  # hosts seen and found good
        self.open = self._token is None and self._verify is None

    def refuse(
        self, headers: Mapping[bytes, bytes], server: tuple[str, int | None] | None
    ) -> RequestRefusal | None:
        """Why a request may not come in; None if it may. Tokens are another matter."""
        host = headers.get(b"host")
        if host is not None and (host, server) not in self._passed:
            if not self._host_fits(host, server):
                return RequestRefusal(
                    403,
                    f"Host {_shown(host)} is not served here; "
                    "list it in allowed_hosts if it is a name of this server",
                )
            if len(self._passed) < 64:
                self._passed.add((host, server))
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_fits(origin, server):
            return RequestRefusal(
                403,
                f"Origin {_shown(origin)} may not use this server; "
                "list it in allowed_origins to let its pages in",
            )
        if origin is None and _is_embedded(headers):
            return RequestRefusal(403, "Pages of other sites may not embed what this server serves")
        return None

    def principal(self, headers: Mapping[bytes, bytes]) -> Principal | RequestRefusal:
        """Return the principal that the token names; anonymous where no token is needed."""
        if self.open:
            return ANONYMOUS
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return _UNAUTHORIZED
        token = token.strip()
        if self._token is not None and hmac.compare_digest(token, self._token):
            return UNNAMED
        if self._verify is not None:
            whose = self._verify(token.decode("latin-1"))
            if whose is not None:
                return whose
        return _UNAUTHORIZED

    def cors(self, headers: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """What lets a page of a listed origin read the answer."""
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
        if self._hosts and not _is_loopback(server):
            return False
        return name in _OUR_NAMES or not _is_loopback(server)

    def _origin_fits(self, origin: bytes, server: tuple[str, int | None] | None) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return True
        try:
            name = urlsplit(text).hostname or ""
        except ValueError:  # brackets that are no address
            return False
        return _is_loopback(server) and name in _OUR_NAMES


def _is_embedded(headers: Mapping[bytes, bytes]) -> bool:
    """Return True for an image, script or the like of a page of another site.

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
    """Whether the connection came in on an address that only this machine can reach."""
    if server is None or server[1] is None:
        return False  # a unix socket: no browser gets there
    try:
        return ip_address(server[0]).is_loopback
    except ValueError:
        return server[0] == "localhost"


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
