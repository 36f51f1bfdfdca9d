"""Tests of the socket of a journal: its location, content and removal."""

import asyncio
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.config.paths import HostPaths
from fairlead.errors import ConfigError
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal
from fairlead.recording.journal import watch_socket as watching
from fairlead.recording.journal.watch_socket import (
    announce_journal,
    find_journals,
    watch_folder,
)

UP = Direction.CLIENT_TO_SERVER


def machine(home: Path, **env: str) -> HostPaths:
    return HostPaths(platform="linux", home=str(home), env=env, cwd="/")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory with a short path, which is also used for temporary files."""
    with tempfile.TemporaryDirectory(prefix="w", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_the_directory_of_watch_sockets_depends_on_the_environment(short: Path) -> None:
    (short / "run").mkdir()
    there, missing = str(short / "run"), str(short / "none")
    own = watch_folder(machine(short, FAIRLEAD_HOME=str(short / "own"), XDG_RUNTIME_DIR=there))
    assert own == short / "own" / "run"
    assert watch_folder(machine(short, XDG_RUNTIME_DIR=there)) == short / "run" / "fairlead"
    cached = watch_folder(machine(short, XDG_RUNTIME_DIR=missing))
    assert cached == watch_folder(machine(short)) == short / ".cache" / "fairlead" / "run"
    for made in (own, cached):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_the_directory_of_watch_sockets_is_created_only_on_request(short: Path) -> None:
    here = machine(short, FAIRLEAD_HOME=str(short))
    assert not watch_folder(here, make=False).exists()
    assert watch_folder(here).is_dir()
    assert watch_folder(here, make=False) == short / "run"


def test_the_directory_of_watch_sockets_is_private_to_its_user(short: Path) -> None:
    (short / "run").mkdir(mode=0o755)
    assert (
        stat.S_IMODE(watch_folder(machine(short, FAIRLEAD_HOME=str(short))).stat().st_mode) == 0o700
    )


def test_a_symbolic_link_in_place_of_the_directory_is_rejected(short: Path) -> None:
    (short / "other").mkdir()
    (short / "run").symlink_to(short / "other")
    with pytest.raises(ConfigError, match=r"run must belong to the current user"):
        watch_folder(machine(short, FAIRLEAD_HOME=str(short)))


@pytest.mark.parametrize(("length", "replaced"), [(58, False), (59, True)])
def test_the_directory_is_replaced_if_socket_paths_would_be_too_long(
    short: Path, length: int, replaced: bool
) -> None:
    home = short / ("x" * (length - len(str(short / "a" / "run")) + 1))
    folder = watch_folder(machine(short, FAIRLEAD_HOME=str(home)))
    assert len(str(home / "run")) == length
    assert (folder != home / "run") is replaced
    if replaced:
        assert folder.parent == short
        assert folder.name.startswith(f"fairlead-{os.getuid()}-")


async def lines_of(path: Path, count: int) -> tuple[list[Any], asyncio.StreamReader, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    return [msgspec.json.decode(await reader.readline()) for _ in range(count)], reader, writer


async def test_a_watcher_receives_the_hello_then_earlier_and_new_records(short: Path) -> None:
    journal = Journal()
    journal.end(journal.begin(UP, "request", "done"), "ok")
    waits = journal.begin(UP, "request", "waits")
    async with (
        asyncio.timeout(10),
        announce_journal(journal, "a b/c", "tap", "about", pid=7, folder=short) as path,
    ):
        assert path == short / "a-b-c-7.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [one.name for one in short.iterdir()] == [path.name]
        (hello, done, pending), reader, writer = await lines_of(path, 3)
        assert hello == {"hello": "a b/c", "kind": "tap", "pid": 7, "about": "about"}
        assert (done["method"], done["state"]) == ("done", "ok")
        assert (pending["method"], "state" in pending) == ("waits", False)
        assert await reader.readline() == b"\n"  # a heartbeat
        journal.end(waits, "ok")
        assert msgspec.json.decode(await reader.readline())["state"] == "ok"
        writer.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [("", "x-7.sock"), ("n" * 30, "n" * 24 + "-7.sock"), ("a.b_c-d", "a.b_c-d-7.sock")],
)
async def test_a_watch_socket_is_named_after_its_process(short: Path, name: str, file: str) -> None:
    async with announce_journal(Journal(), name, "tap", pid=7, folder=short) as path:
        assert path.name == file
    async with announce_journal(Journal(), "x", "tap", folder=short) as path:
        assert path.name == f"x-{os.getpid()}.sock"


async def test_queued_records_are_sent_before_the_socket_closes(short: Path) -> None:
    journal = Journal()
    async with asyncio.timeout(10):
        async with announce_journal(journal, "x", "tap", folder=short) as path:
            _, reader, writer = await lines_of(path, 1)
            assert await reader.readline() == b"\n"
            journal.end(journal.begin(UP, "request", "last"), "ok")
        assert b'"method":"last"' in await reader.read()
        writer.close()
    assert len(journal._readers) == 0


async def test_the_number_of_readers_is_limited_and_disconnected_readers_do_not_count(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal()
    monkeypatch.setattr("fairlead.recording.journal.journal.MAX_READERS", 1)
    monkeypatch.setattr(watching, "BEAT", 0.01)
    async with asyncio.timeout(10), announce_journal(journal, "x", "tap", folder=short) as path:
        _, _, writer = await lines_of(path, 1)
        refused, other = await asyncio.open_unix_connection(str(path))
        assert await refused.read() == b""  # too many readers
        other.close()
        writer.close()
        while journal._readers:
            await asyncio.sleep(0)
        _, _, writer = await lines_of(path, 1)
        writer.close()


async def test_a_slow_reader_is_notified_of_lost_records_once(short: Path) -> None:
    journal = Journal()
    async with asyncio.timeout(10), announce_journal(journal, "x", "tap", folder=short) as path:
        _, reader, writer = await lines_of(path, 1)
        assert await reader.readline() == b"\n"
        for lost in (3, 2):
            for _ in range(1000 + lost):
                journal.end(journal.begin(UP, "notification", "n"), "passed")
            found = [await reader.readline() for _ in range(1001)]
            assert found[-1] == b'{"lost":%d}\n' % lost
            assert await reader.readline() == b"\n"
        writer.close()


async def test_a_replacement_directory_is_removed_with_the_last_socket(short: Path) -> None:
    stands_in, real = short / "fairlead-1-x", short / "real"
    for folder in (stands_in, real):
        folder.mkdir()
        async with announce_journal(Journal(), "x", "tap", folder=folder):
            pass
    assert (stands_in.exists(), real.exists()) == (False, True)


async def test_sockets_of_dead_processes_are_removed_and_other_sockets_are_listed(
    short: Path,
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(short / "dead-1.sock"))  # bound, but accepts no connections
    (short / "file-1.sock").touch()
    (short / "other").touch()
    async with announce_journal(Journal(), "old", "tap", pid=1, folder=short) as old:
        os.utime(old, (1, 1))
        async with announce_journal(Journal(), "new", "proxy", pid=2, folder=short):
            async with asyncio.timeout(10):
                found = await asyncio.to_thread(lambda: list(find_journals(short)))
    assert [(one.hello, one.kind) for _, one in found] == [("new", "proxy"), ("old", "tap")]
    assert [one.name for one in short.iterdir()] == ["other"]


def test_a_socket_that_sends_invalid_data_is_neither_listed_nor_removed(short: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
        there.bind(str(short / "odd-1.sock"))
        there.listen(2)
        os.utime(short / "odd-1.sock", (2, 2))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(short / "dead-1.sock"))
        os.utime(short / "dead-1.sock", (1, 1))

        def answer() -> None:
            other, _ = there.accept()
            with other:
                other.sendall(b"nonsense\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert list(find_journals(short)) == []
        thread.join(5)
    assert [one.name for one in short.iterdir()] == ["odd-1.sock"]
