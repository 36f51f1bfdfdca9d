"""Connections of our own to one server: opened, kept for a while, used again."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

from ...errors import ChannelClosed, ConnectFailed
from .address import Address, same_origin
from .dial import dial, dial_unix
from .line import Answer, Line

__all__ = ["Pool"]

# uvicorn and Node close connections that were idle for 5 s. A POST on one that is just being
# closed fails, and nobody can say whether it arrived.
KEEP_ALIVE = 4.0  # seconds
TURNS = 10  # of the loop, for something unexpected on a kept connection to be understood
# What may be sent a second time when a kept connection is closed instead of answering: these mean
# the same when they arrive twice. A POST never is, it may have arrived.
REPEATABLE = frozenset(("GET", "DELETE"))

_FRAMING = frozenset(
    ("connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade")
)
_USUAL = {"accept-encoding": "identity", "user-agent": "fairlead"}
_SPECIAL = _FRAMING | _USUAL.keys() | {"host"}
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRINTABLE = "".join(map(chr, range(33, 127)))


class Pool:
    """HTTP/1.1 to the origin of one address, as many connections as there are requests."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, connect_timeout: float
    ) -> None:
        """Raises `ConnectFailed` if the URL names no host that could be asked."""
        parts = urlsplit(address.url)
        self._address = address
        self._tls = tls
        self._connect_timeout = connect_timeout
        try:
            self._name = _ascii(parts.hostname or "")
            self._port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as exc:
            raise ConnectFailed(f"Not a URL: {exc}") from exc
        self._host = _host_field(self._name, parts.port, parts.scheme)
        self._starts: dict[tuple[str, str], str] = {}
        self._kept: list[Line] = []  # the one used last at the end
        self._lines: set[Line] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def connected(self) -> bool:
        """Whether there is any connection."""
        return bool(self._lines)

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """Send a request and wait for the head of its answer.

        Raises:
            ConnectFailed: no connection came about.
            ChannelClosed: it broke; `delivered` says whether the request may have arrived.
        """
        head = self._head(method, url, headers, body)
        line = self._take()
        while line is not None and not line.quiet:
            await self._settled(line)
            if line.usable:
                break
            line = self._take()
        if line is not None:
            try:
                return await line.ask(url, head, body)
            except ChannelClosed:
                if method not in REPEATABLE or line.heard or self._closed:
                    raise
        line = await self._open()
        return await line.ask(url, head, body)

    async def close(self) -> None:
        """Close all connections, those in use as well."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._kept.clear()
        lines = list(self._lines)
        for line in lines:
            line.drop()
        if lines:
            await asyncio.sleep(0)  # they are told in the next turn

    # Connections

    def _take(self) -> Line | None:
        """The connection that was used last, if it is young enough and still there."""
        while self._kept:
            line = self._kept.pop()
            if line.usable:
                if monotonic() - line.idle_since < KEEP_ALIVE:
                    return line
                line.drop()
        return None

    async def _settled(self, line: Line) -> None:
        """Something waits in the socket: the end, most likely, or a message of TLS.

        The loop has not come to it yet, and a POST that is written now would be lost.
        """
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if not line.usable or line.quiet:
                return
        line.drop()

    async def _open(self) -> Line:
        self._check_open()
        try:
            async with asyncio.timeout(self._connect_timeout or None):
                line = await self._connect()
        except TimeoutError as exc:
            why = f"no connection within {self._connect_timeout:g} s"
            raise ConnectFailed(f"Could not connect to {self._host}: {why}") from exc
        except (OSError, ssl.CertificateError, UnicodeError) as exc:
            why = str(exc) or type(exc).__name__
            raise ConnectFailed(f"Could not connect to {self._host}: {why}") from exc
        if line.usable:  # else it has been lost already, and will say so
            self._lines.add(line)
        if self._closed:
            line.drop()
        self._check_open()
        return line

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosed(delivered=False)

    async def _connect(self) -> Line:
        path = self._address.socket
        made = await (dial(self._name, self._port) if path is None else dial_unix(path))
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {"ssl": self._tls, "server_hostname": self._name}
        connect: Any = self._loop.create_connection
        if path is not None:
            connect = self._loop.create_unix_connection
        try:
            line: Line = (await connect(self._line, sock=made, **options))[1]
        except BaseException:
            made.close()
            raise
        line.socket = made
        return line

    def _line(self) -> Line:
        return Line(self._host, self._idle, self._lost)

    def _idle(self, line: Line) -> None:
        if self._closed:
            line.drop()
            return
        line.idle_since = monotonic()  # the loop's own clock stands still while it is busy
        self._kept.append(line)
        if self._timer is None:
            self._timer = self._loop.call_later(KEEP_ALIVE, self._tidy)

    def _lost(self, line: Line) -> None:
        self._lines.discard(line)
        if line in self._kept:
            self._kept.remove(line)

    def _tidy(self) -> None:
        """Close what was idle for too long; the oldest stand in front."""
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

    def _head(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """The head of a request. Raises `ChannelClosed` if it cannot be sent as it is."""
        start = self._starts.get((method, url)) or self._start(method, url)
        names = {name.lower() for name in headers}
        if names.isdisjoint(_SPECIAL):
            fields = f"Host: {self._host}\r\nAccept-Encoding: identity\r\nUser-Agent: fairlead\r\n"
            fields += "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            expected = len(headers) + 3
        else:  # framing is ours, the rest theirs
            usual = {"host": self._host, **_USUAL}
            theirs = {n: v for n, v in headers.items() if n.lower() not in _FRAMING}
            ours = {n: v for n, v in usual.items() if n not in names}
            fields = "".join([f"{name}: {value}\r\n" for name, value in (ours | theirs).items()])
            expected = len(ours) + len(theirs)
        lines = fields.count("\r\n")
        one_each = lines == fields.count("\r") == fields.count("\n") == expected
        if not one_each or "\0" in fields or not all(map(_is_name, headers)):
            raise ChannelClosed("a header that may not be sent", delivered=False)
        if body is not None:
            fields += f"Content-Length: {len(body)}\r\n"
        try:
            return f"{start}{fields}\r\n".encode()
        except UnicodeEncodeError as exc:
            raise ChannelClosed("a header that may not be sent", delivered=False) from exc

    def _start(self, method: str, url: str) -> str:
        if not same_origin(url, self._address.url):
            raise ConnectFailed(f"Connections to {self._host} lead nowhere else")
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        start = f"{method} {quote(target, safe=_PRINTABLE)} HTTP/1.1\r\n"
        if len(self._starts) < 100:
            self._starts[method, url] = start
        return start


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _ascii(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _host_field(host: str, port: int | None, scheme: str) -> str:
    name = f"[{host}]" if ":" in host else host
    usual = 443 if scheme == "https" else 80
    return name if port in (None, usual) else f"{name}:{port}"
