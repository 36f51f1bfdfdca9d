"""A second demo server, of the era before: it speaks only the handshake, and keeps a session."""

import math
from typing import Annotated, Any

from msgspec import Meta

from fairlead import Context, MCPServer, MCPToolError

from .eras import only_handshake

__all__ = ["server"]

server = MCPServer(
    "fairlead-demo-harbour",
    version="1.0.0",
    title="Harbour demo",
    instructions="Berths and tides of a harbour that does not exist.",
    interceptors=[only_handshake],
    rate_limit_rate=0,
)

berths: dict[str, str | None] = {"A1": "Thea", "A2": None, "B1": "Grey Heron", "B2": None}


@server.tool(title="Tide table")
def tide(hour: Annotated[float, Meta(ge=0, lt=24, description="Hours since midnight")]) -> str:
    """How high the water stands at an hour of the day."""
    height = 2.1 + 1.7 * math.sin(2 * math.pi * hour / 12.42)
    return f"{height:.2f} m at {int(hour):02}:{int(hour % 1 * 60):02}"


@server.tool(title="Free berths")
def free_berths() -> list[str]:
    """Which berths nobody lies at."""
    return [berth for berth, ship in berths.items() if ship is None]


@server.tool(title="Moor a ship")
async def moor(ctx: Context, ship: str, berth: str) -> str:
    """Give a ship a berth; the harbour master is asked first."""
    if berths.get(berth, "") is not None:
        free = ", ".join(free_berths()) or "none"
        raise MCPToolError(f"{berth!r} is not free", suggestion=f"Free are: {free}")
    answer = await ctx.elicit(f"May {ship} lie at {berth}?", bool)
    if not answer.data:
        return f"{ship} stays outside."
    berths[berth] = ship
    return f"{ship} lies at {berth}."


@server.resource("harbour://berths", title="Berths", mime_type="application/json")
def all_berths() -> dict[str, Any]:
    """Who lies where."""
    return berths


if __name__ == "__main__":
    server.run()
