"""HTTP proxies set in the environment, and tunnels through them (RFC 9110, section 9.3.6)."""

import asyncio
import re
import ssl
from collections.abc import Callable
from http import HTTPStatus
from socket import socket
from typing import Any
from urllib.parse import urlsplit

from .....errors import ConnectFailed
from .url import basic_authorization, host_of

__all__ = ["Proxy", "proxy_url", "refusal"]

MAX_HEAD = 64 << 10  # bytes of a proxy's response to CONNECT

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r)")


class Proxy:
    """A proxy that forwards requests and opens tunnels."""

    def __init__(self, url: str, tls: Callable[[], ssl.SSLContext]) -> None:
        """Parse the URL of a proxy; `tls` creates the context for an `https://` proxy.

        Raises:
            ConnectFailed: The URL is not a valid HTTP or HTTPS proxy URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            expected = "expected http://HOST:PORT or https://HOST:PORT"
            raise ConnectFailed(f"Invalid proxy {parts.scheme}://{host_of(url)}: {expected}")
        self.name = host_of(url)  # host for error messages, without credentials
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.tls = tls() if parts.scheme == "https" else None
        authorization = basic_authorization(parts.username, parts.password)
        # A complete header field or an empty string, so that it can be inserted into a head.
        self.credentials = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""

    async def open_tunnel(self, connected: socket, authority: str) -> asyncio.Transport:
        """Open a tunnel to `authority` (`HOST:PORT`) over a socket connected to the proxy.

        Raises:
            OSError: The proxy refused, closed the connection or violated the protocol.
        """
        loop = asyncio.get_running_loop()
        name = None if self.tls is None else self.host
        transport, response = await loop.create_connection(
            _ConnectResponse, sock=connected, ssl=self.tls, server_hostname=name
        )
        try:
            head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{self.credentials}\r\n"
            transport.write(head.encode())
            status = await response.status
            if not 200 <= status < 300:
                raise OSError(refusal(status))
        except BaseException:
            transport.abort()
            raise
        return transport


class _ConnectResponse(asyncio.Protocol):
    """Head of a proxy's response to CONNECT; the tunnel begins after it."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end and len(head) <= MAX_HEAD:
            return
        status = _STATUS.match(head + b"\r")
        if not end or status is None:
            self._fail("the proxy does not speak HTTP/1.1")
        elif rest and status[1].startswith(b"2"):
            # In TLS the client sends first, so these bytes cannot be from the server.
            self._fail("the proxy sent data before the tunnel was used")
        elif not self.status.done():
            self.status.set_result(int(status[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the proxy closed the connection")

    def _fail(self, why: str) -> None:
        if not self.status.done():
            self.status.set_exception(OSError(why))


def refusal(status: int) -> str:
    """Describe the status with which a proxy refused to forward a request or to open a tunnel."""
    try:
        return f"the proxy answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the proxy answered {status}"


def proxy_url(url: str) -> str | None:
    """Return the proxy that the environment sets for a URL (`HTTPS_PROXY`, `NO_PROXY`, ...)."""
    # Imported on first use: `urllib.request` is slow to import.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return str(proxy) if "://" in proxy else f"http://{proxy}"
