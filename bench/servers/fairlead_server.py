"""`echo`, `add`, `order` and `describe` with Fairlead."""

import sys
from dataclasses import dataclass

from fairlead import MCPServer

# By default 50 calls per second are allowed. The peers have no limit, so it is off here; with the
# argument `limited` it counts every call, and allows more than there can be. With the argument
# `text-only`, the result of `echo` has no structured content.
LIMIT = {"rate_limit_rate": 1e9, "rate_limit_burst": 10**9}
server = MCPServer("bench", **(LIMIT if "limited" in sys.argv else {"rate_limit_rate": 0}))


@server.tool(output_schema=False if "text-only" in sys.argv else None)
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Item:
    """Something that is ordered."""

    name: str
    quantity: int
    price: float
    labels: list[str]


@server.tool()
async def order(items: list[Item]) -> str:
    """Order some items."""
    last = items[-1]
    return f"{last.quantity} of {last.name} at {last.price:.2f}, {last.labels[-1]}"


@dataclass
class Description:
    """A text, and two facts about it."""

    text: str
    size: int
    labels: list[str]


@server.tool()
async def describe(text: str) -> Description:
    """Describe a text."""
    return Description(text=text, size=len(text), labels=["short", "plain"])


if __name__ == "__main__":
    server.run()
