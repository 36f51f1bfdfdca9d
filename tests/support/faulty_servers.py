"""Servers that crash or hang, and checks for leaked processes, tasks and descriptors."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fairlead.manager.manager import MCPManager

LIMIT = 20.0

# The server is plain Python, so that it starts fast and uses no Fairlead code. `plan` has one
# entry per start; the last entry applies to all later starts. An entry has the method at which
# the server exits or hangs, or the number of calls that it serves.
PROGRAM = """
import json, os, signal, subprocess, sys, time

name, log, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def note(*words):
    with open(log, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

note("start", os.getpid())
starts = sum(line.startswith("start") for line in open(log))
now = plan[min(starts, len(plan)) - 1] if plan else {}
if now.get("grandchild"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", log])
    note("grandchild", child.pid)
if "exit" in now:
    sys.exit(now["exit"])
tool = {"inputSchema": {"type": "object"}}
TOOLS = [
    {**tool, "name": "whoami", "annotations": {"readOnlyHint": True}},
    {**tool, "name": "work"},
    {**tool, "name": "wait"},
    {**tool, "name": "sleep"},
]
calls = 0
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None or method is None:
        continue
    note("got", method)
    if now.get("hang") == method:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if now.get("deaf") else signal.SIG_DFL)
        time.sleep(3600)
    if now.get("die") == method:
        os.kill(os.getpid(), signal.SIGKILL)
    result, error = {}, None
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        given = message["params"]
        note("did", given.get("arguments", {}).get("n"))
        if given["name"] == "wait":
            continue
        if given["name"] == "sleep":
            time.sleep(given["arguments"]["seconds"])
        result = {"content": [{"type": "text", "text": f"{name} {os.getpid()}"}]}
        calls += 1
    elif method != "ping":
        error = {"code": -32601, "message": "Method not found"}
    answer = {"error": error} if error else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, **answer}) + "\\n")
    sys.stdout.flush()
    if calls and calls == now.get("calls"):
        sys.exit(0)
"""


class Rough:
    """A faulty server and the log it writes."""

    def __init__(self, folder: Path, name: str, *plan: dict[str, Any], **more: Any) -> None:
        self.name = name
        self._program = folder / "rough_program.py"
        self._program.write_text(PROGRAM)
        self._log = folder / f"{name}.log"
        self._log.touch()
        words = ["-S", "-E", str(self._program), name, str(self._log), json.dumps(plan)]
        self.entry: dict[str, Any] = {"command": sys.executable, "args": words, **more}

    def notes(self, word: str) -> list[str]:
        lines = (line.split(" ", 1) for line in self._log.read_text().splitlines())
        return [rest for first, rest in lines if first == word]

    @property
    def pids(self) -> list[int]:
        """Return the ids of all processes of the server, in order of their start."""
        return [int(pid) for pid in self.notes("start")]

    async def got(self, method: str, start: int) -> int:
        """Wait until start number `start` has read a message, and return its process id."""
        await until(lambda: self._read_by(start).count(f"got {method}") > 0)
        return self.pids[start - 1]

    def _read_by(self, start: int) -> list[str]:
        lines = self._log.read_text().splitlines()
        begins = [i for i, line in enumerate(lines) if line.startswith("start ")]
        return lines[begins[start - 1] :] if len(begins) >= start else []

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[-1], signal.SIGKILL)


async def until(condition: Callable[[], bool], limit: float = LIMIT) -> None:
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.005)


async def run(manager: MCPManager, name: str, arguments: Any = None, **options: Any) -> str:
    tool = manager.get_tool(name)
    assert tool is not None, [tool.name for tool in manager.get_tools()]
    return (await tool.execute(arguments, **options)).text


def alive(folder: Path) -> list[str]:
    """Return the command lines of processes that mention this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (place.parent / "stat").read_text().rpartition(")")[2].split()[0]
            if str(folder) in words and status != "Z":
                found.append(f"{place.parent.name}: {words}")
    return found


@contextlib.asynccontextmanager
async def nothing_left(folder: Path) -> AsyncIterator[None]:
    """Check that the block leaves no process, task or descriptor behind."""
    # The first connection creates objects that stay in the process and are not leaks.
    async with MCPManager() as manager:
        await manager.connect_servers({"warm": Rough(folder, "warm").entry})
    await _quiet(folder)
    tasks, before = asyncio.all_tasks(), _descriptors()
    yield
    await _quiet(folder)
    left = [task for task in asyncio.all_tasks() - tasks if not task.done()]
    if left:
        await asyncio.wait(left, timeout=1)
    assert not [task for task in left if not task.done()]
    gc.collect()
    with contextlib.suppress(TimeoutError):
        await until(lambda: len(_descriptors()) <= len(before), 2)
    assert len(_descriptors()) <= len(before), (before, _descriptors())


async def _quiet(folder: Path) -> None:
    with contextlib.suppress(TimeoutError):
        await until(lambda: not alive(folder), 2)
    assert alive(folder) == []


def _descriptors() -> dict[str, str]:
    found = {}
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[place.name] = os.readlink(place)
    return found
