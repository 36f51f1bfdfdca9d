"""Tests of servers as child processes: start, exit and clean-up."""

import asyncio
import errno
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    LocalResourceError,
    RemoteProtocolError,
)
from fairlead.transport.channel import Incoming
from fairlead.transport.stdio import child_process
from fairlead.transport.stdio.child_process import ProcessChannel, spawn
from fairlead.transport.stdio.own_stdio import widen_pipe
from fairlead.wire import Notification, Request, Success
from tests.support.stdio_programs import program


async def running(channel: ProcessChannel, got: "asyncio.Queue[Incoming]") -> ChannelClosed:
    """Run a channel to its end and return the error that ended it."""
    with pytest.raises(ChannelClosed) as ended:
        await channel.run(got.put_nowait)
    return ended.value


def alive(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def until(condition, seconds: float = 5.0) -> None:  # type: ignore[no-untyped-def]
    """Poll until a condition is true, for events that asyncio cannot await."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.covers("STD-01", "STD-02", "STD-04", "STD-05")
async def test_frames_are_exchanged_with_a_child_process(tmp_path: Path, loop_kind: str) -> None:
    command = program(
        tmp_path,
        """
        for line in sys.stdin:
            request = json.loads(line)
            answer(request, {"env": os.environ["ONE"], "cwd": os.getcwd(), "argv": sys.argv[1:]})
        """,
    )
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    channel = await spawn([*command, "a b", "c"], env={"ONE": "1"}, cwd=str(folder))
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    channel.send(Request(7, "x"))
    answer = await got.get()
    assert isinstance(answer, Success)
    assert answer.id == 7
    assert f'"cwd": "{folder}"'.encode() in bytes(answer.result)
    assert b'"argv": ["a b", "c"]' in bytes(answer.result)
    assert channel.context.process_id is not None
    await channel.close()
    assert (await task).exit_code == 0


@pytest.mark.covers("STD-10")
async def test_the_error_for_a_missing_command_contains_its_name() -> None:
    with pytest.raises(ConnectFailed, match="program 'no-such-program-anywhere' was not found"):
        await spawn(["no-such-program-anywhere", "--flag"])


@pytest.mark.covers("STD-10")
async def test_the_error_for_a_missing_folder_contains_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed, match="the working directory .*/nowhere does not exist"):
        await spawn([sys.executable], cwd=str(tmp_path / "nowhere"))


@pytest.mark.covers("STD-10")
async def test_the_error_for_a_file_that_is_not_executable_contains_its_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plain.txt"
    file.write_text("hello")
    with pytest.raises(ConnectFailed, match="is not executable"):
        await spawn([str(file)])


async def test_an_empty_command_is_rejected() -> None:
    with pytest.raises(ConnectFailed, match="the command is empty"):
        await spawn([])


@pytest.mark.covers("STD-06", "STD-07")
async def test_the_error_of_an_exited_process_has_its_exit_code_and_stderr(
    tmp_path: Path, loop_kind: str
) -> None:
    command = program(
        tmp_path,
        """
        print("loading", file=sys.stderr)
        print("API_KEY=hunter2 is wrong", file=sys.stderr)
        send({"jsonrpc": "2.0", "method": "farewell"})
        sys.exit(3)
        """,
    )
    heard: list[str] = []
    channel = await spawn(command, on_stderr=heard.append)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    end = await running(channel, got)
    assert end.exit_code == 3
    assert "exited with code 3" in str(end)
    assert end.stderr == ("loading", "API_KEY=[REDACTED] is wrong")
    assert heard == list(end.stderr)
    assert got.get_nowait() == Notification("farewell")  # sent before the exit and still delivered
    with pytest.raises(ChannelClosed):
        channel.send(Notification("too late"))
        await channel.drain()
        channel.send(Notification("too late"))
    await channel.close()


@pytest.mark.covers("STD-07")
async def test_the_error_of_a_killed_process_contains_the_signal(tmp_path: Path) -> None:
    channel = await spawn(program(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)"))
    end = await running(channel, asyncio.Queue())
    assert end.exit_code == -signal.SIGSEGV
    assert "SIGSEGV" in str(end)
    await channel.close()


@pytest.mark.covers("STD-08")
async def test_a_server_that_exits_at_the_end_of_its_stdin_is_not_signalled(tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = program(
        tmp_path,
        f"""
        send({{"jsonrpc": "2.0", "method": "up"}})
        for line in sys.stdin: pass
        open({str(note)!r}, "w").write("exited on its own")
        """,
    )
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    started = time.monotonic()
    await channel.close()
    assert time.monotonic() - started < 1.5
    assert note.read_text() == "exited on its own"
    await task


@pytest.mark.covers("STD-08", "STD-09")
async def test_a_server_that_ignores_signals_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = program(
        tmp_path,
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c",
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "print(1, flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
        child.stdout.readline()
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        send({{"jsonrpc": "2.0", "method": "up"}})
        time.sleep(600)
        """,
    )
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    server, child = map(int, pids.read_text().split())
    # runs in its own session, so Ctrl-C in the terminal does not reach it
    assert os.getsid(server) == server
    async with asyncio.timeout(6):
        # Concurrent calls of `close` are allowed.
        await asyncio.gather(channel.close(), channel.close())
    assert not alive(server)
    await until(lambda: not alive(child))
    await task


