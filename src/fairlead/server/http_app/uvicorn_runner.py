"""Serving HTTP on uvicorn: sockets that are ours, limits it does not have, an end that comes."""

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

if TYPE_CHECKING:
    from .app import HttpApp

__all__ = ["bind", "is_exposed", "run_app", "serve_http", "url_of"]

GRACE = 3.0  # seconds that work in progress may take when the server ends
KEEP_ALIVE = 5.0

log = logging.getLogger("fairlead.server")


def bind(
    host: str, port: int, uds: str | None, settings: HttpSettings, *, insecure: bool
) -> socket.socket:
    """The socket to listen on.

    Raises:
        ConfigError: strangers could reach it, and nothing keeps them out; or it is taken.
    """
    if uds is not None:
        return _bind_unix(uds)
    if not insecure and is_exposed(host, settings):
        raise ConfigError(
            f"{host} can be reached from other machines: set auth_token (or verify_token), or say "
            "insecure=True if something in front checks who may come in"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        raise ConfigError(f"Cannot listen on {host}:{port}: {_why(exc)}") from exc
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and without
    # it the second write of an answer waits 40 ms for the client to confirm the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_exposed(host: str, settings: HttpSettings) -> bool:
    """Whether strangers could reach it, and nothing keeps them out."""
    guarded = settings.auth_token is not None or settings.verify_token is not None
    return not guarded and not _is_loopback(host)


def _bind_unix(path: str) -> socket.socket:
    """Only this user may connect. A socket that nobody listens on any more is replaced."""
    place = Path(path)
    if place.is_socket() and not _answers(path):
        place.unlink()
    with contextlib.suppress(OSError):  # binding says what is wrong
        place.parent.mkdir(mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
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
    """Without what the library adds, which repeats the address."""
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
    """Where clients find what is served on a socket."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"unix://{quote(name)}#{path}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{'https' if tls else 'http'}://{host}:{name[1]}{path}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def run_app(
    app: "HttpApp",
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    uds: str | None = None,
    tls: ssl.SSLContext | None = None,
    insecure: bool = False,
    started: Callable[[str], None] | None = None,
) -> None:
    """Listen and serve until cancelled; `started` is told the URL.

    Raises:
        ConfigError: it cannot listen there, or should not.
    """
    listening = bind(host, port, uds, app.settings, insecure=insecure)
    url = url_of(listening, app.settings.path, tls=tls is not None)
    say = None if started is None else lambda: started(url)
    await serve_http(app, listening, tls=tls, started=say)


async def serve_http(
    app: "HttpApp",
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until cancelled; streams are ended first, then what is under way gets a moment."""
    import uvicorn

    from ...transport.http.server.fastpath.protocol import fast_path_protocol

    config = uvicorn.Config(
        app,
        http=fast_path_protocol(app.edges, app.settings),
        ws="websockets-sansio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=round(KEEP_ALIVE),
        timeout_graceful_shutdown=round(GRACE),
        ws_max_size=app.settings.max_body,
        ws_per_message_deflate=False,
    )
    config.load()
    config.ssl = tls
    runner = _quiet_server(config, started)
    serving = asyncio.get_running_loop().create_task(runner.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        if not serving.done():
            runner.should_exit = True
            try:
                await app.end_streams()  # or uvicorn would wait for them, or cut them off
            finally:
                runner.told_to_end.set()
            await asyncio.wait((serving,), timeout=GRACE + 1)
            serving.cancel()
        raise
    finally:
        _hang_up(runner)
        listening.close()  # not before: asyncio would still wait for its number


def _hang_up(runner: Any) -> None:
    """Leave no connection, where uvicorn did not get to it: a loop that ends cancels every task.

    uvloop waits for ever for what is left open then, if warnings are errors.
    """
    for server in getattr(runner, "servers", ()):
        server.close()
    for connection in tuple(runner.server_state.connections):
        connection.transport.abort()


def _quiet_server(config: Any, started: Callable[[], None] | None) -> Any:
    """uvicorn's server, which leaves signals to us and says when it listens."""
    import uvicorn

    class Server(uvicorn.Server):
        told_to_end = asyncio.Event()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if started is not None:
                started()

        async def main_loop(self) -> None:
            # uvicorn looks ten times a second whether it should end; we are told, and sleep.
            if not await self.on_tick(0):  # which makes the headers that every answer has
                await self.told_to_end.wait()

    return Server(config)
