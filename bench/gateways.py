"""Measurements of gateways; `cases.py` selects them.

A gateway serves three servers, one of which is called. With `guarded` it has a realistic
configuration: named clients with tokens, a view, rules that block, limit and redact, a journal and
metrics.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from .calls import Echo
from .cpu import one_cpu
from .load import Burst
from .measures import Effort, play, pool_key
from .pool import Pool
from .relay_peers import filled
from .requests import Era
from .rounds import Row
from .runtimes import INSTANT, Command, Runtime
from .web import WebServer

__all__ = ["TOKEN", "GatewayCalls", "gateway_files"]

TOKEN = "bench-client-token"
_CALLED = "instant"
_PEERS = "servers.json"
_RULES = {
    "rules": [
        {"name": "no deletions", "when": {"tool": ["*_erase", "*_delete"]}, "do": "block"},
        {
            "name": "rate",
            "when": {"method": "tools/call"},
            "do": {"rate": {"rate": 1e6, "burst": 1e6, "per": ["identity", "tool"]}},
        },
        {"name": "no secrets", "do": "redact"},
    ]
}


def gateway_files(folder: Path, *, guarded: bool) -> Path:
    """Write the configuration of a gateway into `folder` and return its path.

    Beside it is a file with the same servers in the form that the peers read.
    """
    entry = {"command": INSTANT[0], "args": list(INSTANT[1:])}
    config: dict[str, object] = {"servers": dict.fromkeys((_CALLED, "one", "two"), entry)}
    if guarded:
        (folder / "rules.json").write_bytes(msgspec.json.encode(_RULES))
        config |= {
            "rules": "rules.json",
            "journal": True,
            "metrics": True,
            "clients": {"bench": {"token": TOKEN, "view": "bench"}},
            "views": {"bench": {"servers": [_CALLED], "allow": [f"{_CALLED}_*"]}},
        }
    (folder / _PEERS).write_bytes(msgspec.json.encode({"mcpServers": config["servers"]}))
    path = folder / "gateway.json"
    path.write_bytes(msgspec.json.encode(config))
    return path


@dataclass(frozen=True, kw_only=True)
class GatewayCalls:
    """Calls per second through a gateway, from HTTP to a stdio server."""

    window: int = 1
    era: Era = Era.HANDSHAKE
    alone: bool = False  # at the path of the one server instead of the merged endpoint
    guarded: bool = False
    one_cpu: bool = False

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        work = Echo(tool="echo" if self.alone else f"{_CALLED}_echo")
        token = TOKEN if self.guarded else None
        seen: dict[str, list[Burst]] = {}

        def burst(server: WebServer, name: str, calls: int) -> float:
            done = server.burst(work, calls, window=self.window)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            path = self._path(runtime)
            start = partial(WebServer, command, era=self.era, path=path, token=token)
            return partial(burst, pool.get(key, start), runtime.name)

        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            config = str(gateway_files(Path(folder), guarded=self.guarded))
            servers = str(Path(folder, _PEERS))
            players = [
                (runtime, filled(runtime.gateway, config=config, servers=servers))
                for runtime in self._taking_part(runtimes)
                if runtime.gateway
            ]
            kind = "gateway"
            row.pinned = self.one_cpu
            with one_cpu(self.one_cpu):
                calls = range(2 * self.window, work.most)
                play(row, players, effort, pool, join, kind, calls, compared=work)
            for runtime, command in players:
                pool.drop(pool_key(kind, runtime, command))
        for name, done in seen.items():
            measured = done[-len(row.samples.get(name, done)) :]  # without the warm-up
            spent, made = sum(b.served for b in measured), sum(b.calls for b in measured)
            row.notes[name] = {
                "generator_busy": round(median(b.busy / b.seconds for b in measured), 2),
                "server_cpu_us": round(spent / made * 1e6, 1),
            }

    def _taking_part(self, runtimes: Sequence[Runtime]) -> list[Runtime]:
        """Return the gateways with the endpoint; peers have no equivalent of the guarded one."""
        return [
            runtime
            for runtime in runtimes
            if (runtime.build or not self.guarded)
            and self.era in runtime.gateway_eras
            and self._path(runtime)
        ]

    def _path(self, runtime: Runtime) -> str:
        path = runtime.gateway_paths if self.alone else runtime.gateway_path
        return (path or "").replace("{name}", _CALLED)
