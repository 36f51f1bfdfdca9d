"""A Fairlead server with server requests, notifications and changes, for the TypeScript client."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fairlead import Context, MCPServer

server = MCPServer("ours", version="1.2.3", page_size=5)  # lists have several pages
notes = {1: "milk", 2: "bread"}
reads = itertools.count(1)
stopped = asyncio.Event()


@dataclass
class Person:
    name: str
    age: int


@dataclass
class Weather:
    city: str
    degrees: float


@server.resource("memo://notes/{number}", mime_type="text/plain")
def note(number: int) -> str:
    """One note."""
    return notes[number]


@server.resource("memo://kept", cache_ttl=60)
def kept() -> str:
    """A text that stateless clients may cache for a minute."""
    return f"read {next(reads)}"


@server.completion("memo://notes/{number}", "number")
def numbers(typed: str) -> list[str]:
    return [str(number) for number in notes if str(number).startswith(typed)]


@server.prompt()
def order(dish: Literal["soup", "salad"], drink: str) -> str:
    """Order something."""
    return f"Bring me {dish} and {drink}."


@server.completion("order", "drink")
def drinks(typed: str, others: Mapping[str, str]) -> list[str]:
    fitting = {"soup": ["water", "wine"], "salad": ["juice"]}
    return [drink for drink in fitting.get(others.get("dish", ""), []) if drink.startswith(typed)]


@server.tool()
def weather(city: str) -> Weather:
    """Return the weather in a city."""
    return Weather(city, 21.5)


@server.tool()
async def chatter(ctx: Context) -> str:
    """Log messages at several levels."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log(level, {"said": level}, logger="chatter")
    return "logged"


@server.tool()
async def ask_form(message: str, ctx: Context) -> str:
    """Ask the user who they are."""
    given = await ctx.elicit(message, Person)
    return f"{given.action}: {given.data}"


@server.tool()
async def ask_page(message: str, ctx: Context) -> str:
    """Ask the user to open a page."""
    return await ctx.elicit_url(message, "https://example.com/login")


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Ask the client's model."""
    said = await ctx.sample("What is up?", max_tokens=7, systemPrompt="Be brief.")
    return f"{said['model']}: {said['content']['text']}"


@server.tool()
async def ask_roots(ctx: Context) -> str:
    """Return the client's roots."""
    return ", ".join(root["uri"] for root in await ctx.roots())


@server.tool()
async def ask_twice(ctx: Context) -> str:
    """Send a sampling and a roots request at once, then an elicitation."""
    said, roots = await asyncio.gather(ctx.sample("What is up?"), ctx.roots())
    given = await ctx.elicit("accept", Person)
    assert given.data is not None
    return f"{given.data.name}: {said['content']['text']} in {len(roots)}"


@server.prompt()
async def letter(ctx: Context) -> str:
    """A letter, signed by the user."""
    given = await ctx.elicit("accept", Person)
    assert given.data is not None
    return f"Sincerely, {given.data.name}"


@server.resource("memo://secret")
async def secret(ctx: Context) -> str:
    """A text for users who give their name."""
    given = await ctx.elicit("accept", Person)
    assert given.data is not None
    return f"for {given.data.name} only"


@server.tool()
async def write(number: int, text: str) -> str:
    """Write a note, and notify subscribers."""
    notes[number] = text
    server.resource_updated(f"memo://notes/{number}")
    return "written"


@server.tool()
async def grow() -> str:
    """Add one item to every list."""
    server.tool("grown")(lambda: "new")
    server.prompt("grown")(lambda: "new")
    server.register_resource("memo://grown", "grown", content_provider="new")
    return "grown"


@server.tool()
async def wait(ctx: Context) -> str:
    """Report progress, then wait until the call is cancelled."""
    try:
        await ctx.progress(1, message="begun")
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool()
async def was_stopped() -> str:
    """Return once a `wait` call has been stopped."""
    async with asyncio.timeout(5):
        await stopped.wait()
    return "stopped"


if __name__ == "__main__":
    server.run()
