"""`python -m bench.attack_load`: what ordinary clients notice of one that attacks.

A guarded gateway serves ordinary clients at a third of what it can do, while one client with a
valid token of its own sends hostile requests; in turns with a control run, in which the same
process sends harmless requests at the same rate. Every ordinary call has to be answered correctly,
and the 99th percentile of their latency is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, cast

import msgspec
import uvloop

from .answers import is_whole, read
from .calls import Echo, Work
from .child import Failed
from .envs import BENCH, ROOT
from .gateways import TOKEN, gateway_files
from .relay_peers import filled
from .requests import Era
from .runtimes import fairlead_build
from .web import WebServer

_CONNECTIONS = 32
_ATTACKER = "bench-attacker-token"
_WORK = Echo(tool="instant_echo")


@dataclass
class Phase:
    """The ordinary calls of all segments of one kind."""

    latencies: list[float] = field(default_factory=list)  # from when a call was due, in ms
    p99: list[float] = field(default_factory=list)  # of each segment
    wrong: int = 0
    sent: int = 0  # messages of the attacker
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    largest: int = 0

    def add(self, latencies: list[float], told: dict[str, Any]) -> None:
        """Add a segment: the latencies, and what the other client told at its end."""
        self.latencies += latencies
        self.p99.append(quantiles(latencies, n=100)[98])
        self.sent += told["sent"]
        self.seconds += told["seconds"]
        self.largest = max(self.largest, told["largest"])
        self.outcomes.update(told["outcomes"])

    def facts(self) -> dict[str, Any]:
        cuts = quantiles(self.latencies, n=1000)
        return {
            "calls": len(self.latencies),
            "p50_ms": round(cuts[499], 2),
            "p99_ms": round(cuts[989], 2),
            "p999_ms": round(cuts[998], 2),
            "max_ms": round(max(self.latencies), 1),
            "segments_p99_ms": [round(one, 2) for one in self.p99],
            "requests": self.sent,
            "per_second": round(self.sent / self.seconds, 1),
            "largest_answer": self.largest,
            "outcomes": dict(sorted(self.outcomes.items())),
        }


class _Client(asyncio.Protocol):
    """A keep-alive connection that makes one call at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._partial = b""
        self._due = 0.0
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, number: int, due: float, request: bytes) -> None:
        self._number, self._due = number, due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._partial + data
        if not is_whole(data):
            self._partial = data
            return
        self._partial = b""
        self._load.answered(self, self._number, self._due, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost(self)

    def close(self) -> None:
        self._transport.close()


class Load:
    """Ordinary calls at a constant rate; a call waits for a free connection."""

    def __init__(self, port: int, work: Work) -> None:
        self._port, self._work = port, work
        self._idle: deque[_Client] = deque()  # in turns, so that none is closed for being idle
        self._answers: list[tuple[int, float, bytes]] = []
        self._lost = 0
        self._closing = False

    async def __aenter__(self) -> Load:
        loop = asyncio.get_running_loop()
        for _ in range(_CONNECTIONS):
            made = await loop.create_connection(lambda: _Client(self), "127.0.0.1", self._port)
            self._idle.append(made[1])
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing = True
        for client in self._idle:
            client.close()

    def answered(self, client: _Client, number: int, due: float, data: bytes) -> None:
        self._answers.append((number, time.perf_counter() - due, data))
        self._idle.append(client)

    def lost(self, client: _Client) -> None:
        if not self._closing:
            self._lost += 1

    async def run(self, requests: list[bytes], first: int, rate: float) -> list[float]:
        """Send the requests and return their latencies in milliseconds.

        Raises:
            Failed: A connection was lost, or answers are missing after a while.
        """
        self._answers.clear()
        start, sent = time.perf_counter(), 0
        limit = start + len(requests) / rate + 60
        while len(self._answers) < len(requests):
            now = time.perf_counter()
            if self._lost or now > limit:
                missing = len(requests) - len(self._answers)
                raise Failed(f"{self._lost} connections lost, {missing} calls not answered")
            due = min(len(requests), int((now - start) * rate) + 1)
            while sent < due and self._idle:
                client = self._idle.popleft()
                client.send(first + sent, start + sent / rate, requests[sent])
                sent += 1
            await asyncio.sleep(0.0005)
        return [seconds * 1000 for _, seconds, _ in self._answers]

    def check(self, first: int, count: int) -> None:
        """Raise `Failed` unless every call had its own answer."""
        messages = []
        for _, _, data in self._answers:
            reply = read(data)
            if reply.status != 200 or len(reply.messages) != 1:
                raise Failed(f"a wrong answer: {data[:300]!r}")
            messages.append(reply.messages[0])
        self._work.check(messages, first, count)


def main() -> int:
    """Run the comparison; return 1 if a response was wrong or the limit was exceeded."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack_load", description=__doc__)
    parser.add_argument("--calls", type=int, default=50_000, help="ordinary calls of each kind")
    parser.add_argument("--segments", type=int, default=10, help="turns of each kind")
    parser.add_argument("--rate", type=float, default=20.0, help="attacks per second")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        config = _configuration(Path(folder))
        build = fairlead_build("fairlead", "", sys.executable)
        assert build.gateway is not None
        command = filled(build.gateway, config=str(config))
        with WebServer(command, era=Era.STATELESS, token=TOKEN) as server:
            facts = uvloop.run(_compare(server, options))
    print(json.dumps(facts, indent=2))
    if options.json:
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    return int(facts["ratio"] > 2 or facts["wrong"] > 0)


async def _compare(server: WebServer, options: argparse.Namespace) -> dict[str, Any]:
    saturation = await asyncio.to_thread(find_saturation, server, _WORK)
    rate = saturation / 3
    facts = await compare(
        server,
        _WORK,
        lambda kind, pace: _start(kind, server.port, pace),
        count=options.calls // options.segments,
        segments=options.segments,
        rate=rate,
        pace=options.rate,
    )
    return {"saturation": round(saturation), "rate": round(rate), **facts}


async def compare(
    server: WebServer,
    work: Work,
    start: Callable[[str, float], subprocess.Popen[bytes]],
    *,
    count: int,
    segments: int,
    rate: float,
    pace: float,
) -> dict[str, Any]:
    """Return the latencies of ordinary calls beside an attack and beside harmless messages.

    Each segment has `count` ordinary calls at `rate` per second. `start` starts the other client,
    `attack` or `harmless`, which sends `pace` messages per second until its stdin closes.
    """
    phases = {"attack": Phase(), "harmless": Phase()}
    async with Load(server.port, work) as load:
        first = 10_000_000
        for segment in range(segments):
            # Attacks first: what they manage to send is the rate of the control segment.
            sent = pace
            for kind, phase in phases.items():
                requests = server.requests(work, first, count)
                process = await asyncio.to_thread(_ready, start(kind, sent))
                try:
                    latencies = await load.run(requests, first, rate)
                finally:
                    told = await asyncio.to_thread(_stop, process)
                load.check(first, count)
                first += count
                phase.add(latencies, told)
                sent = told["sent"] / told["seconds"]
                print(f"{segment} {kind}: p99 {phase.p99[-1]:.1f} ms", file=sys.stderr)
    facts: dict[str, Any] = {"wrong": sum(phase.wrong for phase in phases.values())}
    facts |= {kind: phase.facts() for kind, phase in phases.items()}
    facts["ratio"] = round(facts["attack"]["p99_ms"] / facts["harmless"]["p99_ms"], 2)
    pairs = zip(phases["attack"].p99, phases["harmless"].p99, strict=True)
    facts["ratio_of_segments"] = round(median(a / b for a, b in pairs), 2)
    return facts


def find_saturation(server: WebServer, work: Work) -> float:
    """Return the maximum number of calls per second."""
    server.burst(work, 2000, window=_CONNECTIONS)
    return median(server.burst(work, 5000, window=_CONNECTIONS).rate for _ in range(3))


def _configuration(folder: Path) -> Path:
    path = gateway_files(folder, guarded=True)
    config = msgspec.json.decode(path.read_bytes())
    attacked = {"command": sys.executable, "args": [str(BENCH / "servers" / "attacked.py")]}
    config["servers"]["attacked"] = attacked
    config["clients"]["attacker"] = {"token": _ATTACKER}
    rules = msgspec.json.decode((folder / "rules.json").read_bytes())
    slow = {"params": {"arguments.text": {"matches": "^(a|aa)+$"}}}
    rules["rules"].append({"name": "slow pattern", "when": slow, "do": "block"})
    (folder / "rules.json").write_bytes(msgspec.json.encode(rules))
    path.write_bytes(msgspec.json.encode(config))
    return path


def _start(kind: str, port: int, rate: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.attacker", kind, str(port), _ATTACKER, str(rate)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT)


def _ready(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Wait until a process is ready: starting an interpreter takes a CPU."""
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _stop(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    told, _ = process.communicate(b"", timeout=60)
    facts: dict[str, Any] = json.loads(told)
    return facts


if __name__ == "__main__":
    sys.exit(main())
