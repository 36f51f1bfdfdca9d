"""Servers as child processes: start outside the event loop, exit detection and shutdown."""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, cast

from ...errors import ChannelClosed, ConnectFailed
from ...limits import STDERR_LINES
from ...observe.log_filter import redacted_logger
from ...protocol.envelope import TransportContext
from ...redaction.redact_text import redact
from ...wire import MAX_MESSAGE
from ..channel import Deliver
from ..line_channel import LineChannel, ReadPipeProtocol, WritePipeProtocol
from . import orphan_reaper as reaper
from .child_environment import InheritEnv, child_environment
from .descriptor_limit import restore_descriptor_limit
from .own_stdio import widen_pipe
from .pipes import connect_reading, connect_writing, descriptor_of, detach_descriptor
from .start_error import start_error

__all__ = ["CLOSE_TIME", "ProcessChannel", "kill_child_processes", "spawn"]

STDIN_GRACE = 2.0  # seconds for a server to exit after its stdin was closed
TERM_GRACE = 1.0  # seconds for a server to exit after SIGTERM to its group
KILL_GRACE = 0.5  # seconds for a server to exit after SIGKILL
CLOSE_TIME = STDIN_GRACE + TERM_GRACE + KILL_GRACE  # seconds to stop a server that does not exit
REAP_TIME = 0.1  # seconds for which `_collect` blocks until a killed process is reaped
LAST_ANSWERS = 1.0  # seconds in which a server that closed its stdin may still respond

log = logging.getLogger("fairlead.process")


async def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    inherit_env: InheritEnv = "all",
    on_stderr: Callable[[str], None] | None = None,
    limit: int = MAX_MESSAGE,
) -> "ProcessChannel":
    """Start a command and connect to its stdin and stdout.

    Raises:
        ConnectFailed: The command could not be started; the message contains the command and the
            cause.
        NotImplementedError: The system is not POSIX.
    """
    if os.name != "posix":
        raise NotImplementedError(
            "Starting servers as child processes is not supported on this system yet: "
            "it needs POSIX process groups and pipes"
        )
    if not command:
        raise ConnectFailed(
            "Could not start a server: the command is empty", public="could not be started"
        )
    environment = child_environment(env, inherit_env)
    loop = asyncio.get_running_loop()
    start = _Start(list(command), environment, cwd)
    try:
        process = await loop.run_in_executor(_spawner(), start.run)
    # A `RuntimeError` means that no further thread can be started.
    except (OSError, ValueError, RuntimeError, MemoryError) as exc:
        start.abandon()
        raise start_error(command, cwd, environment, exc) from exc
    except BaseException:
        # If the caller is cancelled, the spawner thread must not start the process later.
        start.abandon()
        raise
    channel = ProcessChannel(command, process, on_stderr=on_stderr, limit=limit)
    try:
        await channel.connect()
    except (OSError, RuntimeError, MemoryError) as exc:
        raise start_error(command, cwd, environment, exc) from exc
    return channel


def kill_child_processes() -> None:
    """Kill all servers that this process has started, so that closing them takes no more time."""
    for channel in tuple(_open):
        channel.kill()


