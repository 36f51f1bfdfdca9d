import asyncio
from pathlib import Path

from fairlead import MCPClient


async def main() -> None:
    async with MCPClient.connect(Path(__file__).with_name("ten_line_server.py")) as client:
        print("tools:", [tool["name"] for tool in await client.list_tools()])
        print("1 + 2 =", (await client.call_tool("add", {"a": 1, "b": 2})).text)


asyncio.run(main())
