"""A relay or gateway over HTTP, to run the official conformance suite through it.

    python tests/conformance/relay.py http://127.0.0.1:3000/mcp
    python tests/conformance/relay.py python tests/conformance/server.py --stdio
    python tests/conformance/relay.py --gateway http://127.0.0.1:3000/mcp

The program listens on a free port and prints the URL.
"""

import argparse
import asyncio
import contextlib
from typing import Any

from fairlead.gateway import Gateway, Relay


def started(url: str) -> None:
    print(url, flush=True)


async def serve(given: argparse.Namespace) -> None:
    first, *rest = given.target
    entry: dict[str, Any] = {"command": first, "args": rest}
    if first.startswith("http"):
        entry = {"type": "http", "url": first}
    if given.gateway:
        async with Gateway() as gateway:
            await gateway.connect({"one": entry})
            # The merged endpoint changes tool names, so the endpoint of the server is used.
            await gateway.run_http(port=0, started=lambda url: started(f"{url}/one"), retry=0.3)
    else:
        relay = Relay(entry, era=given.era)
        await relay.run_http(port=0, started=started, answers=given.answers, retry=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description="A relay for the conformance suite.")
    parser.add_argument("--gateway", action="store_true", help="run a gateway instead of a relay")
    parser.add_argument("--era", choices=("auto", "handshake", "stateless"), default="auto")
    parser.add_argument("--answers", choices=("auto", "sse"), default="auto")
    parser.add_argument("target", nargs=argparse.REMAINDER, help="a URL, or a command")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
