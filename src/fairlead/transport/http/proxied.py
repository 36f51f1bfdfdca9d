"""The way through a proxy: aiohttp knows tunnels, their credentials and TLS inside of TLS.

aiohttp is loaded here, by the first request that needs it. Its exceptions do not come out.
"""

import asyncio
import io
import ssl
from collections.abc import Mapping
from typing import NoReturn

import aiohttp
from yarl import URL

from ...errors import ChannelClosed, ConnectFailed, TransportError
from ...wire import MAX_MESSAGE
from .address import host_of
from .reply import Reply, media_type

__all__ = ["Proxied"]

KEEP_ALIVE = 4.0  # seconds, as for connections of our own
LARGE = 1 << 20  # bytes of a body that would hold the loop if they were written at once


class Proxied:
    """Requests to one server that aiohttp makes."""

    def __init__(
        self, tls: ssl.SSLContext | None, connect_timeout: float, proxy: str | None
    ) -> None:
        self._proxy = proxy
        self._urls: dict[str, URL] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                limit_per_host=0,
                keepalive_timeout=KEEP_ALIVE,
                ssl=True if tls is None else tls,
            ),
            # No limit for the whole: streams last. Requests have clocks of their own, above.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            # Looking for proxies would cost two thread hops per request; we looked once.
            trust_env=False,
            max_field_size=64 << 10,
        )

    @property
    def connected(self) -> bool:
        """Whether there may be any connection; aiohttp does not tell."""
        return True

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> "ProxiedReply":
        """Send a request and wait for the head of its answer. Raises as `Pool.ask` does."""
        target = self._urls.get(url) or self._prepared(url)
        try:
            response = await self._session.request(
                method,
                target,
                data=body if body is None or len(body) < LARGE else io.BytesIO(body),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except Exception as exc:
            _translate(exc, url)
        return ProxiedReply(response, url)

    async def close(self) -> None:
        """Close all connections, those in use as well."""
        await self._session.close()

    def _prepared(self, url: str) -> URL:
        try:
            target = URL(url, encoded=True)  # else paths would be rewritten
        except ValueError as exc:
            raise ConnectFailed(f"Not a URL: {exc}") from exc
        if len(self._urls) < 100:
            self._urls[url] = target
        return target


class ProxiedReply(Reply):
    """A response of aiohttp."""

    __slots__ = ("_response",)

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        self._response = response
        self.status = response.status
        self.reason = response.reason or ""
        self.url = url
        self.content_type = media_type(response.headers.get("Content-Type", ""))

    @property
    def headers(self) -> dict[str, str]:
        joined: dict[str, str] = {}
        for name, value in self._response.headers.items():
            name = name.lower()
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def read(self, limit: int = MAX_MESSAGE) -> bytes:
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
                    raise TransportError(
                        f"The body is over the limit of {limit} bytes",
                        public=f"sent more than {limit} bytes",
                    )
                pieces.append(piece)
            return b"".join(pieces)
        except BaseException as exc:
            response.close()
            if not isinstance(exc, Exception):
                raise
            _translate(exc, self.url)

    async def chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except Exception as exc:
            self._response.close()
            _translate(exc, self.url)

    def close(self) -> None:
        self._response.close()


def _is_plain(response: aiohttp.ClientResponse) -> bool:
    return "Content-Encoding" not in response.headers


def _translate(exc: Exception, url: str) -> NoReturn:
    """Raise what an exception of aiohttp means to us."""
    if isinstance(exc, TransportError):
        raise exc
    host, why = host_of(url), str(exc) or type(exc).__name__
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
