"""Running a server as a program: event loop, signals and a bounded shutdown."""

import asyncio
import gc
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..transport.event_loop import new_loop
from .http_app.request_drain import StopSignals
from .server_config import MCPServerConfig

if TYPE_CHECKING:
    from ..auth.server.server_auth import ServerAuth

__all__ = ["RunnableServer", "freeze_memory", "run_program", "run_server"]

STOP_LIMIT = 5.0  # seconds from a signal to the end of the process


class RunnableServer(Protocol):
    """Server that can run as a program."""

    config: MCPServerConfig
    auth: "ServerAuth | None"

    async def run_stdio(self) -> None: ...

    async def run_http(self, host: str, port: int, **options: Any) -> None: ...


def run_server(server: RunnableServer) -> None:
    """Serve the configured transport until the client disconnects or SIGINT or SIGTERM arrives.

    Raises:
        ConfigError: The configured transport is neither "stdio" nor "http".
        RuntimeError: This thread runs an event loop.
    """
    config = server.config
    if _in_event_loop():
        method = "run_http(port=8080)" if config.transport == "http" else "run_stdio()"
        raise RuntimeError(
            "`server.run()` starts an event loop, but one is running: "
            f"use `await server.{method}`, or call `run()` outside of coroutines"
        )

    def print_url(url: str) -> None:
        # The same lines as those of `fairlead serve`.
        lines = [f"serving: {config.name} at {url}", *_access_lines(server, url)]
        sys.stderr.write("".join(f"{line}\n" for line in (*lines, "stop: Ctrl-C or SIGTERM")))
        sys.stderr.flush()

    if config.transport == "http":
        run_program(
            lambda: server.run_http(
                config.host, config.port, auth_token=config.auth_token, started=print_url
            )
        )
        return
    if config.transport != "stdio":
        raise ConfigError(f"invalid transport {config.transport!r}: expected 'stdio' or 'http'")
    # `sys.stdin` is None in a process without a console, such as `pythonw` on Windows.
    if sys.stdin is not None and sys.stdin.isatty():
        say = f"serving: {config.name} on stdin and stdout. Stop with Ctrl-C or Ctrl-D.\n"
        sys.stderr.write(say)
    run_program(server.run_stdio)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _access_lines(server: RunnableServer, url: str) -> list[str]:
    """Return the commands with which a client logs in and connects, if it needs credentials."""
    auth, has_token = server.auth, server.config.auth_token is not None
    if auth is None and not has_token:
        return []
    place = url if auth is None else auth.client_url(url, urlsplit(url).path)
    shown = shlex.quote(place)
    if auth is not None and auth.has_login:
        return [f"log in: fairlead login {shown}", f"connect: fairlead tools {shown}"]
    return [f"connect: fairlead tools {shown} --token TOKEN"]


def run_program(
    main: Callable[[], Coroutine[Any, Any, None]],
    *,
    stop_limit: float | None = None,
    signals: StopSignals | None = None,
) -> None:
    """Run a coroutine until it returns or a signal arrives, and then exit within `stop_limit`.

    The default is `STOP_LIMIT`. `signals` receives the signals.
    """
    limit = stop_limit or STOP_LIMIT
    _settle_memory()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_until_signal(main, limit, signals))
        # Leaving the `with` block joins the threads of the default executor, which may never end.
        _leave_in_time(limit)


def _settle_memory() -> None:
    """Tune the garbage collector and the allocator for a long-running server."""
    # Imported modules are never freed, so the collector need not scan them again.
    freeze_memory()
    # With the default threshold of 700 objects, dozens of concurrent calls trigger the collector
    # repeatedly, although the objects of running calls are not garbage.
    gc.set_threshold(10_000, 10, 10)
    # Freeing a large allocation raises the threshold above which glibc maps each buffer separately.
    bytes(16 << 20)


def freeze_memory() -> None:
    """Exclude all objects that exist now from later garbage collections."""
    gc.collect()
    gc.freeze()


async def _until_signal(
    main: Callable[[], Coroutine[Any, Any, None]],
    limit: float,
    signals: StopSignals | None = None,
) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())

    def stop(number: int) -> None:
        if signals is not None:
            signals.receive(number)
        _leave_in_time(limit)
        # A second Ctrl-C must not interrupt the cleanup that the first one started.
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop, number)
        except (NotImplementedError, RuntimeError):
            pass  # Windows, or not the main thread: KeyboardInterrupt stops the program instead
    try:
        await task
    except asyncio.CancelledError:
        # A cancellation of this task itself comes from the caller and must propagate.
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise


def _leave_in_time(limit: float) -> None:
    """Start a daemon thread that ends the process after `limit` seconds.

    A function that is stuck in an executor's thread would otherwise be joined without a limit.
    """
    if not _leaving.is_set():
        _leaving.set()
        threading.Thread(
            target=_leave_hard, args=(limit,), name="fairlead-leave", daemon=True
        ).start()


_leaving = threading.Event()


def _leave_hard(limit: float) -> None:
    # Half a second of the limit is reserved for the exit itself.
    threading.Event().wait(limit - 0.5)
    sys.stderr.write(
        "fairlead: shutdown timed out; exiting without waiting for running functions\n"
    )
    sys.stderr.flush()
    # `sys.exit` would join the threads that are stuck.
    os._exit(1)
