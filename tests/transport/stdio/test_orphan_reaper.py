"""Tests that no process or descriptor is left after failed starts, connections and shutdowns."""

import asyncio
import contextlib
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from fairlead import MCPClient
from fairlead.client.mcp_transport.factory import StdioTransport
from fairlead.errors import ChannelClosed, ConnectFailed
from fairlead.transport.stdio import orphan_reaper as reaper
from fairlead.transport.stdio.child_process import ProcessChannel, spawn

CAT = ["cat"]


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Limit the number of open files in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


def descriptors() -> set[str]:
    """Return the open descriptors, without the one used to list them."""
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def children() -> set[str]:
    """Return the child processes, including zombies, without reapers."""
    found: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        # The thread has just ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(Path(f"/proc/self/task/{task}/children").read_text().split())
    for pid in found:
        with contextlib.suppress(FileNotFoundError):
            if b"groups=" in Path(f"/proc/{pid}/cmdline").read_bytes():
                reapers.add(pid)
    return found - reapers


reapers: set[str] = set()  # never reaped


class Left:
    """Open descriptors and children at creation, and a check that none were added since."""

    def __init__(self) -> None:
        gc.collect()
        self.descriptors, self.children = descriptors(), children()

    async def nothing(self) -> None:
        async with asyncio.timeout(5):
            while children() - self.children or descriptors() - self.descriptors:
                await asyncio.sleep(0.001)


async def works() -> None:
    channel = await spawn(CAT)
    await channel.close()


async def test_a_start_without_free_descriptors_fails_and_the_next_one_succeeds(
    loop_kind: str,
) -> None:
    await works()
    left = Left()
    outcomes = []
    for count in range(12):
        with descriptors_left(count):
            try:
                await works()
                outcomes.append("worked")
            except ConnectFailed as exc:
                outcomes.append(str(exc))
        await left.nothing()
        await works()
    assert outcomes == sorted(outcomes)  # starts fail until enough descriptors are available
    shortage = "[Errno 24] Too many open files (out of file descriptors on this machine)"
    assert set(outcomes) == {f"Could not start `cat`: {shortage}", "worked"}


async def test_a_reaper_that_cannot_be_started_leaves_no_descriptors() -> None:
    await works()
    left = Left()
    reaper._forget()  # as if the reaper had been killed
    process = popen()
    before = descriptors()
    for count in range(5):
        with descriptors_left(count), pytest.raises(OSError, match="Too many open files"):
            reaper.register(process.pid)
        assert descriptors() == before
    process.communicate()
    await works()
    left.descriptors = descriptors()
    await left.nothing()


async def test_a_lack_of_descriptors_after_the_start_leaves_no_process(loop_kind: str) -> None:
    await works()
    left = Left()
    for count in range(4):
        process = popen()
        channel = ProcessChannel(CAT, process)
        with descriptors_left(count):
            try:
                await channel.connect()
            except OSError:
                assert process.returncode is not None  # the process was reaped
                assert count < 2
        await channel.close()
        await left.nothing()


async def test_cancelling_a_connection_at_any_step_leaves_no_process_or_descriptor(
    loop_kind: str,
) -> None:
    await works()
    left = Left()
    cancelled = 0
    for turns in range(1, 12):
        channel = ProcessChannel(CAT, popen())
        connecting = asyncio.create_task(channel.connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        try:
            await connecting
        except asyncio.CancelledError:
            cancelled += 1
        else:
            await channel.close()
        await left.nothing()
    assert 0 < cancelled < 11


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_closing_the_event_loop_does_not_interrupt_the_shutdown_of_a_server(
    tmp_path: Path, loop_kind: str, turns: int
) -> None:
    """Closing the loop cancels all tasks, possibly before the closing task's first step."""
    await works()
    left = Left()
    note = tmp_path / "note"
    channel = await spawn(["sh", "-c", 'cat; sleep 0.2; echo left > "$0"', str(note)])
    closing = asyncio.ensure_future(channel.close())
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    everybody = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
    assert len(everybody) == 2
    for task in everybody:
        task.cancel()
    await asyncio.wait(everybody)
    assert closing.cancelled()
    await left.nothing()
    assert note.exists() == (turns > 0)  # a shutdown that has begun grants the grace period


@pytest.mark.parametrize("error", [PermissionError, ProcessLookupError, AttributeError])
async def test_a_thread_waits_for_a_process_if_pidfds_are_not_available(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, loop_kind: str
) -> None:
    """Some sandboxes refuse pidfds, and some systems do not support them."""

    def refuse(pid: int) -> int:
        raise error

    await works()
    monkeypatch.setattr(os, "pidfd_open", refuse)
    left = Left()
    channel = await spawn(["sh", "-c", "exit 3"])
    with pytest.raises(ChannelClosed) as ended:
        await channel.run(lambda _: None)
    assert ended.value.exit_code == 3
    await channel.close()
    await left.nothing()


async def test_a_client_that_gets_no_response_stops_its_server(loop_kind: str) -> None:
    """The server is stopped although `__aexit__` is not called if `__aenter__` fails."""
    await works()
    left = Left()
    silent = StdioTransport({"command": "sh", "args": ["-c", "cat > /dev/null"]})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), MCPClient(silent):
            pass
    await left.nothing()


