"""HTTP client with proxies, TLS and redirects, independent of MCP.

`HttpClient` sends all HTTP requests of a client. The modules for connections are imported with the
first request.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlsplit

from .....errors import ChannelClosed, ConfigError, HttpError
from .header_fields import merge_headers
from .response import HttpResponse
from .url import EndpointUrl, host_of

if TYPE_CHECKING:
    from ....login_waits import LoginWaits
    from ..request_authorizer import RequestAuthorizer
    from .pool import ConnectionPool

__all__ = ["HttpClient", "HttpClientOptions", "HttpResponse", "merge_headers"]

CONNECT_TIMEOUT = 30.0  # seconds for a connection, including TLS
MAX_REDIRECTS = 5  # maximum number of redirects of one request
UNTOUCHED_BY = frozenset((307, 308))  # redirects that keep method and body
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# Maximum number of repetitions of a request: for a nonce, a renewed token, a login, more scopes.
MAX_AUTHORIZATIONS = 4

log = logging.getLogger("fairlead.transport")


class HttpClientOptions(TypedDict, total=False):
    """Connection options of an `HttpClient`."""

    ca_file: str | None
    ssl_context: ssl.SSLContext | None
    verify: bool
    connect_timeout: float  # seconds
    authorizer: "RequestAuthorizer | None"


class HttpClient:
    """HTTP requests to one server over a pool of persistent connections."""

    def __init__(
        self,
        address: EndpointUrl,
        *,
        ca_file: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        verify: bool = True,
        connect_timeout: float = CONNECT_TIMEOUT,
        authorizer: "RequestAuthorizer | None" = None,
        check_address: Callable[[str], None] | None = None,
        redirects: int = MAX_REDIRECTS,
    ) -> None:
        """Server certificates are verified with `ca_file`, or else with the system's trust store.

        `check_address` is called with each address before a connection to it is opened, and with
        the address of the connected socket before anything is sent. It raises a `FairleadError` to
        refuse an address; with a proxy it is not called. If `redirects` is 0,
        redirects are returned as responses.

        Raises:
            ConfigError: `ca_file` cannot be read or contains no certificates.
        """
        self.address = address
        self._tls: ssl.SSLContext | None = None  # None: the system's trust store
        self._verify = verify
        if not verify:
            log.warning("TLS certificates of %s are not verified", host_of(address.url))
        elif ssl_context is not None:
            self._tls = ssl_context
        elif ca_file is not None:
            self._tls = _trusting(ca_file)
        self._connect_timeout = connect_timeout
        self._authorizer = authorizer
        self._check_address = check_address
        self._redirects = redirects
        self._pool: ConnectionPool | None = None
        self._moved: dict[str, str] = {}  # targets of permanent redirects
        self._closed = False

    @property
    def logins(self) -> "LoginWaits | None":
        """Periods in which requests wait for a user to log in."""
        return None if self._authorizer is None else self._authorizer.logins

    @property
    def reached(self) -> bool:
        """True if a connection is open, so that a request may have reached the server."""
        return self._pool is not None and self._pool.connected

    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        url: str | None = None,
    ) -> HttpResponse:
        """Send a request and return its response, whatever the status, once the head is received.

        The caller reads the response or closes it. Cancelling this closes the connection.

        Raises:
            ConnectFailed: No connection could be opened.
            ChannelClosed: The connection broke; `delivered` is False if the request cannot have
                arrived.
            HttpError: A redirect is not followed, or its target requires other credentials.
            AuthorizationError: The server requires credentials that could not be obtained.
        """
        url = url or self.address.url
        for left in range(MAX_AUTHORIZATIONS, -1, -1):
            reply, given = await self._follow(method, headers, body, url)
            if given is None or not left:
                break
            if reply.status not in (401, 403):
                if left < MAX_AUTHORIZATIONS and self._authorizer is not None:
                    self._authorizer.accepted()
                break
            # The server refused the request before it processed it, so it is repeated unchanged.
            assert self._authorizer is not None
            if not await self._authorizer.challenged(reply.status, reply.headers, given):
                break
            reply.close()
        return reply

    async def _follow(
        self, method: str, headers: Mapping[str, str], body: bytes | None, url: str
    ) -> tuple[HttpResponse, Mapping[str, str] | None]:
        """Send a request with credentials for its URL, and follow redirects.

        Return the response and the credentials; None means that the URL has none.
        """
        pool, authorizer = self._pool or self._begin(), self._authorizer
        asked, url = url, self._moved.get(url, url)
        for _ in range(max(self._redirects, 1)):
            given: Mapping[str, str] | None = None
            # The server could redirect to a path that belongs to others, such as another tenant.
            if authorizer is not None and (url == asked or authorizer.covers(url)):
                given = authorizer.current(method, url)
                if given is None:
                    given = await authorizer.prepare(method, url)
            reply = await pool.ask(method, url, headers, body, given)
            # Any response may contain the nonce of the next proof (RFC 9449, section 8.2).
            if given and "DPoP" in given and authorizer is not None:
                authorizer.responded(reply.headers)
            if reply.status not in REDIRECTS or not self._redirects:
                if given is None and authorizer is not None and reply.status == 401:
                    raise self._refused_elsewhere(reply)
                return reply, given
            url = self._redirected(reply, method)
        raise HttpError(310, f"more than {self._redirects} redirects")

    def _refused_elsewhere(self, reply: HttpResponse) -> HttpError:
        """Return the error for a redirect to a URL that requires other credentials."""
        reply.close()
        path = urlsplit(reply.url).path
        return HttpError(
            401, f"redirected to {path}, to which the credentials of this server are not sent"
        )

    def _redirected(self, reply: HttpResponse, method: str) -> str:
        """Return the target of a redirect.

        Raises:
            HttpError: The redirect would change the method or leads to another origin.
        """
        location = reply.header("location") or ""
        reply.close()
        # The request may carry credentials, which must not be sent to another origin.
        target = EndpointUrl(reply.url).resolve(location) if location else None
        if target is None:
            why = f"redirect to another origin ({host_of(location)}) is not followed"
        elif method != "GET" and reply.status not in UNTOUCHED_BY:
            why = f"redirect to {target} is not followed: it would turn a {method} into a GET"
        else:
            # Limited, because a server could send any number of different targets.
            if reply.status == 308 and len(self._moved) < 100:
                self._moved[reply.url] = target
            return target
        refusal = HttpError(reply.status, why, reply.headers)
        # The server redirected instead of processing the request, so it may be sent again.
        refusal.delivered = False
        raise refusal

    async def close(self) -> None:
        """Close all connections, including those in use."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _begin(self) -> "ConnectionPool":
        if self._closed:
            raise ChannelClosed(delivered=False)
        from .pool import ConnectionPool
        from .proxy_tunnel import Proxy, proxy_url

        tls = self._context() if self.address.url.startswith("https:") else None
        through = None if self.address.socket is not None else proxy_url(self.address.url)
        proxy = None if through is None else Proxy(through, self._context)
        check = None if proxy is not None else self._check_address
        self._pool = ConnectionPool(self.address, tls, self._connect_timeout, proxy, check)
        return self._pool

    def _context(self) -> ssl.SSLContext:
        return self._tls or _usual(self._verify)


@lru_cache(maxsize=32)
def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"Cannot read CA certificates: {exc}", path=ca_file) from exc


@lru_cache(maxsize=2)
def _usual(verify: bool) -> ssl.SSLContext:
    """Return a shared context: reading the system's trust store takes tens of milliseconds."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
