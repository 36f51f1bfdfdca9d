"""A tool that asks back, in both eras, without knowing that there are two.

In the stateless era the function runs again from the top when the answers are there. What must not
happen twice goes into a step.
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
    """Something with an effect: it must happen once, however many questions follow."""
    return f"R-{abs(hash(train)) % 10000:04}"


@server.tool()
async def book(train: str, ctx: Context) -> str:
    """Book seats on a train, asking for what is missing."""
    number = await ctx.step("reserve", reserve, train)
    details = await ctx.elicit(f"Which seats on {train}?", Details)
    if not details.accepted or details.data is None:
        return f"{number}: nothing was booked"
    sure = await ctx.elicit(f"Book {details.data.seats} seats?", bool)
    if not sure.data:
        return f"{number}: nothing was booked"
    return f"{number}: {details.data.seats} at the {details.data.where} on {train}"


if __name__ == "__main__":
    server.run()