def test_a_start_that_failed_for_lack_of_threads_does_not_happen_later(tmp_path: Path) -> None:
    """An executor that cannot start a thread keeps the work item and would run it later."""
    note = tmp_path / "note"
    run(
        f"""
        import resource, threading
        with open("/proc/self/statm") as facts:
            vsize = int(facts.read().split()[0]) * resource.getpagesize()
        threading.stack_size(256 << 20)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        async def main():
            resource.setrlimit(resource.RLIMIT_AS, (vsize + (128 << 20), hard))
            try:
                await spawn(["touch", {str(note)!r}])
            except ConnectFailed as exc:
                assert "start new thread" in str(exc), exc
            else:
                raise AssertionError
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            channel = await spawn(["cat"])
            await channel.close()
        asyncio.run(main())
        """
    )
    assert not note.exists()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("end", ["connected", "closing", "starting"])
def test_a_failing_program_leaves_no_process_and_prints_nothing(loop: str, end: str) -> None:
    """The program fails while a client is connected, closing or starting."""
    run(
        f"""
        import {loop}, os, threading
        from fairlead.client.mcp_transport.factory import StdioTransport
        async def main():
            await (await spawn(["cat"])).close()
            client = StdioTransport({{"command": "cat"}})
            tasks = []
            if {end!r} != "starting":
                await client.connect()
            if {end!r} != "connected":
                work = client.close() if {end!r} == "closing" else client.connect()
                tasks.append(asyncio.create_task(work))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            raise KeyError
        try:
            with asyncio.Runner(loop_factory={loop}.new_event_loop) as runner:
                runner.run(main())
        except KeyError:
            pass
        from fairlead.transport.stdio.child_process import _spawner
        _spawner().shutdown()
        # A killed process that is not scheduled for a while is collected by a thread.
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.name != "fairlead-reaper":
                thread.join(20)
        for task in os.listdir("/proc/self/task"):
            try:
                children = open(f"/proc/self/task/{{task}}/children")
            except FileNotFoundError:
                continue  # a thread that has just ended
            with children:
                for pid in children.read().split():
                    command, state = "", "R"
                    # A reaper that has just been started has no arguments until `exec` completes.
                    while not command and state != "Z":
                        with open(f"/proc/{{pid}}/cmdline") as file:
                            command = file.read()
                        with open(f"/proc/{{pid}}/stat") as file:
                            state = file.read().rpartition(")")[2].split()[0]
                    assert "groups=" in command, (command, state)
        """
    )


def test_a_forked_process_can_start_servers_and_does_not_hold_its_parents_pipes() -> None:
    run(
        """
        import multiprocessing
        fork = multiprocessing.get_context("fork")
        def child(done, enough):
            async def one():
                async with asyncio.timeout(10):
                    await (await spawn(["cat"])).close()
            asyncio.run(one())
            done.set()
            enough.wait()
        async def main():
            channel = await spawn(["cat"])
            done, enough = fork.Event(), fork.Event()
            other = fork.Process(target=child, args=(done, enough))
            other.start()
            assert await asyncio.to_thread(done.wait, 10)
            async with asyncio.timeout(1.5):  # less than the grace period before a signal
                await channel.close()
            enough.set()
            await asyncio.to_thread(other.join)
            assert other.exitcode == 0
        asyncio.run(main())
        """
    )


