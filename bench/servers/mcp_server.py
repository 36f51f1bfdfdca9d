"""`echo`, `add`, `order` and `describe` with the official Python SDK."""

from mcp.server import MCPServer
from pydantic import BaseModel

server = MCPServer("bench")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Item(BaseModel):
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


class Description(BaseModel):
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
