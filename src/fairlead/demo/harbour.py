"""A second demo server, which supports only the handshake era and keeps a session."""

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
    instructions="Berths and tides of an imaginary harbour.",
    interceptors=[only_handshake],
    rate_limit_rate=0,
)

berths: dict[str, str | None] = {"A1": "Thea", "A2": None, "B1": "Grey Heron", "B2": None}


@server.tool(title="Tide table")
def tide(hour: Annotated[float, Meta(ge=0, lt=24, description="Hours since midnight")]) -> str:
    """Return the water level at an hour of the day."""
    height = 2.1 + 1.7 * math.sin(2 * math.pi * hour / 12.42)
    return f"{height:.2f} m at {int(hour):02}:{int(hour % 1 * 60):02}"


@server.tool(title="Free berths")
def free_berths() -> list[str]:
    """List the free berths."""
    return [berth for berth, ship in berths.items() if ship is None]


@server.tool(title="Moor a ship")
async def moor(ctx: Context, ship: str, berth: str) -> str:
    """Assign a berth to a ship, after the harbour master has agreed."""
    if berths.get(berth, "") is not None:
        free = ", ".join(free_berths()) or "none"
        raise MCPToolError(f"{berth!r} is not free", suggestion=f"Free berths: {free}")
    answer = await ctx.elicit(f"May {ship} moor at {berth}?", bool)
    if not answer.data:
        return f"{ship} was refused."
    berths[berth] = ship
    return f"{ship} is moored at {berth}."


@server.resource("harbour://berths", title="Berths", mime_type="application/json")
def all_berths() -> dict[str, Any]:
    """The ship at each berth."""
    return berths


if __name__ == "__main__":
    server.run()