class ProcessChannel(LineChannel):
    """The channel to a child process. Owns the process and its process group."""

    def __init__(
        self,
        command: Sequence[str],
        process: subprocess.Popen[bytes],
        *,
        on_stderr: Callable[[str], None] | None = None,
        limit: int = MAX_MESSAGE,
    ) -> None:
        context = TransportContext(transport_type="stdio", process_id=process.pid)
        super().__init__(context, limit=limit)
        self.command = tuple(command)
        self.exit_code: int | None = None
        self._process = process
        self._stderr = _Stderr(on_stderr, f"fairlead.process.{os.path.basename(command[0])}")
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self._pidfd: int | None = None
        self._reaped = False
        self._deaf = False  # True once the process has closed its stdin

    @property
    def stderr(self) -> tuple[str, ...]:
        """Return the last lines that the process wrote to stderr."""
        return self._stderr.tail()

    async def connect(self) -> None:
        """Attach to the pipes of the process. If that fails or is cancelled, end the process."""
        process = self._process
        try:
            self._watch_exit()
            await connect_reading(detach_descriptor(process.stderr), lambda: self._stderr)
            self._sink = sink = await connect_writing(
                detach_descriptor(process.stdin), lambda: WritePipeProtocol(self)
            )
            self._source = source = await connect_reading(
                detach_descriptor(process.stdout), lambda: ReadPipeProtocol(self)
            )
            self.attach(source, sink, descriptor_of(sink))
        except BaseException:
            self._finish()
            raise
        _open.add(self)

    async def run(self, deliver: Deliver) -> None:
        """Deliver messages as in `Channel` until the process exits, or closes its stdin or stdout.

        Raises:
            ChannelClosed: Always, with the exit code and the last lines of stderr.
        """
        reading = asyncio.ensure_future(super().run(deliver))
        try:
            await asyncio.wait((reading, self._exited), return_when=asyncio.FIRST_COMPLETED)
            # Messages written before the exit may still be in the pipes.
            # All waits are bounded, because a grandchild may hold the pipes open indefinitely.
            await asyncio.wait((reading,), timeout=0.2)
            await asyncio.wait((self._exited,), timeout=0.5)
            await asyncio.wait((self._stderr.ended,), timeout=0.2)
        finally:
            if not reading.done():
                reading.cancel()
            await asyncio.wait((reading,))
        self.exit_code = self._exit_code()
        raise ChannelClosed(
            self._obituary(),
            delivered=not self.never_read(),
            exit_code=self.exit_code,
            stderr=self.stderr,
            public=self._closed_end() if self.exit_code is None else "",
        )

    def write_ended(self, exc: Exception | None) -> None:
        if self._write_error is None:  # the channel was not closed by this side
            self._deaf = True
            self._write_error = ChannelClosed(
                self._obituary(), delivered=False, public=self._closed_end()
            )
            # The server cannot receive further requests and counts as lost,
            # although it may still run. It may still respond to requests that it has received.
            self._loop.call_later(LAST_ANSWERS, self.read_ended, None)
        super().write_ended(exc)

    async def close(self) -> None:
        # Several tasks may close at once, and one of them may be cancelled,
        # so a separate task closes the channel and all of them wait for it.
        if self._closing is None:
            self._closing = self._loop.create_task(self._end())
            # Called by a callback, because a task cancelled before its first step never runs.
            self._closing.add_done_callback(lambda _: self._finish())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        try:
            await self._ask_to_leave()
        except asyncio.CancelledError:
            # Only the shutdown of the event loop cancels this task.
            # The loop waits for its tasks, so the server still gets its grace period.
            await self._ask_to_leave()
            raise

    async def _ask_to_leave(self) -> None:
        await self.close_sink(STDIN_GRACE)
        await asyncio.wait((self._exited,), timeout=STDIN_GRACE)
        if not self._exited.done():
            self._signal(signal.SIGTERM)
            await asyncio.wait((self._exited,), timeout=TERM_GRACE)
        # Also after a clean exit: other processes of the group may still run.
        self._signal(signal.SIGKILL)
        await asyncio.wait((self._exited,), timeout=KILL_GRACE)

    def _finish(self) -> None:
        """Kill and reap the rest of the process group and release all descriptors."""
        _open.discard(self)
        # Kill the group before reaping its leader: the number of a zombie cannot be reused.
        self._signal(signal.SIGKILL)
        if not self._reaped:
            self._reaped = True
            _collect(self._process)
        self._drop_descriptor()
        # A transport that is losing its connection, or whose loop is closed, may raise on any call.
        with contextlib.suppress(Exception):
            self._stderr.close()
        with contextlib.suppress(Exception):
            if self._sink is not None:
                self._sink.abort()
        with contextlib.suppress(Exception):
            if self._source is not None:
                self._source.close()
        _close_pipes(self._process)  # closes the pipes that the loop does not own
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._on_exit()
            self.read_ended(None)

    def _watch_exit(self) -> None:
        pid, loop = self._process.pid, self._loop
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, refused by a sandbox, or no descriptors left
            args = (pid, loop, self._on_exit)
            threading.Thread(target=_wait_in_thread, args=args, daemon=True).start()
            return
        loop.add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        if not self._exited.done():
            self._exited.set_result(None)

    def _exit_code(self) -> int | None:
        """Return the exit code without reaping, so that the group can still be killed safely."""
        if self._reaped:
            return self._process.returncode
        with contextlib.suppress(ChildProcessError):
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            info = os.waitid(os.P_PID, self._process.pid, flags)
            if info is not None:
                return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        return None

    def _obituary(self) -> str:
        code = self.exit_code
        name = shlex.join(self.command)
        if code is None:
            return f"the server {self._closed_end()} ({name})"
        if code < 0:
            return f"the server was ended by {signal.Signals(-code).name} ({name})"
        return f"the server exited with code {code} ({name})"

    def _closed_end(self) -> str:
        return f"closed its {'input' if self._deaf else 'output'}"

    def _signal(self, number: signal.Signals) -> None:
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process and its group without a grace period; `close` still has to be called."""
        self._signal(signal.SIGKILL)

    def forget_input(self) -> None:
        """Release the server's stdin in a process that was forked from this one.

        Otherwise that process would keep the server's stdin open. The descriptors are redirected to
        `/dev/null` instead of closed, because their owners will close them.
        """
        inputs = (self._fd, None if self._sink is None else descriptor_of(cast(Any, self._sink)))
        with contextlib.suppress(OSError), open(os.devnull, "wb") as null:
            for fd in inputs:
                if fd is not None:
                    os.dup2(null.fileno(), fd, inheritable=False)


class _Stderr(asyncio.Protocol):
    """Reader of stderr that keeps the last lines and passes each line to a callback."""

    LINES, LINE = 40, 2000  # lines of stderr that are kept, and characters per line

    def __init__(self, on_line: Callable[[str], None] | None, logger: str) -> None:
        self._on_line = on_line
        self._log = redacted_logger(logger)
        self._lines: deque[str] = deque(maxlen=self.LINES)
        self._partial = b""
        # start of the current second, and the number of lines that may still be passed on
        self._since, self._budget = 0.0, 0
        self._transport: asyncio.BaseTransport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tail(self) -> tuple[str, ...]:
        return tuple(map(redact, tuple(self._lines)[-20:]))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._partial + data).split(b"\n")
        if self._on_line is None and len(lines) > self.LINES and not self._log.isEnabledFor(10):
            # If no callback reads the output, only the lines for error messages are kept.
            lines = lines[-self.LINES :]
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._budget = now, STDERR_LINES.value
        # Lines over the limit per second are kept for error messages, but not logged or passed on.
        if len(lines) > self._budget:
            STDERR_LINES.hit()
            for line in lines[self._budget :][-self.LINES :]:
                self._keep(line)
            del lines[self._budget :]
        self._budget -= len(lines)
        for line in lines:
            self._take(line)
        self._partial = rest[: self.LINE]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._partial:
            self._take(self._partial)
            self._partial = b""
        if not self.ended.done():
            self.ended.set_result(None)

    def _keep(self, line: bytes) -> str:
        text = line[: self.LINE].decode("utf-8", "replace").rstrip()
        if text:
            # Kept verbatim: `tail` redacts the lines that are shown.
            self._lines.append(text)
        return text

    def _take(self, line: bytes) -> None:
        text = self._keep(line)
        if not text:
            return
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("%s", redact(text))
        if self._on_line is not None:
            try:
                self._on_line(redact(text))
            # The callback is user code, and its errors must not stop the reading of stderr.
            except Exception:
                self._log.exception("on_stderr failed")


@cache
def _spawner() -> ThreadPoolExecutor:
    """Return the executor that starts processes, with one permanent thread.

    `fork` and `exec` block for milliseconds, and longest on uvloop.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="fairlead-spawn")


