"""Cost of access tokens: stateless calls with a known JWT against a static token.

    python -m bench.known_tokens [--rounds 9] [--seconds 1.5] [--json FILE]

Each round runs both kinds of token against the same server with 64 calls in flight, in alternating
order. The ratios of the calls per second, and per second of CPU time of the server, are medians
over the rounds (target: at least 0.95); other programs disturb the first one on a busy machine. The
third figure is the CPU time of the verification of a token that the server sees for the first time
(target: below 0.5 ms). Needs Linux.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from fairlead import MCPServer
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer

IN_FLIGHT = 64
ISSUER = "https://login.example"
STATIC = "s" * 32


def serve(ready: Connection, jwks: dict[str, Any]) -> None:
    """Serve `echo` until the process is terminated."""
    tokens = {STATIC: "static"}
    auth = ServerAuth(issuer=TokenIssuer(ISSUER, jwks=jwks), tokens=tokens)
    server = MCPServer("echo", auth=auth, rate_limit_rate=0)

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    asyncio.run(server.run_http(port=0, started=ready.send))


def make_token(key: Any, algorithm: str, audience: str, number: int = 0) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": f"user{number}", "client_id": "app", "aud": audience}
    claims |= {"iat": now, "exp": now + 3600, "scope": "mcp:basic mcp:write"}
    return jwt.encode({"alg": algorithm, "kid": key.kid, "typ": "at+jwt"}, claims, key)


def request(token: str, port: int) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {"text": "x" * 50}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
        f"mcp-method: tools/call\r\nmcp-name: echo\r\nauthorization: Bearer {token}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(port: int, pid: int, token: str, seconds: float) -> tuple[float, float]:
    """Return the calls per second, and per second of CPU time of the server, of 64 connections
    that each send one call after the other.
    """
    data = request(token, port)
    deadline = time.perf_counter() + seconds
    done = 0

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < deadline:
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()

    began, used = time.perf_counter(), cpu_seconds(pid)
    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return done / (time.perf_counter() - began), done / (cpu_seconds(pid) - used)


def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """Return the ratios of a known JWT to a static token, and of a static token to itself."""
    key = ECKey.generate_key("P-256", {"kid": "k"})
    ours, theirs = multiprocessing.Pipe()
    jwks = {"keys": [key.as_dict(private=False)]}
    process = multiprocessing.Process(target=serve, args=(theirs, jwks), daemon=True)
    process.start()
    url = ours.recv()
    port = int(url.split(":")[2].partition("/")[0])
    tokens = {"static": STATIC, "jwt": make_token(key, "ES256", url)}
    pid = process.pid
    assert pid is not None

    def burst(name: str, seconds: float = seconds) -> tuple[float, float]:
        return asyncio.run(load(port, pid, tokens[name], seconds))

    ratios: dict[str, list[float]] = {"wall": [], "cpu": [], "wall_noise": [], "cpu_noise": []}
    try:
        for name in tokens:
            burst(name, 0.5)
        for number in range(rounds):
            order = list(tokens) if number % 2 else list(reversed(tokens))
            rates = {name: burst(name) for name in order}
            again = burst("static")
            for kind, index in (("wall", 0), ("cpu", 1)):
                base = rates["static"][index]
                ratios[kind].append(rates["jwt"][index] / base)
                ratios[f"{kind}_noise"].append(again[index] / base)
    finally:
        process.terminate()
        process.join()
    return {name: summary(values) for name, values in ratios.items()}


def summary(values: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": round(median, 3), "low": round(low, 3), "high": round(high, 3)}


async def first_use(key: Any, algorithm: str, count: int = 300) -> float:
    """Return the CPU milliseconds of the first use of a token, as a mean over many tokens."""
    issuer = TokenIssuer(ISSUER, jwks={"keys": [key.as_dict(private=False)]})
    access = ServerAuth(issuer=issuer, public_url="https://a.example").open_access()
    endpoint = access.endpoint("/mcp")
    tokens = [make_token(key, algorithm, "https://a.example/mcp", n) for n in range(count + 1)]
    headers = [{b"authorization": f"Bearer {token}".encode()} for token in tokens]
    await endpoint.verify(headers[-1], "POST", None)
    began = time.process_time()
    for one in headers[:count]:
        await endpoint.verify(one, "POST", None)
    return (time.process_time() - began) / count * 1000


def main() -> int:
    """Print the figures; return 1 if a target was missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--seconds", type=float, default=1.5)
    options.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    chosen = options.parse_args()
    facts: dict[str, Any] = {"in_flight": IN_FLIGHT, "rounds": chosen.rounds}
    facts |= compare(chosen.rounds, chosen.seconds)
    facts["first_use_ms"] = {
        algorithm: round(asyncio.run(first_use(key, algorithm)), 3)
        for key, algorithm in (
            (ECKey.generate_key("P-256", {"kid": "k"}), "ES256"),
            (RSAKey.generate_key(2048, {"kid": "k"}), "RS256"),
        )
    }
    print(json.dumps(facts, indent=2))
    if chosen.json:
        chosen.json.write_text(json.dumps(facts, indent=2) + "\n")
    ratios = (facts["wall"]["median"], facts["cpu"]["median"])
    return int(min(ratios) < 0.95 or max(facts["first_use_ms"].values()) >= 0.5)


if __name__ == "__main__":
    sys.exit(main())
