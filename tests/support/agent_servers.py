"""Servers for the agent tests: working, not starting, exiting in a call, or requesting input."""

import asyncio
import sys
from pathlib import Path
from typing import Any

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)

PROGRAM = f"""
import asyncio, base64, os, sys
from dataclasses import dataclass
from fairlead import Context, MCPServer
from fairlead.server import Image

name, log = sys.argv[1:]
server = MCPServer(name, rate_limit_rate=0)

def note(word):
    with open(log, "a") as file:
        file.write(word + "\\n")

@dataclass
class Weather:
    city: str
    degrees: int

@server.tool()
async def weather(city: str) -> Weather:
    "Return the weather."
    return Weather(city, 21)

@server.tool()
async def draw() -> Image:
    "Draw a picture."
    return Image(base64.b64decode("{PIXEL}"), format="png")

@server.tool()
async def fail() -> str:
    "Fail."
    raise ValueError("out of paint")

@server.tool()
async def quit() -> str:
    "Cancel the call."
    raise asyncio.CancelledError

@server.tool()
async def die() -> str:
    "Exit during the call."
    os._exit(3)

@server.tool()
async def wait() -> str:
    "Wait until the call is cancelled."
    note("waiting")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        note("cancelled")
        raise

@server.tool()
async def book(train: str, ctx: Context) -> str:
    "Book seats."
    await ctx.step("reserve", note, f"reserved {{train}}")
    seats = await ctx.elicit(f"How many seats on {{train}}?", int)
    sure = await ctx.elicit(f"Book {{seats.data}} seats?", bool) if seats.accepted else None
    if sure is None or not sure.data:
        return "no seats were booked"
    return f"{{seats.data}} seats on {{train}}"

server.run()
"""


class AgentServers:
    """Configuration entries of the servers, and the log that they write."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "agent_server.py"
        self._program.write_text(PROGRAM)
        self._log = folder / "agent_server.log"
        self._log.touch()

    def entry(self, name: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(self._program), name, str(self._log)]}

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """Return entries of three working servers, and of one that does not start."""
        working = {name: self.entry(name) for name in ("paint", "fragile", "trains")}
        return {"dead": {"command": "there-is-no-such-program-here"}, **working}

    @property
    def notes(self) -> list[str]:
        return self._log.read_text().splitlines()

    async def noted(self, word: str) -> None:
        """Wait until a server has written a word to the log."""
        async with asyncio.timeout(20):
            while word not in self.notes:
                await asyncio.sleep(0.005)
