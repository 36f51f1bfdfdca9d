"""A server of both eras, made with `MCPServer`, that logs every message it receives.

Run as `python observed_two_era_server.py LOG NAME`; `observed_servers.py` reads the log.
"""

import json
import os
import sys
import threading
import time
from typing import Any

from fairlead import Context, MCPServer


class Recorder:
    """A thread that copies stdin to a pipe and to the log."""

    def __init__(self, log: str, name: str) -> None:
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._name = name
        self.record("start")
        self._source = os.fdopen(os.dup(0), "rb")
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        self._sink = os.fdopen(writing, "wb", buffering=0)
        threading.Thread(target=self._copy, daemon=True).start()

    def record(self, event: str, message: Any = None) -> None:
        line = {"at": time.monotonic(), "server": self._name, "pid": os.getpid(), "event": event}
        os.write(self._log, json.dumps({**line, "message": message}).encode() + b"\n")

    def _copy(self) -> None:
        for line in self._source:
            self.record("received", json.loads(line))
            self._sink.write(line)
        self.record("end", 0)
        self._sink.close()


def build(name: str) -> MCPServer:
    server = MCPServer(name, rate_limit_rate=0)

    @server.tool()
    async def pid() -> str:
        """Return the id of the process."""
        return str(os.getpid())

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        answer = await ctx.elicit(f"{name} asks", str)
        return f"{answer.action} {answer.data}"

    @server.tool()
    async def sample(ctx: Context) -> str:
        """Ask the client's model."""
        result = await ctx.sample("what?")
        return str(result["content"]["text"])

    @server.tool()
    async def folders(ctx: Context) -> str:
        """Ask for the client's roots."""
        return " ".join(root["uri"] for root in await ctx.roots())

    @server.tool()
    async def speak(ctx: Context, text: str) -> str:
        """Log a message."""
        await ctx.info(text)
        return str(os.getpid())

    @server.tool()
    async def revision(ctx: Context) -> str:
        """Return the protocol revision of the request."""
        return ctx.protocol_version

    @server.tool()
    async def grow(tool: str) -> str:
        """Register another tool."""
        server.tool(name=tool)(lambda: tool)
        return str(os.getpid())

    @server.tool()
    async def touch(uri: str) -> str:
        """Announce that a resource has changed."""
        server.resource_updated(uri)
        return str(os.getpid())

    @server.resource(f"note://{name}")
    async def note() -> str:
        return f"text of {name}"

    @server.resource(f"page://{name}/{{n}}")
    async def page(n: str) -> str:
        return f"page {n} of {name}"

    @server.prompt()
    async def hello() -> str:
        return f"hello from {name}"

    return server


if __name__ == "__main__":
    Recorder(sys.argv[1], sys.argv[2])
    build(sys.argv[2]).run()
