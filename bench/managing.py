"""Measurements of managers of many servers; `cases.py` selects them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from . import envs
from .child import Failed
from .measures import Effort
from .pool import Pool
from .rounds import Row, take_turns
from .runtimes import Command, Runtime, builds_of

__all__ = ["Cold", "Naming", "Resting", "Warm"]

_SERVERS = envs.BENCH / "servers"
_SMALL: Command = (sys.executable, str(_SERVERS / "small.py"))
_SILENT: Command = (sys.executable, "-c", "import sys\nfor line in sys.stdin: pass")
_CRASHING: Command = (sys.executable, "-c", "raise SystemExit(1)")
_COUNT, _PLACES = 20, {"silent": 7, "crashing": 13}  # where among them the two bad ones stand
_PATIENCE = 60.0

Fact = dict[str, float]


class Fleet:
    """A home directory with configured servers, and a project directory."""

    def __init__(self, folder: Path, server: Command = _SMALL, *, sound: bool = False) -> None:
        """Create the directories; with `sound`, no server is silent or crashes."""
        self._folder = folder
        places = {} if sound else {place: kind for kind, place in _PLACES.items()}
        names = [places.get(n, f"healthy-{n:02d}") for n in range(_COUNT)]
        commands = {"silent": _SILENT, "crashing": _CRASHING}
        entries = {name: _entry(commands.get(name, server), name) for name in names}
        healthy = {name: entry for name, entry in entries.items() if name not in commands}
        self.healthy = len(healthy)
        self.all = self._write("home/.config/fairlead/mcp.json", entries)
        self.only_healthy = self._write("healthy.json", healthy)
        (folder / "project").mkdir()

    def forget(self) -> None:
        """Delete the cache."""
        shutil.rmtree(self._folder / "home" / ".cache", ignore_errors=True)

    def run(self, command: Sequence[str], seconds: float = 0) -> Fact:
        """Run a manager in this home and return its result; `seconds` is its own running time.

        Raises:
            Failed: The manager fails or prints no result.
        """
        return self.hear(self.start(command), seconds)

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "FAIRLEAD_"))}
        env["HOME"] = str(self._folder / "home")
        pipe, folder = subprocess.PIPE, self._folder / "project"
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, env=env, cwd=folder)

    def hear(self, process: subprocess.Popen[bytes], seconds: float = 0) -> Fact:
        try:
            told, complaint = process.communicate(timeout=seconds + _PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f"nothing within {seconds + _PATIENCE:g} s") from None
        if process.returncode:
            text = complaint.decode(errors="replace").replace(f"{envs.ROOT}/", "").strip()
            raise Failed(text[-2000:] or f"ended with status {process.returncode}")
        return msgspec.json.decode(told, type=Fact)

    def _write(self, name: str, entries: Mapping[str, object]) -> str:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode({"mcpServers": entries}))
        return str(path)


@dataclass(frozen=True, kw_only=True)
class Warm:
    """Milliseconds until discovery returns with the tools of the healthy servers.

    With `every`, all twenty are in the cache, also the two bad ones, which worked before. Without,
    the bad ones are unknown and not waited for (`startup="background"`).
    """

    every: bool

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        what = "warm" if self.every else "background"
        with _fleet() as fleet:

            def ours(command: Command) -> Fact:
                fleet.forget()
                known = 0 if self.every else fleet.healthy
                fleet.run([*command, "remember", fleet.all, str(known)])
                return fleet.run([*command, what, fleet.all, str(fleet.healthy)])

            bursts = {r.name: partial(ours, r.manager) for r in _ours(runtimes)}
            _take_turns(row, bursts, effort.rounds, effort)


@dataclass(frozen=True, kw_only=True)
class Cold:
    """Milliseconds until the tools of every healthy server are listed, with an empty cache.

    The bare manager starts the same twenty and reads the first responses of the healthy ones.
    """

    server: str = "small.py"

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        with _fleet((sys.executable, str(_SERVERS / self.server))) as fleet:

            def measure(name: str, command: Command) -> Fact:
                fleet.forget()
                # FastMCP's client would wait for the silent server, so it gets only healthy ones.
                config = fleet.only_healthy if name == "fastmcp" else fleet.all
                return fleet.run([*command, "start", config, str(fleet.healthy)])

            playing = list(_those(runtimes))
            bursts = {one.name: partial(measure, one.name, one.manager) for one in playing}
            for burst in bursts.values():
                _write_bytecode(burst)
            _take_turns(row, bursts, effort.rounds if row.targets else effort.spawns, effort)


@dataclass(frozen=True, kw_only=True)
class Naming:
    """Milliseconds that 200 servers with 50 tools each take to be listed under their names."""

    what: str  # "names": that alone; "cached": with the cache and all; "lists": by a gateway

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        with _fleet() as fleet:
            bursts = {
                r.name: partial(fleet.run, [*r.manager, self.what, fleet.all, "0"])
                for r in _ours(runtimes)
            }
            _take_turns(row, bursts, effort.spawns, effort)


class Resting:
    """Percent of a core that a manager takes with twenty servers connected and nothing to do."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        with _fleet(sound=True) as fleet:
            # All at the same time: CPU time does not depend on other processes.
            running = {
                r.name: fleet.start([*r.manager, "idle", fleet.all, str(effort.idle)])
                for r in (*_ours(runtimes), *_those(runtimes, "fastmcp"))
            }
            for name, process in running.items():
                try:
                    told = fleet.hear(process, effort.idle)
                except Failed as failure:
                    row.failed[name] = str(failure)
                else:
                    row.samples[name] = [100 * told["cpu_ms"] / told["ms"]]
                    row.notes[name] = {"seconds": round(told["ms"] / 1000)}


def _write_bytecode(burst: Callable[[], Fact]) -> None:
    """Run once before measuring: the first import writes bytecode."""
    try:
        burst()
    except Failed:
        pass  # the measurement will fail and report it


def _take_turns(
    row: Row, bursts: Mapping[str, Callable[[], Fact]], rounds: int, effort: Effort
) -> None:
    """Take turns: the milliseconds of each are its samples, other values its notes."""
    told: dict[str, list[Fact]] = {}

    def measure(name: str) -> float:
        fact = bursts[name]()
        told.setdefault(name, []).append(fact)
        return fact["ms"]

    turns = {name: partial(measure, name) for name in bursts}
    take_turns(row, turns, rounds, effort.row_seconds)
    for name, facts in told.items():
        keys = [key for key in facts[0] if key != "ms"]
        row.notes[name] = {key: round(median(fact[key] for fact in facts), 1) for key in keys}


def _those(runtimes: Sequence[Runtime], *names: str) -> Iterator[_Managing]:
    for runtime in runtimes:
        if runtime.manager and (not names or runtime.name in names):
            yield _Managing(runtime.name, runtime.manager)


def _ours(runtimes: Sequence[Runtime]) -> Iterator[_Managing]:
    yield from _those(runtimes, *(runtime.name for runtime in builds_of(runtimes)))


@dataclass(frozen=True)
class _Managing:
    name: str
    manager: Command


def _entry(command: Command, name: str) -> dict[str, object]:
    # The variable makes each entry a different server, so that the cache treats them separately.
    return {"command": command[0], "args": list(command[1:]), "env": {"BENCH_SERVER": name}}


@contextmanager
def _fleet(server: Command = _SMALL, *, sound: bool = False) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        yield Fleet(Path(folder), server, sound=sound)
