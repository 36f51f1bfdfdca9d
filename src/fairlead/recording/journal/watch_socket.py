"""Live feed of a journal on a Unix socket in the user's folder.

Each connection receives one JSON object per line: the identity of the process, the records in
memory, and then each record as it ends. The server reads nothing from the connection.
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
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from ...config.paths import HostPaths, local_host_paths
from ...errors import ConfigError
from ...transport import timeouts
from ...wire import to_json
from .journal import Journal, JournalReader
from .journal_record import JournalRecord

__all__ = [
    "RecordsLost",
    "WatchHello",
    "announce_journal",
    "find_journals",
    "receive_records",
    "waiting_for_journal",
    "watch_folder",
]

# Maximum length of the folder's path in bytes; the kernel limits a socket's path to about 104.
LONGEST: Final = 90
BEAT: Final = 15.0  # seconds after which an empty line is sent to show that the process is alive
_SHORT: Final = "fairlead-"  # prefix of the folder that is used if the normal path is too long
LAST_WORDS: Final = 1.0  # seconds for late watchers and queued records before the socket closes
LOOK_INTERVAL: Final = 0.02  # seconds between looks for a watcher that is about to connect
LINE_LIMIT: Final = 4 << 20  # maximum length of a line, in bytes


class WatchHello(Struct, omit_defaults=True):
    """The identity of a process with a journal."""

    hello: str  # the name of the process
    kind: str  # tap, proxy, gateway
    pid: int
    about: str = ""


class RecordsLost(Struct):
    """The number of records that were dropped because the reader was too slow."""

    lost: int


def watch_folder(machine: HostPaths | None = None, *, make: bool = True) -> Path:
    """Return the folder that contains the sockets. If `make`, create it with access for this user
    only.

    Raises:
        ConfigError: The folder belongs to another user, or is a link.
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
    # In a shared folder such as /tmp, another user could have created this path or a link.
    facts = place.lstat()
    if facts.st_uid != os.getuid() or place.is_symlink():
        raise ConfigError(f"{place} must belong to the current user and must not be a link")
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
    """Serve a journal on a socket that `fairlead watch` finds; `pid` defaults to this process.

    Raises:
        OSError, ConfigError: The socket cannot be created.
    """
    place, pid = folder or watch_folder(), pid or os.getpid()
    path = place / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:24] or 'x'}-{pid}.sock"
    hello = to_json(WatchHello(name, kind, pid, about)) + b"\n"
    speaking: dict[asyncio.Task[None], JournalReader] = {}

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            # Failing watchers, or too many of them, must not affect the observed process.
            with contextlib.suppress(OSError, RuntimeError, asyncio.CancelledError):
                reader = speaking[task] = journal.follow()
                await _speak(journal, hello, reader, writer)
        finally:
            if task in speaking:
                speaking.pop(task).close()
            writer.close()

    # Named only once it accepts connections: `find_journals` removes sockets that refuse them.
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
        await _let_watchers_connect(place, {"", name, str(pid)})
        server.close()
        path.unlink(missing_ok=True)
        # The folder that replaces a long path is used for one socket only, so it is removed too.
        if place.name.startswith(_SHORT):
            with contextlib.suppress(OSError):
                place.rmdir()
        for reader in speaking.values():
            reader.close()  # the connection's task then sends the queued records and ends
        if speaking:
            _, late = await asyncio.wait(list(speaking), timeout=LAST_WORDS)
            for task in late:
                task.cancel()


async def _let_watchers_connect(place: Path, names: set[str]) -> None:
    """Wait for watchers that look for this process, which may have started only just now."""
    with contextlib.suppress(TimeoutError):
        async with timeouts.timeout(LAST_WORDS):
            # The watcher is another process, so no event can be awaited.
            while _is_awaited(place, names):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_INTERVAL)


def _is_awaited(place: Path, names: set[str]) -> bool:
    return any(_waits_for(one, names) for one in place.glob("*.waiting"))


def _waits_for(marker: Path, names: set[str]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        wanted = marker.read_text(errors="replace")
        os.kill(int(marker.stem), 0)  # a watcher that was killed leaves its marker
        return wanted in names
    return False


async def _speak(
    journal: Journal, hello: bytes, reader: JournalReader, writer: asyncio.StreamWriter
) -> None:
    told = 0
    writer.write(hello)
    said: set[int] = set()
    for record in journal.records():
        if record.state != "pending":
            # An exchange that ended after `follow` is queued too, and must not be sent twice.
            said.add(record.id)
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


# Client side


@contextlib.contextmanager
def waiting_for_journal(name: str = "") -> Iterator[None]:
    """Tell processes with this name, or all, not to end before the caller has connected."""
    marker = watch_folder() / f"{os.getpid()}.waiting"
    marker.write_text(name)
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def find_journals(folder: Path | None = None) -> Iterator[tuple[Path, WatchHello]]:
    """Yield the running processes, newest first, and remove sockets of dead processes."""
    place = folder or watch_folder(make=False)
    sockets = [(one.stat().st_mtime, one) for one in place.glob("*.sock")]
    for _, path in sorted(sockets, reverse=True):
        try:
            with _connect(path, 2.0) as lines:
                yield path, msgspec.json.decode(lines.readline(LINE_LIMIT), type=WatchHello)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, msgspec.DecodeError):
            continue


def receive_records(path: Path) -> Iterator[JournalRecord | RecordsLost | WatchHello | None]:
    """Yield the objects of a connection until it ends; None for an empty line."""
    with _connect(path) as lines:
        while line := lines.readline(LINE_LIMIT):
            if not line.strip():
                yield None
            elif line.startswith(b'{"hello"'):
                yield msgspec.json.decode(line, type=WatchHello)
            elif line.startswith(b'{"lost"'):
                yield msgspec.json.decode(line, type=RecordsLost)
            else:
                yield msgspec.json.decode(line, type=JournalRecord)


def _connect(path: Path, timeout: float | None = None) -> BinaryIO:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
        there.settimeout(timeout)
        there.connect(str(path))
        return there.makefile("rb")  # keeps the connection open until this object is closed
