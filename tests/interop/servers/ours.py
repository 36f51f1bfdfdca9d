"""A Fairlead server with basic features, for third-party clients."""

import asyncio
import base64
import contextlib
from collections.abc import Iterator

from fairlead import Context, MCPServer
from fairlead.protocol.types.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)

PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
ENCODED_PIXEL = base64.b64encode(PIXEL).decode()

server = MCPServer("ours", version="1.2.3", instructions="Say hello first.", rate_limit_rate=0)
waiting: set[int | str] = set()
nobody_waits = asyncio.Event()
nobody_waits.set()
told_to_go_on = asyncio.Event()


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
        await ctx.progress(step, to, f"step {step}")
        await ctx.log("debug" if step % 2 else "warning", f"step {step}", logger="count")
    return f"counted to {to}"


@server.tool()
async def count_and_hold(to: int, ctx: Context) -> str:
    """Count, and return after `go_on` was called."""
    for step in range(1, to + 1):
        await ctx.progress(step, to, f"step {step}")
    async with asyncio.timeout(5):
        await told_to_go_on.wait()
    told_to_go_on.clear()
    return f"counted to {to}"


@server.tool()
async def go_on() -> str:
    """Release `count_and_hold`."""
    told_to_go_on.set()
    return "going on"


@server.tool()
async def fail() -> str:
    """Fail always."""
    raise RuntimeError("it broke")


@server.tool()
async def blocks() -> list[object]:
    """Return one block of each kind."""
    return [
        TextContent(text="grüße"),
        ImageContent(data=ENCODED_PIXEL, mime_type="image/png"),
        AudioContent(data=ENCODED_PIXEL, mime_type="audio/wav"),
        ResourceLink(uri="memo://pixel", name="pixel"),
        EmbeddedResource(resource=ResourceContents(uri="memo://note", text="embedded")),
    ]


@server.tool(output_schema=False)  # The official client limits events to 1 MiB.
async def big(size: int) -> str:
    """Return `size` characters."""
    return "x" * size


@server.tool()
async def wait(ctx: Context) -> str:
    """Report progress, then wait until the call is cancelled."""
    with under_way(ctx):
        await ctx.progress(1, message="begun")
        await asyncio.Event().wait()
    return "never"


@server.tool()
async def was_stopped() -> str:
    """Return once no `wait` call is in progress."""
    async with asyncio.timeout(5):
        await nobody_waits.wait()
    return "stopped"


server.register_resource("memo://greeting", "greeting", content_provider="Grüße, 世界 🌍")
server.register_resource(
    "memo://pixel", "pixel", mime_type="image/png", content_provider=lambda: PIXEL
)


@server.prompt(description="Greets a person.")
async def greet(name: str, mood: str = "happy") -> str:
    return f"Greet {name}, who is {mood}."


if __name__ == "__main__":
    server.run()
