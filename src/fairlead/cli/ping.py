"""`fairlead ping`: does a server answer, and how fast?"""

from argparse import Namespace
from collections.abc import Sequence

from ..client import MCPClient
from .failed import FAILED
from .listing import run_command
from .output import pretty, safe, visible, write

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "ping",
        "See whether a server answers, in which version of the protocol and how fast.",
        argv,
        _ping,
        examples="  fairlead ping notes\n"
        "  fairlead ping -- python server.py\n  fairlead ping http://127.0.0.1:8080",
    )


async def _ping(client: MCPClient, options: Namespace) -> int:
    health = await client.health_check()
    if options.json:
        write(pretty({**health, "protocolVersion": client.protocol_version}))
    elif health["ok"]:
        name = visible(str(health.get("server") or "the server"))
        write(f"{name} answers in {health['latency_ms']:g} ms and speaks {client.protocol_version}")
    else:
        write(f"no answer: {safe(str(health.get('error')))}")
    return 0 if health["ok"] else FAILED