@pytest.mark.covers("STD-08")
async def test_children_of_a_crashed_server_are_killed(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        send({"jsonrpc": "2.0", "method": "up", "params": {"pid": child.pid}})
        os._exit(1)
        """,
    )
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    # `run` ends although the child process still holds the pipes open.
    end = await running(channel, got)
    assert end.exit_code == 1
    up = got.get_nowait()
    assert isinstance(up, Notification)
    pid = int(bytes(up.params).split(b":")[1].rstrip(b"}"))  # type: ignore[arg-type]
    await channel.close()
    await until(lambda: not alive(pid))


@pytest.mark.covers("STD-08")
async def test_no_process_remains_when_the_host_is_killed(tmp_path: Path) -> None:
    """After `kill -9`, the reaper ends all processes, including children of servers."""
    pids = tmp_path / "pids"
    command = program(
        tmp_path,
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        send({{"jsonrpc": "2.0", "method": "up"}})
        time.sleep(600)
        """,
    )
    host = tmp_path / "host.py"
    host.write_text(
        f"""
import asyncio
from fairlead.transport.stdio.child_process import spawn

async def main():
    channel = await spawn({command!r})
    await channel.run(lambda message: print("up", flush=True))

asyncio.run(main())
"""
    )
    process = subprocess.Popen([sys.executable, str(host)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == b"up\n"
    server, child = map(int, pids.read_text().split())
    process.kill()
    process.wait()
    process.stdout.close()
    await until(lambda: not alive(server) and not alive(child))


@pytest.mark.covers("STD-06")
async def test_a_flood_on_stderr_does_not_block_calls_and_is_limited_in_memory(
    tmp_path: Path,
) -> None:
    command = program(
        tmp_path,
        """
        for i in range(200_000):
            sys.stderr.write(f"line {i} " + "x" * 100 + "\\n")
        sys.stderr.write("y" * 5_000_000)  # one line without an end
        sys.stderr.flush()
        send({"jsonrpc": "2.0", "method": "done"})
        for line in sys.stdin: pass
        """,
    )
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    assert await got.get() == Notification("done")
    await channel.close()
    end = await task
    assert len(end.stderr) <= 20
    assert all(len(line) <= 2000 for line in end.stderr)


@pytest.mark.covers("STD-03", "STD-05", "QUA-03")
async def test_output_that_is_not_a_message_does_not_end_the_channel(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        sys.stdout.buffer.write(b"\\xef\\xbb\\xbf")
        print("Welcome to my server!")
        send({"jsonrpc": "2.0", "method": "one"})
        sys.stdout.write("\\n  \\r\\n")
        sys.stdout.write('  {"jsonrpc": "2.0", "method": "two"}  \\r\\n')
        sys.stdout.write('{"jsonrpc": "2.0", "method": "three"}')  # no line end
        """,
    )
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    await running(channel, got)
    stray, *rest = [got.get_nowait() for _ in range(got.qsize())]
    assert isinstance(stray, RemoteProtocolError)
    assert stray.excerpt == "Welcome to my server!"
    assert rest == [Notification("one"), Notification("two"), Notification("three")]
    await channel.close()


async def test_messages_of_ten_megabytes_are_delivered_in_both_directions(
    tmp_path: Path, loop_kind: str
) -> None:
    command = program(tmp_path, "for line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()")
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    message = Notification("big", msg_of(10 << 20))
    channel.send(message)
    assert channel.congested
    async with asyncio.timeout(20):
        await channel.drain()
        assert await got.get() == message
    await channel.close()
    await task


def msg_of(size: int):  # type: ignore[no-untyped-def]
    from msgspec import Raw

    return Raw(b'{"data":"' + b"x" * size + b'"}')


@pytest.mark.covers("TRN-13")
async def test_a_peer_that_does_not_read_does_not_block_close(tmp_path: Path) -> None:
    command = program(tmp_path, 'send({"jsonrpc": "2.0", "method": "up"}); time.sleep(600)')
    channel = await spawn(command)
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    for _ in range(4):
        channel.send(Notification("big", msg_of(1 << 20)))
    assert channel.congested
    draining = asyncio.create_task(channel.drain())
    async with asyncio.timeout(8):
        await channel.close()
    with pytest.raises(ChannelClosed):
        await draining
    await task


async def test_cancelling_a_start_leaves_no_process(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    command = program(
        tmp_path, f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    starting = asyncio.create_task(spawn(command))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: not note.exists() or not alive(int(note.read_text() or 0)))


# Small shell programs


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


UP = 'echo \'{"jsonrpc":"2.0","method":"up"}\'; '


@pytest.mark.parametrize(
    ("what", "text", "public"),
    [
        (
            "missing",
            "was not found: check its spelling",
            "could not be started: its program does not exist",
        ),
        (
            "missing path",
            "the file '/no/such/program' does not exist$",
            "could not be started: its program does not exist",
        ),
        (
            "interpreter",
            "the interpreter '/no/such/interpreter' in its first line does not exist",
            "could not be started: the interpreter of its program does not exist",
        ),
        (
            "plain file",
            "is not executable",
            "could not be started: its program is not executable",
        ),
        (
            "folder",
            "the working directory",
            "could not be started: its working directory does not exist",
        ),
        ("empty", "the command is empty", "could not be started"),
        ("zero byte", "embedded null byte", "could not be started"),
    ],
)
async def test_start_errors_have_a_full_text_and_a_public_one_without_details(
    tmp_path: Path, what: str, text: str, public: str
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    plain = tmp_path / "plain"
    plain.write_text("hello")
    commands = {
        "missing": ["no-such-program-anywhere"],
        "missing path": ["/no/such/program"],
        "interpreter": [str(script)],
        "plain file": [str(plain)],
        "folder": ["/bin/sh"],
        "empty": [],
        "zero byte": ["/bin/sh", "a\0b"],
    }
    cwd = str(tmp_path / "nowhere") if what == "folder" else None
    with pytest.raises(ConnectFailed, match=text) as failed:
        await spawn(commands[what], cwd=cwd)
    assert failed.value.public == public


@pytest.mark.parametrize(
    ("number", "resource"), [(errno.EAGAIN, "processes"), (errno.EMFILE, "file descriptors")]
)
async def test_the_error_names_the_exhausted_resource_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, number: int, resource: str
) -> None:
    def refuse(*args: object, **settings: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(LocalResourceError, match=f"out of {resource} on this machine") as failed:
        await spawn(["/bin/sh"])
    assert failed.value.resource == resource


async def test_a_server_that_closes_its_stdin_may_still_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "LAST_ANSWERS", 0.01)
    monkeypatch.setattr(child_process, "STDIN_GRACE", 0.02)
    channel = await spawn(shell(f"exec 0<&-; {UP} exec sleep 60"))
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    refused: list[ChannelClosed] = []
    async with asyncio.timeout(5):
        while not refused:
            try:
                channel.send(Notification("x"))
            except ChannelClosed as exc:
                refused.append(exc)
            await asyncio.sleep(0)
        end = await task
    assert refused[0].reason == f"the server closed its input ({shlex.join(channel.command)})"
    assert (refused[0].delivered, refused[0].public) == (False, "closed its input")
    assert (end.reason, end.public, end.exit_code) == (refused[0].reason, "closed its input", None)
    await channel.close()


async def test_a_server_that_closes_its_stdout_is_reported_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "STDIN_GRACE", 0.02)
    channel = await spawn(shell("exec 1>&-; exec sleep 60"))
    end = await running(channel, asyncio.Queue())
    assert end.reason == f"the server closed its output ({shlex.join(channel.command)})"
    assert (end.public, end.exit_code, channel.exit_code) == ("closed its output", None, None)
    await channel.close()


async def test_a_request_that_the_server_never_read_counts_as_undelivered() -> None:
    channel = await spawn(shell("exit 4"))
    end = await running(channel, asyncio.Queue())
    assert (end.exit_code, channel.exit_code) == (4, 4)
    assert end.reason == f"the server exited with code 4 ({shlex.join(channel.command)})"
    await channel.close()
    unread = await spawn(shell(f"{UP} sleep 0.05; exit 5"))
    unread.send(Request(1, "x"))
    end = await running(unread, asyncio.Queue())
    assert (end.exit_code, end.delivered) == (5, False)
    await unread.close()
    read = await spawn(shell("read line; exit 6"))
    read.send(Request(1, "x"))
    end = await running(read, asyncio.Queue())
    assert (end.exit_code, end.delivered) == (6, True)
    await read.close()


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("trap 'echo term >> $NOTE; exit 0' TERM; while :; do sleep 0.01; done", "term\n"),
        ("trap 'echo term >> $NOTE; exit 0' TERM; cat > /dev/null; echo eof > $NOTE", "eof\n"),
    ],
    ids=["stays", "leaves"],
)
async def test_a_server_gets_grace_periods_for_stdin_and_sigterm_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, note: str
) -> None:
    if note == "term\n":
        monkeypatch.setattr(child_process, "STDIN_GRACE", 0.02)
    path = tmp_path / "note"
    channel = await spawn(shell(f"{UP} {script}"), env={"NOTE": str(path)})
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    async with asyncio.timeout(5):
        await channel.close()
    assert path.read_text() == note
    assert (await task).exit_code == 0


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_a_closed_server_leaves_no_descriptors(loop_kind: str) -> None:
    first = await spawn(["/bin/cat"])
    await first.close()
    before = descriptors()
    for _ in range(3):
        channel = await spawn(["/bin/cat"])
        assert len(descriptors()) > len(before)
        await channel.close()
        assert channel._reaped
    await until(lambda: len(descriptors()) <= len(before))


async def test_the_pipes_of_a_server_are_enlarged() -> None:
    channel = await spawn(shell(f"{UP} exec cat"))
    got: asyncio.Queue[Incoming] = asyncio.Queue()
    task = asyncio.create_task(running(channel, got))
    await got.get()
    ours, theirs = os.pipe()
    widen_pipe(ours)
    size = fcntl.fcntl(ours, fcntl.F_GETPIPE_SZ)
    os.close(ours)
    os.close(theirs)
    for number in (0, 1):
        name = f"/proc/{channel.context.process_id}/fd/{number}"
        pipe = os.open(name, os.O_RDWR | os.O_NONBLOCK)
        assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == size
        os.close(pipe)
    await channel.close()
    await task


async def test_a_forked_process_closes_its_copy_of_a_servers_stdin() -> None:
    """Call the fork hook in this process: the server receives the end of stdin and exits."""
    channel = await spawn(["/bin/cat"])
    task = asyncio.create_task(running(channel, asyncio.Queue()))
    channel.send(Notification("x"))
    channel.forget_input()
    async with asyncio.timeout(5):
        assert (await task).exit_code == 0
    await channel.close()


async def test_a_server_is_ended_once_by_concurrent_and_cancelled_calls_of_close() -> None:
    channel = await spawn(["/bin/cat"])
    task = asyncio.create_task(running(channel, asyncio.Queue()))
    first = asyncio.create_task(channel.close())
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(5):
        await channel.close()
        assert (await task).exit_code == 0
    assert first.cancelled()


# Failed starts


async def test_a_process_is_killed_if_watching_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []

    def refuse(pid: int) -> None:
        started.append(pid)
        raise OSError(errno.EMFILE, "no")

    monkeypatch.setattr(child_process.reaper, "register", refuse)
    before = len(descriptors())
    with pytest.raises(LocalResourceError, match="out of file descriptors"):
        await spawn(["/bin/sleep", "60"])
    (pid,) = started
    assert not Path(f"/proc/{pid}").exists(), "killed and reaped"
    assert len(descriptors()) <= before + 1  # the spawner's threads may use a descriptor


@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
def test_an_abandoned_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    start = child_process._Start(["/bin/sleep", "60"], dict(os.environ), None)
    if when == "before":
        start.abandon()
        with pytest.raises(OSError, match="the start was cancelled"):
            start.run()
        return
    if when == "meanwhile":
        monkeypatch.setattr(child_process.reaper, "register", lambda pid: start.abandon())
    process = start.run()
    if when == "after":
        assert alive(process.pid)
        start.abandon()
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdin.closed


async def test_a_fork_closes_the_pipes_of_servers_started_by_the_parent() -> None:
    """Call the fork hook in this process: the server receives the end of stdin and exits."""
    channel = await spawn(["/bin/cat"])
    task = asyncio.create_task(running(channel, asyncio.Queue()))
    assert channel in child_process._open
    child_process._after_fork()
    assert list(child_process._open) == []
    async with asyncio.timeout(5):
        assert (await task).exit_code == 0
    await channel.close()
    other = await spawn(["/bin/cat"])
    await other.close()
    assert other not in child_process._open


async def test_a_thread_watches_a_process_if_pidfds_are_not_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    channel = await spawn(shell("exit 3"))
    async with asyncio.timeout(5):
        assert (await running(channel, asyncio.Queue())).exit_code == 3
    await channel.close()
