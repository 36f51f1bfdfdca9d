"""Running a server as a program: event loop, signals, and an end that comes within seconds."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ..errors import ConfigError
from ..transport.event_loop import new_loop
from .server_config import MCPServerConfig

__all__ = ["RunnableServer", "freeze_memory", "print_url", "run_program", "run_server"]

STOP_LIMIT = 5.0  # seconds from a signal to the end of the process


class RunnableServer(Protocol):
    """A server that runs as a program of its own."""

    config: MCPServerConfig

    @property
    def name(self) -> str: ...

    async def run_stdio(self) -> None: ...

    async def run_http(
        self,
        host: str,
        port: int,
        *,
        started: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None: ...


def run_server(server: RunnableServer) -> None:
    """Serve until the peer ends it, or SIGINT or SIGTERM do."""
    config = server.config
    if config.transport == "http":
        run_program(
            lambda: server.run_http(
                config.host, config.port, auth_token=config.auth_token, started=print_url(server)
            )
        )
        return
    if config.transport != "stdio":
        raise ConfigError(f"There is no transport {config.transport!r}; there are stdio and http")
    if sys.stdin is not None and sys.stdin.isatty():
        say = f"{server.name}: serving MCP on stdin and stdout. Ctrl-C or Ctrl-D ends it.\n"
        sys.stderr.write(say)
    run_program(server.run_stdio)


def print_url(server: RunnableServer) -> Callable[[str], None]:
    """Tells the person at the terminal where the server is, once it is there."""

    def say(url: str) -> None:
        sys.stderr.write(f"{server.name}: serving MCP at {url} . Ctrl-C ends it.\n")
        sys.stderr.flush()

    return say


def run_program(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine until it ends or a signal comes; nothing may hold the process after that."""
    _settle_memory()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_until_signal(main))
        _leave_in_time()


def _settle_memory() -> None:
    """Three cheap things that long-running servers gain from.

    What was imported stays for ever, so the collector need not look at it again. What is under way
    at the moment is no garbage: with the usual 700 objects, dozens of calls at once have it look at
    little else. And one big allocation raises the size from which glibc maps and unmaps every
    buffer anew.
    """
    freeze_memory()
    gc.set_threshold(10_000, 10, 10)
    bytes(16 << 20)


def freeze_memory() -> None:
    """Keep the garbage collector from looking again at what is there by now."""
    gc.collect()
    gc.freeze()


async def _until_signal(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())

    def stop() -> None:
        _leave_in_time()
        if not task.cancelling():  # a second Ctrl-C is no reason to break off the tidying up
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError):
            pass  # Windows, or not the main thread: KeyboardInterrupt does it
    try:
        await task
    except asyncio.CancelledError:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise


def _leave_in_time() -> None:
    """A function stuck in an executor's thread would be joined for ever at the end."""
    if not _leaving.is_set():
        _leaving.set()
        threading.Thread(target=_leave_hard, name="fairlead-leave", daemon=True).start()


_leaving = threading.Event()


def _leave_hard() -> None:
    threading.Event().wait(STOP_LIMIT - 0.5)
    sys.stderr.write("fairlead: something did not end in time; leaving without it\n")
    sys.stderr.flush()
    os._exit(1)
