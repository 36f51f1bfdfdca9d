"""The server of the transcripts, also a program that serves stdin and stdout."""

import asyncio

from fairlead import Context, MCPServer
from fairlead.protocol.types.content import AudioContent, ImageContent, ResourceLink, TextContent
from fairlead.protocol.types.tools import ToolAnnotations


def make_server() -> MCPServer:
    server = MCPServer("fixed", version="1.0", title="Fixed", instructions="Be kind.", page_size=2)
    waiting: set[int | str] = set()
    nobody_waits = asyncio.Event()

    @server.tool(
        title="Echo",
        annotations=ToolAnnotations(read_only_hint=True),
        output_schema=False,
    )
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool(inline=True, output_schema=False)
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(output_schema=False)
    def fail() -> None:
        """Never works."""
        raise RuntimeError("it broke")

    @server.tool(output_schema=False)
    async def count(to: int, ctx: Context) -> str:
        """Count, and report each step."""
        for step in range(1, to + 1):
            await ctx.progress(step, to, f"step {step}")
            await ctx.log("debug" if step % 2 else "warning", {"step": step}, logger="count")
        return f"counted to {to}"

    @server.tool(output_schema=False)
    async def blocks() -> list[object]:
        """Blocks of several kinds."""
        return [
            TextContent(text="grüße"),
            ImageContent(data="AAEC", mime_type="image/png"),
            AudioContent(data="AAEC", mime_type="audio/wav"),
            ResourceLink(uri="memo://bytes", name="bytes"),
        ]

    @server.tool(output_schema=False)
    async def wait(ctx: Context) -> str:
        """Report progress, then wait until the call is cancelled."""
        waiting.add(ctx.request_id)
        nobody_waits.clear()
        try:
            await ctx.progress(1)
            await asyncio.Event().wait()
        finally:
            waiting.discard(ctx.request_id)
            if not waiting:
                nobody_waits.set()
        return "never"

    @server.tool(output_schema=False)
    async def was_stopped() -> str:
        """Return once no `wait` call is in progress."""
        async with asyncio.timeout(5):
            await nobody_waits.wait()
        return "stopped"

    server.register_resource("memo://text", "text", "Some text.", content_provider="Grüße 🌍")
    server.register_resource(
        "memo://bytes",
        "bytes",
        mime_type="application/octet-stream",
        content_provider=lambda: b"\0\1\2",
    )

    @server.resource("memo://broken")
    def broken() -> str:
        raise RuntimeError("a secret detail")

    server.register_prompt(
        "greet",
        "Greets somebody.",
        [{"name": "name", "required": True}, {"name": "mood"}],
        "Greet {name}, who is {mood}.",
    )
    return server


if __name__ == "__main__":
    make_server().run()
