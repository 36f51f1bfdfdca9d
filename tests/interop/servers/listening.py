"""HTTP serving for these programs: on a local port, until stdin is closed."""

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

import uvicorn


def end_with_stdin() -> None:
    """Exit when stdin is closed, because the parent process has ended."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def serve(apps: Mapping[str, Any]) -> None:
    """Serve each application below the path segment that is its key, and the last one at other
    paths.

    The URL is printed to stdout. The port is the argument of the program, or a free one.
    """
    end_with_stdin()
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 0))
    # Clients may connect from now on: connections wait in the backlog until the server runs.
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)

    *_, last = apps.values()

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await apps.get(scope["path"].split("/")[1], last)(scope, receive, send)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            config = uvicorn.Config(route, lifespan="off", log_level="critical")
            await uvicorn.Server(config).serve(sockets=[listening])

    asyncio.run(main())
