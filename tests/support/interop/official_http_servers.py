"""Servers of the official SDK on uvicorn, each in a thread."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context


def make_server() -> MCPServer:
    server = MCPServer("official", version="1.2.3", log_level="CRITICAL")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        for step in range(1, to + 1):
            await ctx.report_progress(step, to, f"step {step}")
        return f"counted to {to}"

    @server.tool()
    async def whose_roots(ctx: Context) -> str:
        return f"{len((await ctx.session.list_roots()).roots)} roots"

    @server.tool()
    async def change(ctx: Context) -> str:
        await ctx.session.send_tool_list_changed()
        return "changed"

    return server


class _Threaded(uvicorn.Server):
    """A uvicorn server that reports when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextlib.contextmanager
def on_uvicorn(app: Any, listening: socket.socket | None = None) -> Iterator[str]:
    """Serve an ASGI application and yield its URL without a path."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="critical", timeout_graceful_shutdown=1, lifespan="on", ws="none"
    )
    server = _Threaded(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert server.ready.wait(20)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
