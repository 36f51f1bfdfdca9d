"""Cost of a login for a client: calls with a stored OAuth login against calls without one.

    python -m bench.client_logins [--rounds 9] [--calls 2000]

Each round makes the same calls with 64 in flight, with and without a login, in alternating order.
The ratio of the calls per second of CPU time of the client is the median over the rounds (target:
at least 0.95), because other programs disturb the calls per second of a busy machine. The second
figure compares eight concurrent calls of a tool that takes 0.2 s, with a login each, with the same
calls of the official client, which holds a lock during a request (target: at least 6 times faster).
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

from fairlead import MCPClient, MCPServer
from fairlead.auth import MemoryCredentialStore, OAuthAuthorizer
from fairlead.auth.storage.credential_store import StoredLogin
from fairlead.auth.token_response import ClientRegistration, TokenSet

IN_FLIGHT = 64
SLOW = 0.2  # seconds of a slow call
SLOW_CALLS = 8
LIFETIME = 86400
TOKEN = "t" * 600  # as long as a usual JWT


def serve(ready: Connection) -> None:
    """Serve `echo` and `slow` until the process is terminated. Tokens are not checked."""
    server = MCPServer("echo", rate_limit_rate=0)

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    @server.tool()
    async def slow() -> str:
        await asyncio.sleep(SLOW)
        return "done"

    asyncio.run(server.run_http(port=0, started=ready.send))


def logged_in(url: str) -> OAuthAuthorizer:
    """Return an authorizer with a login that needs no renewal."""
    store = MemoryCredentialStore()
    store.save(
        StoredLogin(
            owner="",
            server=url,
            url=url,
            issuer="https://login.example",
            resource=url,
            token_endpoint="https://login.example/token",
            client=ClientRegistration("c"),
            auth_method="none",
            tokens=TokenSet(TOKEN, "Bearer", (), time.time() + LIFETIME, "refresh"),
        )
    )
    return OAuthAuthorizer(url, store=store)


async def burst(client: MCPClient, calls: int) -> tuple[float, float]:
    """Return the calls per second, and per second of CPU time of this process."""
    left = calls

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.call("echo", {"text": "x" * 50})

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return calls / (time.perf_counter() - began), calls / (time.process_time() - used)


async def compare_calls(url: str, rounds: int, calls: int) -> None:
    login: Any = {"authorizer": logged_in(url)}
    async with (
        MCPClient.connect_http(url) as plain,
        MCPClient.connect_http(url, http=login) as authorized,
    ):
        clients = {"without": plain, "with": authorized}
        for client in clients.values():
            await burst(client, calls)
        ratios, noise = [], []
        for number in range(rounds):
            order = list(clients) if number % 2 else list(reversed(clients))
            rates = {name: await burst(clients[name], calls) for name in order}
            ratios.append(tuple(map(_ratio, rates["with"], rates["without"])))
            noise.append((await burst(plain, calls))[1] / rates["without"][1])
    walls, cpus = zip(*ratios, strict=True)
    print(f"calls per CPU second, with a login / without: {statistics.median(cpus):.3f}")
    print(f"  rounds {min(cpus):.3f} to {max(cpus):.3f}", end="; ")
    print(f"without / without: {statistics.median(noise):.3f}")
    print(f"calls per second, with a login / without: {statistics.median(walls):.3f}")


def _ratio(one: float, other: float) -> float:
    return one / other


async def slow_calls(call: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of concurrent calls of the slow tool, the best of three."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(SLOW_CALLS)))
        times.append(time.perf_counter() - began)
    return min(times)


async def compare_slow_calls(url: str) -> None:
    login: Any = {"authorizer": logged_in(url)}
    async with MCPClient.connect_http(url, http=login) as client:
        ours = await slow_calls(lambda: client.call("slow"))
    theirs = await official_slow_calls(url)
    print(f"{SLOW_CALLS} calls of {SLOW} s with a login: {ours:.3f} s", end="; ")
    print(f"official client: {theirs:.3f} s, {theirs / ours:.1f} times as long")


async def official_slow_calls(url: str) -> float:
    from mcp import Client
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

    redirect: Any = "http://127.0.0.1:9/callback"

    class Storage:
        async def get_tokens(self) -> OAuthToken:
            return OAuthToken(access_token=TOKEN, expires_in=LIFETIME)

        async def set_tokens(self, tokens: OAuthToken) -> None: ...

        async def get_client_info(self) -> OAuthClientInformationFull:
            return OAuthClientInformationFull(client_id="c", redirect_uris=[redirect])

        async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...

    metadata = OAuthClientMetadata(redirect_uris=[redirect])
    auth = OAuthClientProvider(url, metadata, Storage())
    async with (
        create_mcp_http_client(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        return await slow_calls(lambda: client.call_tool("slow", {}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--calls", type=int, default=2000)
    chosen = options.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    url = ours.recv()
    try:
        asyncio.run(compare_calls(url, chosen.rounds, chosen.calls))
        asyncio.run(compare_slow_calls(url))
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
