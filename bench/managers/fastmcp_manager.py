"""FastMCP's client of many servers.

fastmcp_manager.py start CONFIG HEALTHY: until it has listed the tools of all of them
fastmcp_manager.py idle CONFIG SECONDS: the CPU it takes after that
"""

import asyncio
import sys

from fastmcp import Client
from telling import Clock, configured, tell


async def main(what: str, config: str, number: float) -> None:
    clock = Clock()
    servers = configured(config)
    async with Client({"mcpServers": servers}) as client:
        tools = await client.list_tools()
        missing = [n for n in servers if not any(tool.name.startswith(n) for tool in tools)]
        if missing:
            raise SystemExit(f"no tools of {missing}")
        if what == "idle":
            clock = Clock()
            await asyncio.sleep(number)
        tell(**clock.read())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
