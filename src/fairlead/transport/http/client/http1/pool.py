"""Pool of persistent HTTP/1.1 connections to one server."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Mapping
from itertools import chain, zip_longest
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from .....errors import ChannelClosed, ConnectFailed, FairleadError
from .... import timeouts
from ....local_resources import connect_error
from .header_fields import CredentialFields, format_fields, merge_headers
from .http1_connection import Http1Connection
from .proxy_tunnel import Proxy, refusal
from .response import HttpResponse
from .url import EndpointUrl, ascii_host, same_origin

__all__ = ["ConnectionPool", "connect_host", "connect_unix_socket"]

STAGGER = 0.25  # seconds before the next address is tried in parallel

_Found: TypeAlias = tuple[Any, Any, int, str, Any]


async def connect_host(
    host: str, port: int, check_address: Callable[[str], None] | None = None
) -> socket.socket:
    """Return a socket connected to the address that accepts first.

    Addresses for which `check_address` raises a `FairleadError` are not connected to; if there are
    no others, the first of these errors is raised.

    Raises:
        OSError: The host has no address, or none of them accepts.
    """
    loop = asyncio.get_running_loop()
    found: list[_Found] = list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if not found:
        raise OSError(f"{host} has no address")
    if check_address is not None:
        found = _permitted(found, check_address)
    return await (_connect(found[0]) if len(found) == 1 else _race(_mixed(found)))


def _permitted(found: list[_Found], check_address: Callable[[str], None]) -> list[_Found]:
    permitted: list[_Found] = []
    refusals: list[FairleadError] = []
    for address in found:
        try:
            check_address(address[4][0])
            permitted.append(address)
        except FairleadError as exc:
            refusals.append(exc)
    if not permitted:
        raise refusals[0]
    return permitted


async def connect_unix_socket(path: str) -> socket.socket:
    """Return a socket connected to a unix socket.

    Raises:
        OSError: The connection failed.
    """
    return await _connect((socket.AF_UNIX, socket.SOCK_STREAM, 0, "", path))


async def _connect(address: _Found) -> socket.socket:
    family, kind, proto, _, where = address
    made = socket.socket(family, kind, proto)
    try:
        made.setblocking(False)
        if family != socket.AF_UNIX:
            # An event stream may be silent for long; keep-alive probes detect a peer that is gone.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # Nagle's algorithm would delay a small request until the last segment is acknowledged.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, where)
    # Cancellation must close the socket as well: the caller has no reference to it yet.
    except BaseException as exc:
        made.close()
        missing = isinstance(exc, OSError) and exc.errno == errno.EADDRNOTAVAIL
        if missing and family == socket.AF_INET6:
            # Without IPv6 the error is EADDRNOTAVAIL, which would be reported as a lack of ports.
            raise OSError(errno.EHOSTUNREACH, "IPv6 is not available on this machine") from exc
        raise
    return made


async def _race(addresses: list[_Found]) -> socket.socket:
    loop = asyncio.get_running_loop()
    # Reversed, so that `pop()` returns the preferred address first.
    left = addresses[::-1]
    running: set[asyncio.Task[socket.socket]] = set()
    problems: list[BaseException] = []
    try:
        while left or running:
            if left:
                running.add(loop.create_task(_connect(left.pop())))
            done, _ = await asyncio.wait(
                running, timeout=STAGGER if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                running.discard(task)
                problem = task.exception()
                if problem is None:
                    return task.result()
                problems.append(problem)
    finally:
        # Not awaited: a slow address must not delay the connection that won.
        for task in running:
            task.cancel()
            task.add_done_callback(_discard)
    raise problems[0]


def _discard(task: "asyncio.Task[socket.socket]") -> None:
    """Close the socket of an attempt that connected after another attempt had won."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _mixed(found: list[_Found]) -> list[_Found]:
    """Alternate address families, starting with the one the system prefers."""
    first = [address for address in found if address[0] == found[0][0]]
    rest = [address for address in found if address[0] != found[0][0]]
    pairs = chain.from_iterable(zip_longest(first, rest))
    return [address for address in pairs if address is not None]


# uvicorn and Node close connections that were idle for 5 s. If a POST fails because its connection
# is being closed, the client cannot determine whether the POST arrived.
KEEP_ALIVE = 4.0  # seconds for which an idle connection is kept
TURNS = 10  # loop iterations to wait until unread data on a kept connection is processed
# Idempotent methods, which are sent again if the server closes a kept connection
# instead of responding. A POST may already have been executed.
REPEATABLE = frozenset(("GET", "DELETE"))

