"""A journal for whoever watches on this machine: a unix socket in a folder of the user's own.

Each connection hears, as one JSON object a line, who we are, what is remembered, and what happens
from then on. Nothing is read from it.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ...config.paths import HostPaths, local_host_paths
from ...errors import ConfigError
from ...wire import to_json
from .journal import Journal, JournalReader
from .journal_record import JournalRecord

__all__ = [
    "RecordsLost",
    "WatchHello",
    "announce_journal",
    "find_journals",
    "receive_records",
    "watch_folder",
]

LONGEST: Final = 90  # bytes of a folder's name; the kernel takes some 104 of a whole socket
BEAT: Final = 15.0  # seconds after which an empty line shows that we are still there
_SHORT: Final = "fairlead-"  # how folders begin that stand in for one with too long a name
LAST_WORDS: Final = 1.0  # seconds
LINE_LIMIT: Final = 4 << 20


class WatchHello(Struct, omit_defaults=True):
    """Who is there."""

    hello: str  # its name
    kind: str  # tap, proxy, gateway
    pid: int
    about: str = ""


class RecordsLost(Struct):
    """Records that came faster than they were read."""

    lost: int


def watch_folder(machine: HostPaths | None = None, *, make: bool = True) -> Path:
    """Where sockets are announced; made if it shall be, and nobody else may look into it.

    Raises:
        ConfigError: it belongs to somebody else.
    """
    machine = machine or local_host_paths()
    runtime = machine.variable("XDG_RUNTIME_DIR")
    if moved := machine.variable("FAIRLEAD_HOME"):
        folder = machine.join(moved, "run")
    elif runtime and os.path.isdir(runtime):
        folder = machine.join(runtime, "fairlead")
    else:
        folder = machine.join(machine.own_cache, "run")
    if len(os.fsencode(folder)) > LONGEST - 32:
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        folder = os.path.join(tempfile.gettempdir(), f"{_SHORT}{os.getuid()}-{digest}")
    place = Path(folder)
    if not make and not place.exists():
        return place
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = place.lstat()
    if facts.st_uid != os.getuid() or place.is_symlink():
        raise ConfigError(f"{place} belongs to somebody else")
    if facts.st_mode & 0o077:
        place.chmod(0o700)
    return place


@asynccontextmanager
async def announce_journal(
    journal: Journal,
    name: str,
    kind: str,
    about: str = "",
    *,
    pid: int | None = None,
    folder: Path | None = None,
) -> AsyncIterator[Path]:
    """While this is open, `fairlead watch` finds the journal; `pid` if it is not our own.

    Raises:
        OSError, ConfigError: there is no place for the socket.
    """
    place, pid = folder or watch_folder(), pid or os.getpid()
    path = place / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:24] or 'x'}-{pid}.sock"
    hello = to_json(WatchHello(name, kind, pid, about)) + b"\n"
    speaking: dict[asyncio.Task[None], JournalReader] = {}

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            with contextlib.suppress(OSError, RuntimeError, asyncio.CancelledError):
                reader = speaking[task] = journal.follow()
                await _speak(journal, hello, reader, writer)
        finally:
            if task in speaking:
                speaking.pop(task).close()
            writer.close()

    # The name appears once the socket accepts connections; `find_journals` removes others.
    hidden = path.with_suffix(".new")
    hidden.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(hidden))
    hidden.chmod(0o600)
    listening.listen(100)
    hidden.replace(path)
    server = await asyncio.start_unix_server(speak, sock=listening)
    try:
        yield path
    finally:
        server.close()
        path.unlink(missing_ok=True)
        if place.name.startswith(_SHORT):  # nobody would ever look for what is left there
            with contextlib.suppress(OSError):
                place.rmdir()
        for reader in speaking.values():
            reader.close()  # the last words are still said
        if speaking:
            _, late = await asyncio.wait(list(speaking), timeout=LAST_WORDS)
            for task in late:
                task.cancel()


async def _speak(
    journal: Journal, hello: bytes, reader: JournalReader, writer: asyncio.StreamWriter
) -> None:
    told = 0
    writer.write(hello)
    said: set[int] = set()
    for record in journal.records():
        if record.state != "pending":
            said.add(record.id)  # it may have ended just now, and wait for us as news as well
        writer.write(to_json(record) + b"\n")
        await writer.drain()
    while True:
        writer.write(b"\n")
        await writer.drain()
        for record in await reader.wait(BEAT):
            if record.id not in said:
                writer.write(to_json(record) + b"\n")
        said.clear()
        if reader.lost > told:
            writer.write(to_json(RecordsLost(reader.lost - told)) + b"\n")
            told = reader.lost
        if reader.closed:
            await writer.drain()
            return


# The other side


def find_journals(folder: Path | None = None) -> Iterator[tuple[Path, WatchHello]]:
    """Who is there now, the newest first; sockets of the dead are taken away."""
    place = folder or watch_folder(make=False)
    sockets = [(one.stat().st_mtime, one) for one in place.glob("*.sock")]
    for _, path in sorted(sockets, reverse=True):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
                there.settimeout(2.0)
                there.connect(str(path))
                with there.makefile("rb") as lines:
                    yield path, msgspec.json.decode(lines.readline(LINE_LIMIT), type=WatchHello)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, msgspec.DecodeError):
            continue


def receive_records(path: Path) -> Iterator[JournalRecord | RecordsLost | WatchHello | None]:
    """What is said there, until it ends; None now and then, when there is nothing to say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
        there.connect(str(path))
        with there.makefile("rb") as lines:
            while line := lines.readline(LINE_LIMIT):
                if not line.strip():
                    yield None
                elif line.startswith(b'{"hello"'):
                    yield msgspec.json.decode(line, type=WatchHello)
                elif line.startswith(b'{"lost"'):
                    yield msgspec.json.decode(line, type=RecordsLost)
                else:
                    yield msgspec.json.decode(line, type=JournalRecord)
