"""FastMCP in front of several servers: the file with their `mcpServers`, and PORT.

Each server has a proxy of its own, mounted under its name. `create_proxy` also takes the whole
file, but then it starts all servers again for each call, and makes about one call per second.
"""

import json
import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def main(servers: str, port: str) -> None:
    gateway = FastMCP("bench")
    for name, entry in json.loads(Path(servers).read_text())["mcpServers"].items():
        transport = StdioTransport(command=entry["command"], args=entry["args"])
        gateway.mount(create_proxy(transport, name=name), namespace=name)
    gateway.run(transport="http", port=int(port), show_banner=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