class _Start:
    """A process start in the spawner thread, which can be abandoned before it completes."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: str | None) -> None:
        self._command, self._env, self._cwd = command, env, cwd
        self._lock = threading.Lock()
        self._abandoned = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> subprocess.Popen[bytes]:
        # An executor that could not start a thread keeps the work item and may run it much later.
        if self._abandoned.is_set():
            raise OSError("the start was cancelled")
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            bufsize=0,
            # A process group of its own, so that a signal to the group reaches all descendants.
            start_new_session=True,
        )
        restore_descriptor_limit(process.pid)
        try:
            reaper.register(process.pid)
            for pipe in (process.stdin, process.stdout):
                assert pipe
                widen_pipe(pipe.fileno())
        # `register` usually fails because no descriptors are left for the reaper.
        except BaseException:
            _discard(process)
            raise
        # `abandon` runs on the loop's thread. The lock lets exactly one thread discard the process.
        with self._lock:
            self._process = process
            if self._abandoned.is_set():
                _discard(process)
        return process

    def abandon(self) -> None:
        with self._lock:
            self._abandoned.set()
            if self._process is not None:
                _discard(self._process)


def _discard(process: subprocess.Popen[bytes]) -> None:
    """Kill and reap a process that no channel owns yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _close_pipes(process)
    _collect(process)


def _collect(process: subprocess.Popen[bytes]) -> None:
    """Reap a process that was killed."""
    try:
        process.wait(REAP_TIME)
    except subprocess.TimeoutExpired:
        # The process is stuck in the kernel; a thread reaps it whenever it exits.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=process.wait, daemon=True).start()
    reaper.unregister(process.pid)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


# Weak, so that a channel that was never closed can be collected.
_open: "weakref.WeakSet[ProcessChannel]" = weakref.WeakSet()


def _after_fork() -> None:
    """Reset the state of a forked child, which has none of our threads and owns no servers."""
    _spawner.cache_clear()
    for channel in tuple(_open):
        channel.forget_input()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _wait_in_thread(pid: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    with contextlib.suppress(ChildProcessError):
        # `WNOWAIT` leaves the zombie, which keeps the number of the process group reserved.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(ended)
