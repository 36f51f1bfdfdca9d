"""The server of the matrix tests, also a program that serves stdin and stdout."""

import asyncio

from fairlead import Context, MCPServer


def make() -> MCPServer:
    server = MCPServer("matrix", rate_limit_rate=0)

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def count(ctx: Context, to: int) -> str:
        """Count, and report progress."""
        for n in range(1, to + 1):
            await ctx.progress(n, to, f"step {n}")
        await ctx.info("counted")
        return f"counted to {to}"

    @server.tool()
    async def wait(ctx: Context) -> str:
        """Wait until the call is cancelled, and record the cancellation."""
        await ctx.info("waiting")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise
        return "never"

    cancelled: list[str] = []

    @server.tool()
    async def traces() -> str:
        """Return the cancelled calls."""
        return ",".join(cancelled)

    @server.tool()
    async def greet(ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Please enter your name.", str)
        return f"{answer.action} {answer.data}"

    @server.tool()
    async def think(ctx: Context) -> str:
        """Ask the client's model."""
        answer = await ctx.sample("think", max_tokens=10)
        text = answer["content"]["text"]
        return f"the model says {text}"

    @server.tool()
    async def grow() -> str:
        """Change the list of tools."""
        server.tool(name=f"extra_{len(server.registry)}")(lambda: "x")
        return "grown"

    @server.tool()
    async def fail() -> str:
        """Fail."""
        raise ValueError("out of paint")

    @server.tool()
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.resource("note://one")
    async def note() -> str:
        return "a note"

    @server.prompt()
    async def hello(name: str) -> str:
        return f"Say hello to {name}"

    return server


if __name__ == "__main__":
    make().run()
