"""Forwarding between a command and the standard streams: bytes, signals and the exit code.

Two threads forward bytes as they arrive. The listener is a separate process that receives copies
through a pipe, so it can never delay the conversation by being slow or failing.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..framework.command_errors import NO_CONNECTION, CommandError

if TYPE_CHECKING:
    from .tap_feed import TapFeed

__all__ = ["DOWN", "UP", "run_command"]

UP, DOWN = b"u", b"d"  # directions: to the server, to the client
CHUNK = 256 << 10
DRAIN = 1.0  # seconds to wait for remaining output after the command has exited
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH", "SIGCONT")


def run_command(command: Sequence[str], start: Callable[[], "TapFeed"]) -> int:
    """Run a command until it ends and return its exit code.

    If a signal ended the command, the same signal ends this process.

    Raises:
        CommandError: The command cannot be started.
    """
    try:
        # The command gets its own process group, so that all its processes can be killed together.
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, bufsize=0
        )
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        raise CommandError(f"Cannot start {command[0]}: {why}", code=NO_CONNECTION) from exc
    _pass_signals_on(process)
    from ...transport.stdio import orphan_reaper as reaper

    reaper.register(process.pid)
    listens = start()
    try:
        code = _run(process, listens)
    finally:
        reaper.unregister(process.pid)
        listens.stop()
    return code if code >= 0 else _end_like(-code)


def _run(process: "subprocess.Popen[bytes]", listens: "TapFeed") -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    sink, source = process.stdin, process.stdout
    for ours in (0, 1):
        with contextlib.suppress(OSError):
            # The parent may have left the shared descriptor non-blocking.
            os.set_blocking(ours, True)
    drop_stdin, drop_stdout = partial(_replace, 0, os.O_RDONLY), partial(_replace, 1, os.O_WRONLY)
    # Daemon threads, because one of them may be blocked in reading stdin when the command ends.
    there = threading.Thread(
        target=_copy,
        args=(0, sink.fileno(), UP, listens.receive_bytes, drop_stdin, sink.close),
        daemon=True,
    )
    back = threading.Thread(
        target=_copy,
        args=(source.fileno(), 1, DOWN, listens.receive_bytes, source.close, drop_stdout),
        daemon=True,
    )
    there.start()
    back.start()
    code = _wait(process)
    # A timeout is needed, because a grandchild process may keep the pipe open.
    back.join(DRAIN)
    return code


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait until the process ends, without missing a signal.

    Python checks for signals before it blocks in a wait, so a signal that arrives in between would
    be handled only after the wait. Therefore each signal also writes a byte to a pipe, and this
    function waits for the pipe.
    """
    news, put = os.pipe()
    os.set_blocking(put, False)
    before = signal.set_wakeup_fd(put, warn_on_full_buffer=False)
    # Without a handler, Python writes no byte to the wakeup descriptor.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    # The parent may have blocked SIGCHLD, and the mask is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    try:
        while (code := process.poll()) is None:
            os.read(news, CHUNK)
        return code
    finally:
        signal.set_wakeup_fd(before)
        os.close(news)
        os.close(put)


def _copy(
    source: int,
    sink: int,
    way: bytes,
    hear: Callable[[bytes, bytes], None],
    close_source: Callable[[], None],
    close_sink: Callable[[], None],
) -> None:
    """Copy until the source ends or the sink closes, then close the other, as a pipe would."""
    try:
        while chunk := os.read(source, CHUNK):
            # Observed before forwarding, so that a request is recorded before its response.
            hear(way, chunk)
            written = os.write(sink, chunk)
            while written < len(chunk):
                written += os.write(sink, memoryview(chunk)[written:])
    except OSError:
        with contextlib.suppress(OSError):
            close_source()  # the sink is closed; close the source, so that its writer gets an error
    with contextlib.suppress(OSError):
        close_sink()


def _replace(descriptor: int, flags: int) -> None:
    """Replace a descriptor with the null device, so that its number is not reused."""
    null = os.open(os.devnull, flags)
    os.dup2(null, descriptor)
    os.close(null)


def _pass_signals_on(process: "subprocess.Popen[bytes]") -> None:
    def passed(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            process.send_signal(number)

    def interrupted(number: int, frame: object) -> None:
        # Ctrl-C signals the terminal's foreground group, which would otherwise include the command.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)

    for name in _PASSED_ON:
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), passed)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def _end_like(number: int) -> int:
    """End this process with the signal that ended the command,
    so that the parent sees the same status.
    """
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        # A core dump of this process would replace or hide the command's core dump.
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    return 128 + number
