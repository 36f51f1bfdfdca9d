"""`python -m bench.token_flood`: what ordinary clients notice of forged tokens with unknown keys.

A server that accepts signed tokens (JWT) serves ordinary clients with a known token at a third of
what it can do. Another client sends 10,000 forged tokens in 10 s, each with another key id; in
turns with a control run, in which the same process sends as many calls with a valid token. The 99th
percentile of the latency of the ordinary calls is compared (target: at most doubled). The key set
must be fetched once per 30 s at most.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import uvloop
from joserfc import jwt
from joserfc.jwk import ECKey

from .answers import is_whole
from .attack_load import compare, find_saturation
from .attacker import Attacker, send_until_stopped
from .attacks import stateless
from .calls import Echo
from .envs import BENCH, ROOT
from .requests import Era
from .web import WebServer

AUDIENCE = "bench"
FLOOD = 1000.0  # forged tokens per second
COOL_DOWN = 30.0  # seconds between two fetches of the key set


class Issuer:
    """An issuer with metadata and a key set, which notes the times of the requests for the set."""

    def __init__(self) -> None:
        self.key = ECKey.generate_key("P-256", {"kid": "known", "use": "sig"})
        self.url = ""
        self.fetched: list[float] = []

    def document(self, path: str) -> Any:
        if path == "/jwks":
            self.fetched.append(time.monotonic())
            return {"keys": [self.key.as_dict(private=False)]}
        return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}

    def token(self, subject: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.url, "sub": subject, "client_id": "bench"}
        claims |= {"aud": AUDIENCE, "iat": now, "exp": now + 24 * 3600}
        return jwt.encode({"alg": "ES256", "kid": "known", "typ": "at+jwt"}, claims, self.key)


@contextlib.contextmanager
def running(issuer: Issuer) -> Iterator[None]:
    """Serve the documents of an issuer in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(issuer.document(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


class Forger(Attacker):
    """Sends calls with a valid token, or with tokens whose keys do not exist.

    Each uses a connection of its own, because the server closes the connection after a refusal.
    """

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port, token)
        self._body, self._fields = stateless("tools/call", name="echo", arguments={"text": "x"})
        _, self._claims, self._seal = token.split(".")

    async def forged(self, number: int) -> None:
        """Send the claims of the valid token with an unknown key id."""
        header = {"alg": "ES256", "kid": f"{os.getpid()}-{number}", "typ": "at+jwt"}
        head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
        await self._send(f"{head}.{self._claims}.{self._seal}")

    async def known(self, number: int) -> None:
        """Call a tool with the valid token."""
        await self._send(self._token)

    async def _send(self, token: str) -> None:
        self.messages += 1
        loop = asyncio.get_running_loop()
        request = self._head(len(self._body), self._fields, token=token) + self._body
        done: asyncio.Future[bytes] = loop.create_future()
        try:
            await loop.create_connection(lambda: _Exchange(request, done), "127.0.0.1", self._port)
            answer = await done
        except ConnectionError:
            self.outcomes["connection closed"] += 1
            return
        self.outcomes[answer[9:12].decode()] += 1
        self.largest = max(self.largest, len(answer))


class _Exchange(asyncio.Protocol):
    """A connection with one request and one response."""

    def __init__(self, request: bytes, done: asyncio.Future[bytes]) -> None:
        self._request, self._done = request, done
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if is_whole(self._answer):
            if not self._done.done():
                self._done.set_result(self._answer)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionResetError())


def send(kind: str, port: int, token: str, rate: float) -> None:
    """Send forged or valid tokens at a steady rate until stdin closes."""

    async def run() -> None:
        client = Forger(port, token)
        sender = client.forged if kind == "attack" else client.known
        await send_until_stopped(client, sender, rate)

    uvloop.run(run())


def main() -> int:
    """Run the comparison; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.token_flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--segments", type=int, default=5, help="turns of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    issuer = Issuer()
    with running(issuer):
        program = [sys.executable, str(BENCH / "servers" / "protected.py"), issuer.url]
        with WebServer(program, era=Era.STATELESS, token=issuer.token("user")) as server:
            facts = uvloop.run(measure(server, issuer, options.seconds, options.segments))
    print(json.dumps(facts, indent=2))
    if options.json:
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    gap = facts["seconds_between_fetches"]
    return int(facts["ratio"] > 2 or (gap is not None and gap < COOL_DOWN))


async def measure(
    server: WebServer, issuer: Issuer, seconds: float, segments: int
) -> dict[str, Any]:
    work = Echo()
    saturation = await asyncio.to_thread(find_saturation, server, work)
    rate = saturation / 3
    token = issuer.token("attacker")

    def start(kind: str, pace: float) -> subprocess.Popen[bytes]:
        call = (
            f"from bench.token_flood import send; send({kind!r}, {server.port}, {token!r}, {pace})"
        )
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", call], stdin=pipe, stdout=pipe, cwd=ROOT)

    began = time.monotonic()
    facts = await compare(
        server, work, start, count=int(rate * seconds), segments=segments, rate=rate, pace=FLOOD
    )
    times = issuer.fetched
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return {
        "saturation": round(saturation),
        "rate": round(rate),
        "seconds": round(time.monotonic() - began),
        "fetches": len(times),
        "seconds_between_fetches": round(min(gaps), 1) if gaps else None,
        **facts,
    }


if __name__ == "__main__":
    sys.exit(main())