_FRAMING = frozenset(
    ("connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade")
)
_USUAL = {"accept-encoding": "identity", "user-agent": "fairlead"}
_SPECIAL = _FRAMING | _USUAL.keys() | {"host"}
_PRINTABLE = "".join(map(chr, range(33, 127)))


class ConnectionPool:
    """HTTP/1.1 connections to one origin, one connection for each concurrent request."""

    def __init__(
        self,
        address: EndpointUrl,
        tls: ssl.SSLContext | None,
        connect_timeout: float,
        proxy: Proxy | None = None,
        check_address: Callable[[str], None] | None = None,
    ) -> None:
        """Connections use TLS if `tls` is given; `check_address` may refuse an address.

        Raises:
            ConnectFailed: The URL has an invalid host name or port.
        """
        parts = urlsplit(address.url)
        self._address = address
        self._tls = tls
        self._proxy = proxy
        # With TLS the proxy opens a tunnel instead of forwarding requests.
        self._forwarder = proxy if tls is None else None
        self._connect_timeout = connect_timeout
        self._check_address = check_address
        try:
            self._name = ascii_host(parts.hostname or "")
            self._port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as exc:
            raise ConnectFailed(f"Invalid server URL: {exc}") from exc
        self._host = _host_field(self._name, parts.port, parts.scheme)
        self._credentials = CredentialFields(_SPECIAL)
        self._starts: dict[tuple[str, str], str] = {}
        self._kept: list[Http1Connection] = []  # the most recently used one is last
        self._lines: set[Http1Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def connected(self) -> bool:
        """True if at least one connection is open."""
        return bool(self._lines)

    async def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        credentials: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request and return its response once the head is received.

        `credentials` are further headers, which replace those of the same name.

        Raises:
            ConnectFailed: No connection could be opened.
            ChannelClosed: The connection broke; `delivered` is False if the request cannot have
                arrived.
        """
        head = self._head(method, url, headers, body, credentials)
        line = self._take()
        while line is not None and not line.quiet:
            await self._settled(line)
            if line.usable:
                break
            line = self._take()
        reply: HttpResponse | None = None
        if line is not None:
            try:
                reply = await line.ask(url, head, body)
            except ChannelClosed:
                if method not in REPEATABLE or line.heard or self._closed:
                    raise
        if reply is None:
            line = await self._open()
            reply = await line.ask(url, head, body)
        if reply.status == 407 and self._forwarder is not None:
            reply.close()
            # The proxy refused the request before it reached the server.
            raise self._unreachable(refusal(407))
        return reply

    async def close(self) -> None:
        """Close all connections, including those in use."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._kept.clear()
        lines = list(self._lines)
        for line in lines:
            line.drop()
        if lines:
            await asyncio.sleep(0)  # `connection_lost` runs in the next iteration of the loop

    # Connections

    def _take(self) -> Http1Connection | None:
        """Return the most recently used connection that is still open and young enough."""
        while self._kept:
            line = self._kept.pop()
            if line.usable:
                if monotonic() - line.idle_since < KEEP_ALIVE:
                    return line
                line.drop()
        return None

    async def _settled(self, line: Http1Connection) -> None:
        """Let the loop process unread data on a kept connection: an end of file or a TLS message.

        Until then the connection looks usable, and a POST written to it would be lost.
        """
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if not line.usable or line.quiet:
                return
        line.drop()

    async def _open(self) -> Http1Connection:
        self._check_open()
        try:
            async with timeouts.timeout(self._connect_timeout or None):
                line = await self._connect()
        except TimeoutError as exc:
            why = f"no connection within {self._connect_timeout:g} s"
            raise self._unreachable(why, exc) from exc
        except (OSError, RuntimeError, ssl.CertificateError, UnicodeError) as exc:
            raise self._unreachable(str(exc) or type(exc).__name__, exc) from exc
        if line.usable:  # A connection that is already lost is not registered; `ask` raises for it.
            self._lines.add(line)
        # The pool may have been closed while the connection was being opened.
        if self._closed:
            line.drop()
        self._check_open()
        return line

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosed(delivered=False)

    def _unreachable(self, why: str, cause: Exception | None = None) -> ConnectFailed:
        through = "" if self._proxy is None else f" through the proxy {self._proxy.name}"
        return connect_error(f"Could not connect to {self._host}{through}: {why}", cause)

    async def _connect(self) -> Http1Connection:
        path, proxy = self._address.socket, self._proxy
        if path is not None:
            made = await connect_unix_socket(path)
        elif proxy is not None:
            made = await connect_host(proxy.host, proxy.port)
        else:
            made = await connect_host(self._name, self._port, self._check_address)
        try:
            if self._check_address is not None:
                self._check_address(made.getpeername()[0])
            if proxy is not None and self._tls is not None:
                line = await self._through_tunnel(made, proxy, self._tls)
            else:
                line = await self._straight(made)
        except BaseException:
            made.close()
            raise
        line.socket = made
        return line

    async def _straight(self, made: socket.socket) -> Http1Connection:
        """Open an HTTP connection over a socket to the server or to a forwarding proxy."""
        tls, name = self._tls, self._name
        if self._forwarder is not None:
            tls, name = self._forwarder.tls, self._forwarder.host
        options: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": name}
        connect: Any = self._loop.create_connection
        if self._address.socket is not None:
            connect = self._loop.create_unix_connection
        line: Http1Connection = (await connect(self._line, sock=made, **options))[1]
        return line

    async def _through_tunnel(
        self, made: socket.socket, proxy: Proxy, tls: ssl.SSLContext
    ) -> Http1Connection:
        host = f"[{self._name}]" if ":" in self._name else self._name
        tunnel = await proxy.open_tunnel(made, f"{host}:{self._port}")
        line = self._line()
        try:
            secured = await self._loop.start_tls(tunnel, line, tls, server_hostname=self._name)
        except BaseException:
            tunnel.abort()
            raise
        if secured is None:
            raise ConnectionResetError("the proxy closed the connection")
        line.connection_made(secured)  # `start_tls` does not call `connection_made`
        return line

    def _line(self) -> Http1Connection:
        return Http1Connection(self._host, self._idle, self._lost)

    def _idle(self, line: Http1Connection) -> None:
        if self._closed:
            line.drop()
            return
        # Not loop.time(): uvloop updates its clock once per iteration, which may take long.
        line.idle_since = monotonic()
        self._kept.append(line)
        if self._timer is None:
            self._timer = self._loop.call_later(KEEP_ALIVE, self._tidy)

    def _lost(self, line: Http1Connection) -> None:
        self._lines.discard(line)
        if line in self._kept:
            self._kept.remove(line)

    def _tidy(self) -> None:
        """Close the connections that were idle for too long; they are first in the list."""
        self._timer = None
        before = monotonic() - KEEP_ALIVE
        old = [line for line in self._kept if line.idle_since <= before]
        del self._kept[: len(old)]
        for line in old:
            line.drop()
        if self._kept:
            left = self._kept[0].idle_since - before
            self._timer = self._loop.call_later(left, self._tidy)

    # Requests

    def _head(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        credentials: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the head of a request.

        Raises:
            ChannelClosed: A header name or value is invalid.
        """
        # Cached, because most requests of a client have the same method and URL.
        start = self._starts.get((method, url)) or self._start(method, url)
        names = {name.lower() for name in headers}
        more: str | None = ""
        if credentials:
            more = self._credentials.beside(credentials, names)
            if more is None:
                headers, more = merge_headers(headers, credentials), ""
                names = {name.lower() for name in headers}
        if names.isdisjoint(_SPECIAL):
            usual = f"Host: {self._host}\r\nAccept-Encoding: identity\r\nUser-Agent: fairlead\r\n"
            fields = usual + format_fields(headers)
        # Only the pool sets framing headers; configured headers replace the other defaults.
        else:
            defaults = {"host": self._host, **_USUAL}
            theirs = {n: v for n, v in headers.items() if n.lower() not in _FRAMING}
            ours = {n: v for n, v in defaults.items() if n not in names}
            fields = format_fields(ours | theirs)
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        try:
            return f"{start}{fields}{more}{length}\r\n".encode()
        except UnicodeEncodeError as exc:
            raise ChannelClosed(
                "a request header has an invalid name or value", delivered=False
            ) from exc

    def _start(self, method: str, url: str) -> str:
        if not same_origin(url, self._address.url):
            raise ConnectFailed(f"Cannot send a request for another origin to {self._host}")
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target, credentials = quote(path, safe=_PRINTABLE), ""
        # A forwarding proxy needs the absolute form (RFC 9112, section 3.2.2).
        if self._forwarder is not None:
            target, credentials = f"http://{self._host}{target}", self._forwarder.credentials
        start = f"{method} {target} HTTP/1.1\r\n{credentials}"
        if len(self._starts) < 100:
            self._starts[method, url] = start
        return start


def _host_field(host: str, port: int | None, scheme: str) -> str:
    name = f"[{host}]" if ":" in host else host
    usual = 443 if scheme == "https" else 80
    return name if port in (None, usual) else f"{name}:{port}"
