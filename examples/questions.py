"""A tool that asks the user for input, with the same code in both eras.

In the stateless era, the function runs again from the top when the responses have arrived. Code
that must run only once is called in a step.
"""

from dataclasses import dataclass
from typing import Literal

from fairlead import Context, MCPServer

server = MCPServer("questions")


@dataclass
class Details:
    seats: int
    where: Literal["window", "aisle", "middle"] = "window"


def reserve(train: str) -> str:
    """Reserve a train. This function has a side effect, so it must run only once per call."""
    return f"R-{abs(hash(train)) % 10000:04}"


@server.tool()
async def book(train: str, ctx: Context) -> str:
    """Book seats on a train, asking for missing details."""
    number = await ctx.step("reserve", reserve, train)
    details = await ctx.elicit(f"Which seats on {train}?", Details)
    if details.action != "accept":
        return f"{number}: no seats were booked"
    sure = await ctx.elicit(f"Book {details.data.seats} seats?", bool)
    if not sure.data:
        return f"{number}: no seats were booked"
    return f"{number}: {details.data.seats} at the {details.data.where} on {train}"


if __name__ == "__main__":
    server.run()
