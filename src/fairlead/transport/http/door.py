"""The one door to aiohttp: everything that leaves us over HTTP goes through here.

It knows connections, TLS, proxies and redirects, and nothing about the protocol; aiohttp itself
is loaded when the first request leaves. aiohttp's own exceptions do not come out of it.
"""

import asyncio
import io
import logging
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from ...errors import ChannelClosed, ConfigError, ConnectFailed, HttpError, TransportError
from ...wire import MAX_MESSAGE
from .address import Address

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

__all__ = ["Door", "Reply"]

# uvicorn and Node close connections that were idle for 5 s. A POST on one that is just being
# closed fails, and nobody can say whether it arrived.
KEEP_ALIVE = 4.0  # seconds
CONNECT_TIMEOUT = 30.0  # seconds for one socket
MAX_REDIRECTS = 5
LARGE = 1 << 20  # bytes of a body that would hold the loop if they were written at once
MAX_ERROR_BODY = 1 << 20  # bytes that are read of a refusal
UNTOUCHED_BY = frozenset((307, 308))  # redirects that keep method and body
REDIRECTS = frozenset((301, 302, 303, 307, 308))

log = logging.getLogger("fairlead.transport")


class Door:
    """Requests to one server, over connections that are kept and used again."""

    def __init__(
        self,
        address: Address,
        *,
        ca_file: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        verify: bool = True,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """Certificates are held against the system's trust store, or against `ca_file`.

        Raises:
            ConfigError: if the file holds no certificates.
        """
        self.address = address
        self._tls: ssl.SSLContext | bool = True
        if not verify:
            log.warning("certificates of %s are not verified, as configured", _host(address.url))
            self._tls = False
        elif ssl_context is not None:
            self._tls = ssl_context
        elif ca_file is not None:
            self._tls = _trusting(ca_file)
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None
        self._urls: dict[str, URL] = {}
        self._moved: dict[str, str] = {}  # by a permanent redirect
        self._closed = False

    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        url: str | None = None,
    ) -> "Reply":
        """Send a request and wait for the beginning of its answer, whatever its status is.

        The caller reads the reply or closes it. Cancelling closes the connection.

        Raises:
            ConnectFailed: no connection came about.
            ChannelClosed: it broke; `delivered` says whether the request may have arrived.
            HttpError: a redirect that we do not follow.
        """
        session = self._session or self._begin()
        url = url or self.address.url
        url = self._moved.get(url, url)
        for _ in range(MAX_REDIRECTS):
            target = self._urls.get(url) or self._prepared(url)
            try:
                response = await session.request(
                    method,
                    target,
                    data=body if body is None or len(body) < LARGE else io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
            except Exception as exc:
                _translate(exc, url)
            if response.status not in REDIRECTS:
                return Reply(response, url)
            url = await self._redirected(Reply(response, url), method)
        raise HttpError(310, f"more than {MAX_REDIRECTS} redirects")

    async def _redirected(self, reply: "Reply", method: str) -> str:
        """Where to go on; a POST is never made a GET, and nothing goes to another origin."""
        location = reply.header("location") or ""
        reply.close()
        target = Address(reply.url).resolve(location) if location else None
        if target is None:
            why = f"redirected to another origin ({_host(location)}), which is not followed"
        elif method != "GET" and reply.status not in UNTOUCHED_BY:
            why = f"redirected to {target}, which would turn a {method} into a GET"
        else:
            if reply.status == 308 and len(self._moved) < 100:
                self._moved[reply.url] = target
            return target
        refusal = HttpError(reply.status, why, reply.headers)
        refusal.delivered = False
        raise refusal

    async def close(self) -> None:
        """Close all connections, those in use as well."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _begin(self) -> "aiohttp.ClientSession":
        if self._closed:
            raise ChannelClosed(delivered=False)
        import aiohttp

        connector: aiohttp.BaseConnector
        if self.address.socket is not None:
            connector = aiohttp.UnixConnector(
                self.address.socket, limit=0, keepalive_timeout=KEEP_ALIVE
            )
        else:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE, ssl=self._tls, limit_per_host=0
            )
            self._proxy = _proxy_for(self.address.url)
        self._session = aiohttp.ClientSession(
            connector=connector,
            # No limit for the whole: streams last. Requests have clocks of their own, above.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
            # Looking for proxies would cost two thread hops per request; we looked once.
            trust_env=False,
            max_field_size=64 << 10,
        )
        return self._session

    def _prepared(self, url: str) -> "URL":
        from yarl import URL

        try:
            target = URL(url, encoded=True)  # else paths would be rewritten
        except ValueError as exc:
            raise ConnectFailed(f"Not a URL: {exc}") from exc
        if len(self._urls) < 100:
            self._urls[url] = target
        return target


class Reply:
    """An answer whose body has not been read yet."""

    __slots__ = ("_response", "content_type", "status", "url")

    def __init__(self, response: "aiohttp.ClientResponse", url: str) -> None:
        self._response = response
        self.status = response.status
        self.url = url
        kind = response.headers.get("Content-Type", "")
        self.content_type = kind.partition(";")[0].strip().lower() if kind else ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def streams(self) -> bool:
        return self.content_type == "text/event-stream"

    @property
    def headers(self) -> dict[str, str]:
        """All of them, names in lower case; values of one name are joined."""
        joined: dict[str, str] = {}
        for name, value in self._response.headers.items():
            name = name.lower()
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    @property
    def reason(self) -> str:
        return self._response.reason or ""

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def read(self, limit: int = MAX_MESSAGE) -> bytes:
        """The whole body, unpacked.

        Raises:
            ChannelClosed: the connection broke first.
            TransportError: it is longer than `limit`, or was not packed properly.
        """
        response = self._response
        length = response.content_length
        try:
            if length is not None and length <= limit and _is_plain(response):
                return await response.read()
            pieces: list[bytes] = []
            size = 0
            async for piece in response.content.iter_any():
                size += len(piece)
                if size > limit:
                    raise TransportError(f"The body is over the limit of {limit} bytes")
                pieces.append(piece)
            return b"".join(pieces)
        except BaseException as exc:
            response.close()
            if not isinstance(exc, Exception):
                raise
            _translate(exc, self.url)

    async def chunk(self) -> bytes:
        """What has come of the body; nothing at its end. Raises `ChannelClosed` if it breaks."""
        try:
            return await self._response.content.readany()
        except Exception as exc:
            self._response.close()
            _translate(exc, self.url)

    async def refusal(self) -> tuple[HttpError, bytes]:
        """The reply as an error, and the bytes of its body."""
        try:
            body = await self.read(MAX_ERROR_BODY)
        except TransportError:
            body = b""
        text = body.decode("utf-8", "replace").strip() or self.reason
        return HttpError(self.status, text, self.headers), body

    def close(self) -> None:
        """Have done with it; a connection with unread bytes is closed."""
        self._response.close()


def _is_plain(response: "aiohttp.ClientResponse") -> bool:
    return "Content-Encoding" not in response.headers


def _translate(exc: Exception, url: str) -> NoReturn:
    """Raise what an exception of aiohttp means to us."""
    import aiohttp

    if isinstance(exc, TransportError):
        raise exc
    host, why = _host(url), str(exc) or type(exc).__name__
    match exc:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            raise ConnectFailed(f"Could not connect to {host}: {why}") from exc
        case (
            aiohttp.ClientHttpProxyError() | aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError()
        ):
            raise ConnectFailed(f"Could not connect to {host}: {why}") from exc
        case aiohttp.ClientConnectionResetError():
            # Not all of it was written, so nobody can have read it.
            raise ChannelClosed(f"{host} closed the connection", delivered=False) from exc
        case aiohttp.ServerDisconnectedError():
            raise ChannelClosed(f"{host} closed the connection without an answer") from exc
        case aiohttp.ClientResponseError():
            raise ChannelClosed(f"{host} does not speak HTTP properly: {exc.message}") from exc
        case aiohttp.ClientError() | OSError() | asyncio.TimeoutError():
            raise ChannelClosed(f"the connection to {host} broke: {why}") from exc
        case RuntimeError() | ValueError():  # closed meanwhile; a header that may not be sent
            raise ChannelClosed(why, delivered=False) from exc
    raise exc


def _host(url: str) -> str:
    """Who it is, for people: without path and query, which may hold secrets."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "another place"
    except ValueError:
        return "another place"


def _proxy_for(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return str(proxy) if "://" in proxy else f"http://{proxy}"


@lru_cache(maxsize=32)
def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"No certificates can be read: {exc}", path=ca_file) from exc
