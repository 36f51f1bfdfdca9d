"""The same server as `ours.py`, made with the official Python SDK."""

import asyncio
import contextlib
import warnings
from collections.abc import Iterator

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

warnings.simplefilter("ignore", MCPDeprecationWarning)  # logging is deprecated but still supported

PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
ENCODED_PIXEL = "iVBORw0KGgoAAAANSUhEUg=="

server = MCPServer(
    "official", version="1.2.3", instructions="Say hello first.", log_level="CRITICAL"
)
waiting: set[int | str] = set()
nobody_waits = asyncio.Event()
nobody_waits.set()


@contextlib.contextmanager
def under_way(ctx: Context) -> Iterator[None]:
    """Track a call for `was_stopped`."""
    waiting.add(ctx.request_id)
    nobody_waits.clear()
    try:
        yield
    finally:
        waiting.discard(ctx.request_id)
        if not waiting:
            nobody_waits.set()


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and report each step."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
        await ctx.log("debug" if step % 2 else "warning", f"step {step}", logger_name="count")
    return f"counted to {to}"


@server.tool()
async def fail() -> str:
    """Fail always."""
    raise RuntimeError("it broke")


@server.tool(structured_output=False)
async def blocks() -> list[object]:
    """Return one block of each kind."""
    return [
        TextContent(text="grüße"),
        ImageContent(data=ENCODED_PIXEL, mime_type="image/png"),
        AudioContent(data=ENCODED_PIXEL, mime_type="audio/wav"),
        ResourceLink(uri="memo://pixel", name="pixel"),
        EmbeddedResource(resource=TextResourceContents(uri="memo://note", text="embedded")),
    ]


@server.tool()
async def big(size: int) -> str:
    """Return `size` characters."""
    return "x" * size


@server.tool()
async def wait(ctx: Context) -> str:
    """Report progress, then wait until the call is cancelled."""
    with under_way(ctx):
        await ctx.report_progress(1, message="begun")
        await asyncio.Event().wait()
    return "never"


@server.tool()
async def was_stopped() -> str:
    """Return once no `wait` call is in progress."""
    async with asyncio.timeout(5):
        await nobody_waits.wait()
    return "stopped"


@server.resource("memo://greeting", name="greeting")
def greeting() -> str:
    return "Grüße, 世界 🌍"


@server.resource("memo://pixel", name="pixel", mime_type="image/png")
def pixel() -> bytes:
    return PIXEL


@server.prompt(description="Greets a person.")
async def greet(name: str, mood: str = "happy") -> str:
    return f"Greet {name}, who is {mood}."


if __name__ == "__main__":
    server.run()
