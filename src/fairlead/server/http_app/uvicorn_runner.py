"""HTTP serving with uvicorn: sockets, limits and shutdown."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...errors import ConfigError
from ...transport.http.server.http_settings import HttpSettings
from .request_drain import DrainPlan, drain_requests

if TYPE_CHECKING:
    from .app import HttpApp

__all__ = ["bind", "is_exposed", "serve_http", "url_of"]

LAST_WRITES = 0.1  # seconds to write the responses of requests that are cancelled at the end
KEEP_ALIVE = 5.0  # seconds after which an idle connection is closed
# uvicorn logs this error after each WebSocket that the application has refused with a response, so
# clients without a token could fill the log.
_REFUSED = "ASGI callable returned without completing handshake."

log = logging.getLogger("fairlead.server")


def bind(
    host: str, port: int, uds: str | None, settings: HttpSettings, *, insecure: bool
) -> socket.socket:
    """Return the socket to listen on.

    Raises:
        ConfigError: The address is reachable from other machines without authentication, or it
            cannot be bound.
    """
    if uds is not None:
        return _bind_unix(uds)
    if not insecure and is_exposed(host, settings):
        raise ConfigError(
            f"{host} can be reached from other machines: set auth, auth_token or verify_token, or "
            "pass insecure=True if a proxy authenticates the clients"
        )
    if not 0 <= port <= 65535:
        raise ConfigError(f"invalid port {port}: expected a number from 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        raise ConfigError(f"Cannot listen on {host}:{port}: {_why(exc)}") from exc
    # Connections inherit the option. asyncio sets it only on sockets that name their protocol;
    # without it, the second write of a response waits 40 ms for the acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_exposed(host: str, settings: HttpSettings) -> bool:
    """Return True if other machines can reach the host without authentication."""
    given = (settings.auth_token, settings.verify_token, settings.auth)
    guarded = any(one is not None for one in given)
    return not guarded and not _is_loopback(host)


def _bind_unix(path: str) -> socket.socket:
    """Bind a Unix socket that only this user may connect to. A stale socket file is replaced."""
    place = Path(path)
    if place.is_socket() and not _answers(path):
        place.unlink()
    with contextlib.suppress(OSError):  # `bind` reports the problem.
        place.parent.mkdir(mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    # The mode is set by the umask: with `chmod` after `bind`, other users could connect in between.
    old = os.umask(0o177)
    try:
        listening.bind(path)
    except OSError as exc:
        listening.close()
        raise ConfigError(f"Cannot listen on {path}: {_why(exc)}") from exc
    finally:
        os.umask(old)
    listening.listen(2048)
    return listening


def _why(exc: OSError) -> str:
    """Return the reason of an error without the suffix of asyncio, which repeats the address."""
    return (exc.strerror or str(exc)).partition(" (while attempting")[0]


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def url_of(listening: socket.socket, path: str, *, tls: bool) -> str:
    """Return the URL of the application on a socket."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"unix://{quote(name)}#{path}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{'https' if tls else 'http'}://{host}:{name[1]}{path}"


def _local_url(listening: socket.socket, *, tls: bool) -> str | None:
    """Return the base URL of a socket on a loopback address; None for other sockets."""
    name = listening.getsockname()
    if isinstance(name, str) or not _is_loopback(name[0]):
        return None
    return url_of(listening, "", tls=tls)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve_http(
    app: "HttpApp",
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    started: Callable[[], None] | None = None,
    drain: DrainPlan | None = None,
) -> None:
    """Serve until cancelled. Then running requests may finish, and streams are ended."""
    drain = drain or DrainPlan()
    try:
        app.listens_at(_local_url(listening, tls=tls is not None))
    except ConfigError:
        listening.close()
        raise
    # uvicorn is needed only by servers that use HTTP.
    import uvicorn

    from ...transport.http.server.fastpath.protocol import fast_path_protocol

    config = uvicorn.Config(
        app,
        http=fast_path_protocol(app.edges, app.settings),
        ws="websockets-sansio",
        lifespan="on",
        # Logging is configured by the program, not by uvicorn.
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=round(KEEP_ALIVE),
        ws_max_size=app.settings.max_body,
        ws_per_message_deflate=False,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_error)
    # `load` would replace the TLS context by its own, so it is called first.
    config.load()
    config.ssl = tls
    runner = _quiet_server(config, started)
    serving = asyncio.get_running_loop().create_task(runner.serve(sockets=[listening]))
    try:
        # Shielded, because cancelling uvicorn's task would skip its shutdown.
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        if not serving.done():
            loop = asyncio.get_running_loop()
            left = 0.0
            try:
                left = await drain_requests(app, runner, drain)
            finally:
                end = loop.time() + left
                runner.should_exit = True
                _stop_accepting(runner)
                try:
                    # Otherwise uvicorn would wait for the streams or cut them off.
                    await app.end_streams(left)
                finally:
                    left = max(end - loop.time(), LAST_WRITES)
                    runner.config.timeout_graceful_shutdown = left
                    runner.told_to_end.set()
            await asyncio.wait((serving,), timeout=left + 1)
            serving.cancel()
        raise
    finally:
        _hang_up(runner)
        listening.close()  # Last, because until then asyncio still watches the file descriptor.


def _is_error(record: logging.LogRecord) -> bool:
    return record.msg != _REFUSED


def _stop_accepting(runner: Any) -> None:
    """Close the listening sockets and the idle HTTP connections, as uvicorn's shutdown does.

    uvicorn would also close the WebSockets at once, on which requests may be running.
    """
    for server in getattr(runner, "servers", ()):
        server.close()
    for connection in tuple(runner.server_state.connections):
        if not isinstance(connection, runner.config.ws_protocol_class):
            connection.shutdown()


def _hang_up(runner: Any) -> None:
    """Close the connections that uvicorn left open because the end of the loop cancelled its task.

    With warnings as errors, uvloop waits forever for connections that are left open.
    """
    for server in getattr(runner, "servers", ()):
        server.close()
    for connection in tuple(runner.server_state.connections):
        connection.transport.abort()


def _quiet_server(config: Any, started: Callable[[], None] | None) -> Any:
    """Return a uvicorn server that installs no signal handlers and reports when it listens."""
    import uvicorn

    class Server(uvicorn.Server):
        told_to_end = asyncio.Event()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # `run_program` handles signals, and an embedding program has handlers of its own.
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if started is not None:
                started()

        async def main_loop(self) -> None:
            # uvicorn polls ten times a second for its end; an event avoids these wake-ups.
            if not await self.on_tick(0):  # This call creates the default headers of responses.
                await self.told_to_end.wait()

    return Server(config)
