"""Receiver of the redirect at the end of a login in a browser (RFC 8252, section 7.3)."""

import asyncio
import contextlib
import errno
import hmac
from urllib.parse import parse_qs, urlsplit

from ...errors import AuthorizationError
from ...transport import timeouts

__all__ = ["LoopbackListener", "loopback_place"]

HEAD_TIMEOUT = 10.0  # seconds for a browser to send its request
MAX_HEAD = 32 << 10  # bytes of a request head that are read at most
MAX_CONNECTIONS = 16  # maximum number of open connections to the listener
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Fairlead</title>"
    "<body style='font-family:sans-serif;margin:3em'><h1>{title}</h1><p>{text}</p>"
)


class LoopbackListener:
    """HTTP server on loopback that accepts one redirect with the right `state`.

    Other requests, such as those for an icon or with another state, are refused, and the listener
    keeps waiting. Parameters are never echoed.
    """

    def __init__(self, path: str = "/callback", host: str = "127.0.0.1") -> None:
        """`host` is that of the redirect: `127.0.0.1`, `::1` or `localhost`."""
        self._path = path
        self._host = host
        self._state: str | None = None
        self._servers: list[asyncio.Server] = []
        self._redirect: asyncio.Future[str] | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self.redirect_uri = ""

    async def start(self, port: int = 0, *, fixed: bool = False) -> None:
        """Listen on a port. If it is taken and not `fixed`, listen on another free port.

        Raises:
            AuthorizationError: The port is invalid, or it is fixed and taken.
        """
        if not 0 <= port <= 65535:
            raise AuthorizationError(
                f"invalid `callbackPort` {port}: expected a port up to 65535", step="authorization"
            )
        self._redirect = asyncio.get_running_loop().create_future()
        try:
            chosen = await self._listen(port)
        except OSError as exc:
            if fixed or port == 0:
                raise AuthorizationError(
                    f"cannot listen on port {port} for the redirect of the login: {exc.strerror}; "
                    "set another `callbackPort` or `redirectUri`",
                    step="authorization",
                ) from exc
            chosen = await self._listen(0)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.redirect_uri = f"http://{host}:{chosen}{self._path}"

    async def _listen(self, port: int) -> int:
        literal = "127.0.0.1" if self._host == "localhost" else self._host
        first = await asyncio.start_server(self._serve, literal, port)
        self._servers.append(first)
        chosen: int = first.sockets[0].getsockname()[1]
        if self._host == "localhost":
            try:
                # A browser may connect to this address, where another program could listen.
                self._servers.append(await asyncio.start_server(self._serve, "::1", chosen))
            except OSError as exc:
                if exc.errno == errno.EADDRINUSE:
                    self._servers.remove(first)
                    first.close()
                    raise
        return chosen

    async def wait(self, state: str) -> str:
        """Return the URL of the redirect with this state."""
        assert self._redirect is not None
        self._state = state
        return await asyncio.shield(self._redirect)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        # Browsers open connections in advance and keep them open.
        for writer in list(self._open):
            writer.transport.abort()
        for server in self._servers:
            await server.wait_closed()
        if self._redirect is not None and not self._redirect.done():
            self._redirect.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            # The oldest connection is probably idle; the new connection may carry the redirect.
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with timeouts.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._respond(head))
            await writer.drain()
        # A browser may close a connection that it opened in advance.
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.pop(writer, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _respond(self, head: bytes) -> bytes:
        lines = head[:MAX_HEAD].decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines if line[:5].lower() == "host:"]
        ours = urlsplit(self.redirect_uri)
        # Another `Host` means that a web page reached this port by DNS rebinding.
        if hosts not in ([ours.netloc], [f"localhost:{ours.port}"]):
            return _response("403 Forbidden", "Not allowed", "Wrong host.")
        path, _, query = target.partition("?")
        states = parse_qs(query).get("state", [])
        if method != "GET" or path != self._path or not self._expects(states):
            return _response("404 Not Found", "Not found", "This is not the expected redirect.")
        assert self._redirect is not None
        if not self._redirect.done():
            self._redirect.set_result(f"http://{ours.netloc}{target}")
        text = "You can close this window and return to the program."
        return _response("200 OK", "Login received", text)

    def _expects(self, states: list[str]) -> bool:
        expected = self._state
        return (
            expected is not None
            and len(states) == 1
            and hmac.compare_digest(states[0].encode(), expected.encode())
        )


def loopback_place(uri: str | None) -> tuple[str, int, str] | None:
    """Return host, port and path of a redirect URI that this machine can receive, or None.

    Port 0 means that the URI has no port.
    """
    try:
        parts = urlsplit(uri or "")
        host, port = parts.hostname, parts.port or 0
    except ValueError:
        return None
    local = parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost")
    return (host, port, parts.path or "/") if local and host else None


def _response(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\r\n"
    )
    return head.encode() + body
