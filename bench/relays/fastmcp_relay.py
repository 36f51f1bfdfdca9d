"""FastMCP's proxy: `http PORT` or `stdio`, and the server: a URL, or a command."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def main(listen: str, *server: str) -> None:
    port = 0
    if listen == "http":
        port, server = int(server[0]), server[1:]
    is_url = server[0].startswith("http:")
    target = server[0] if is_url else StdioTransport(command=server[0], args=[*server[1:]])
    proxy = create_proxy(target, name="bench")
    if listen == "http":
        proxy.run(transport="http", port=port, show_banner=False)
    else:
        proxy.run(show_banner=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
