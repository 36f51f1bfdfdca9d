"""`fairlead read`: the contents of a resource."""

import base64
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ..client import MCPClient
from .listing import run_command
from .output import pretty, size, write

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "read",
        "Read a resource of a server. Binary contents go to a file or pipe as they are; on a "
        "terminal they are only described.",
        argv,
        _read,
        usage="URI",
        examples="  fairlead read notes notes://all\n"
        "  fairlead read notes://all -- python server.py\n"
        "  fairlead read demo://sunrise.png -- python server.py > sunrise.png\n"
        "  fairlead read notes://all http://127.0.0.1:8080",
        reads=True,
        positional=[("uri", "1", "the URI of the resource")],
    )


async def _read(client: MCPClient, options: Namespace) -> int:
    result = await client.read_resource(options.uri)
    if options.json:
        write(pretty(result))
        return 0
    for content in result.get("contents") or ():
        _show(content)
    return 0


def _show(content: Mapping[str, Any]) -> None:
    if isinstance(text := content.get("text"), str):
        write(text)
        return
    data = base64.b64decode(str(content.get("blob") or ""))
    if sys.stdout.isatty():
        write(f"[{content.get('mimeType') or 'binary'}, {size(len(data))}]")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
