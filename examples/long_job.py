"""A long-running tool with progress, log messages and cancellation.

fairlead call count_words text="a long text" -- python examples/long_job.py
"""

import asyncio

from fairlead import Context, MCPServer

server = MCPServer("long-job")


@server.tool(timeout=600)
async def count_words(text: str, ctx: Context, pause: float = 0.01) -> str:
    """Count words slowly and report progress."""
    words = text.split()
    await ctx.info(f"counting {len(words)} words")
    try:
        for done, _ in enumerate(words, 1):
            await asyncio.sleep(pause)
            await ctx.progress(done, len(words), f"{done} of {len(words)}")
    except asyncio.CancelledError:
        # The client cancelled the call or disconnected. Clean up here, then raise the exception
        # again.
        raise
    return f"{len(words)} words"


if __name__ == "__main__":
    server.run()
