"""`ours_full.py` over HTTP. The argument is its `answers` setting."""

import asyncio
import sys

from listening import end_with_stdin
from ours import told_to_go_on
from ours_full import server

from fairlead import Context

server.limiter = None  # all calls come from one client


@server.tool()
async def hang_up(ctx: Context) -> str:
    """Close the connection during the call, and continue after `go_on` was called."""
    await ctx.progress(1, 3, "before")
    ctx.close_stream()
    async with asyncio.timeout(5):
        await told_to_go_on.wait()
    told_to_go_on.clear()
    await ctx.progress(2, 3, "meanwhile")
    await ctx.progress(3, 3, "after")
    return "still here"


if __name__ == "__main__":
    end_with_stdin()
    started = lambda url: print(url.removesuffix("/mcp"), flush=True)  # noqa: E731
    asyncio.run(server.run_http(port=0, answers=sys.argv[1], retry=0.01, started=started))
