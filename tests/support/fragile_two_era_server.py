"""A server of both eras that records its calls and can be made to exit during its start.

Run as `python -m tests.support.fragile_two_era_server FOLDER`. The first message determines the
kind of clients that a process serves: "asked" (a handshake with elicitation), "plain" (another
handshake) or "stateless". The process writes the numbers of its calls to `FOLDER/KIND.PID`. If
the file `FOLDER/KIND.exit` exists, the process removes the file and exits instead.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec

from fairlead import Context, MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed

__all__ = ["FragileServer"]

EXIT_CODE = 3
WORK = 0.005  # seconds per call, so that most processes are killed during a call


class FragileServer:
    """Methods with which tests observe and stop the processes of a fragile server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "processes"
        self._folder.mkdir()

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the server in a configuration file."""
        args = ["-m", __name__, str(self._folder)]
        root = str(Path(__file__).parents[2])
        return {"command": sys.executable, "args": args, "env": {"PYTHONPATH": root}}

    def running(self, kind: str = "*") -> list[int]:
        """Return the processes that have not ended."""
        found = [int(file.suffix[1:]) for file in self._folder.glob(f"{kind}.[0-9]*")]
        return [pid for pid in found if _runs(pid)]

    def calls(self) -> list[int]:
        """Return the numbers of all calls that processes have begun."""
        files = self._folder.glob("*.[0-9]*")
        return [int(number) for file in files for number in file.read_text().split()]

    def fail_next_start(self, kind: str) -> Path:
        """Make the next process of this kind exit, and return the file that it removes."""
        file = self._folder / f"{kind}.exit"
        file.touch()
        return file


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


# The program


class _Notes:
    """An interceptor that records calls in the file of its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: TextIO | None = None

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._file is None:
            kind = _kind(exchange)
            try:
                (self._folder / f"{kind}.exit").unlink()
            except FileNotFoundError:
                self._file = (self._folder / f"{kind}.{os.getpid()}").open("a", buffering=1)
            else:
                os._exit(EXIT_CODE)
        return await proceed(exchange)

    def add(self, number: int) -> None:
        assert self._file is not None
        self._file.write(f"{number}\n")


def _kind(exchange: Exchange) -> str:
    if exchange.caller.stateless:
        return "stateless"
    return (
        "asked" if "elicitation" in msgspec.json.decode(exchange.caller.capabilities) else "plain"
    )


def _build(folder: Path) -> MCPServer:
    notes = _Notes(folder)
    server = MCPServer("notes", rate_limit_rate=0, interceptors=[notes])

    @server.tool()
    async def work(number: int) -> str:
        """Return the number and the id of the process."""
        notes.add(number)
        await asyncio.sleep(WORK)
        return f"{number} {os.getpid()}"

    @server.tool()
    async def ask(ctx: Context, number: int) -> str:
        """Ask the user for the number, and return the answer and the id of the process."""
        notes.add(number)
        answer = await ctx.elicit(str(number), int)
        return f"{answer.data} {os.getpid()}"

    return server


if __name__ == "__main__":
    _build(Path(sys.argv[1])).run()
