import asyncio
import sys
from pathlib import Path

from fairlead import MCPClient


async def main() -> None:
    command = [sys.executable, str(Path(__file__).with_name("ten_line_server.py"))]
    async with MCPClient.connect_stdio(command) as client:
        print("tools:", [tool["name"] for tool in await client.list_tools()])
        result = await client.call_tool("add", {"a": 1, "b": 2})
        print("1 + 2 =", result["content"][0]["text"])


asyncio.run(main())