def test_a_fork_of_a_program_that_closed_all_descriptors_can_start_servers() -> None:
    run(
        """
        import os
        async def main():
            async with asyncio.timeout(5):
                await (await spawn(["cat"])).close()
        asyncio.run(main())
        os.closerange(3, 256)  # as programs do that become daemons
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(main())
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )


def test_a_killed_reaper_is_collected_and_replaced_without_a_further_start() -> None:
    run(
        """
        import os, signal
        from fairlead.transport.stdio import orphan_reaper
        async def main():
            server = await spawn(["cat"])
            for _ in range(2):
                old = orphan_reaper._pid
                os.kill(old, signal.SIGKILL)
                async with asyncio.timeout(10):
                    while orphan_reaper._pid in (0, old):
                        await asyncio.sleep(0.01)
                assert not os.path.exists(f"/proc/{old}")  # not even a zombie
            await server.close()
        asyncio.run(main())
        """
    )


async def test_the_replacement_of_a_killed_reaper_ends_the_servers() -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdin is not None
    assert host.stdout is not None
    pid = int(await asyncio.to_thread(host.stdout.readline))
    host.kill()
    host.wait()
    host.stdin.close()
    host.stdout.close()
    async with asyncio.timeout(5):
        while running(pid):
            await asyncio.sleep(0.01)


KILLED = """
import os, signal
from fairlead.transport.stdio import orphan_reaper
async def main():
    server = await spawn(["sleep", "600"])
    first = orphan_reaper._pid
    os.kill(first, signal.SIGKILL)
    while orphan_reaper._pid in (0, first):
        await asyncio.sleep(0.01)
    with orphan_reaper._lock:  # released once the replacement has its groups
        print(server.context.process_id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_the_replacement_of_a_killed_reaper_receives_all_process_groups(
    tmp_path: Path,
) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + REPLACED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdin is not None
    assert host.stdout is not None
    pids = (await asyncio.to_thread(host.stdout.readline)).split()
    assert len(pids) == 2
    host.kill()
    host.wait()
    host.stdin.close()
    host.stdout.close()
    async with asyncio.timeout(5):
        while any(running(int(pid)) for pid in pids):
            await asyncio.sleep(0.01)


REPLACED = """
import contextlib, os, signal
async def main():
    first = await spawn(["sleep", "600"])
    for task in os.listdir("/proc/self/task"):
        for pid in open(f"/proc/self/task/{task}/children").read().split():
            if b"groups=" in open(f"/proc/{pid}/cmdline", "rb").read():
                os.kill(int(pid), signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # the program has collected it
                    os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)
    second = await spawn(["sleep", "600"])
    print(first.context.process_id, second.context.process_id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""

PRELUDE = """
import asyncio
from fairlead.errors import ConnectFailed
from fairlead.transport.stdio.child_process import spawn
"""


def run(source: str) -> None:
    """Run a program and check that it succeeds without output."""
    command = [sys.executable, "-W", "always", "-c", PRELUDE + dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def popen() -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        CAT, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
    )


def test_a_process_group_that_could_not_be_registered_is_not_killed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process group id may belong to another program when the reaper starts again."""
    monkeypatch.setattr(reaper, "_groups", set())
    monkeypatch.setattr(reaper, "_pipe", None)

    def cannot_start() -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(reaper, "_start", cannot_start)
    with pytest.raises(OSError, match="no more processes"):
        reaper.register(111)
    theirs, ours = os.pipe()
    monkeypatch.setattr(reaper, "_start", lambda: ours)
    try:
        reaper.register(222)
        reaper.unregister(111)  # clean-up by the caller whose registration failed
        reaper.unregister(222)
        assert os.read(theirs, 100) == b"+ 222\n- 222\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_restarted_reaper_receives_all_remaining_process_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaper, "_groups", set())
    monkeypatch.setattr(reaper, "_pipe", None)
    pipes = [os.pipe(), os.pipe()]
    starts = iter(pipes)
    monkeypatch.setattr(reaper, "_start", lambda: next(starts)[1])
    reaper.register(111)
    reaper.register(333)
    reaper.unregister(333)
    os.close(pipes[0][0])  # as if the first reaper had been killed
    try:
        reaper.register(222)
        told = os.read(pipes[1][0], 100).splitlines()
        assert sorted(told) == [b"+ 111", b"+ 222"]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(pipes[0][1])
    finally:
        os.close(pipes[1][0])
        os.close(pipes[1][1])
