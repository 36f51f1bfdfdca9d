"""A command with somebody between it and its pipes: bytes, signals and the exit code pass.

Two threads copy what comes, as it comes. Whoever listens is another process, and gets copies
through a pipe: what it does, and how it fails, never holds the conversation up.
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

UP, DOWN = b"u", b"d"  # to the server, and to the client
CHUNK = 256 << 10
DRAIN = 1.0  # seconds for the last words of a command that has ended
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH", "SIGCONT")


def run_command(command: Sequence[str], start: Callable[[], "TapFeed"]) -> int:
    """Run it until it ends; its exit code. If a signal ended it, the same one ends us.

    Raises:
        CommandError: it cannot be started.
    """
    try:
        # A group of its own, so that whatever it starts can be ended if we are killed.
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, bufsize=0
        )
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        raise CommandError(f"{command[0]} cannot be started: {why}", code=NO_CONNECTION) from exc
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
            os.set_blocking(ours, True)  # whoever had it before us may have wanted otherwise
    # Nobody waits for this one: it may sit in a read of our stdin for ever.
    drop_stdin, drop_stdout = partial(_replace, 0, os.O_RDONLY), partial(_replace, 1, os.O_WRONLY)
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
    back.join(DRAIN)  # a grandchild may hold the pipe open for ever
    return code


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Until it ends. A signal that comes just before a wait begins is not left for its end.

    Python looks whether one has come, and then waits; what comes in between would lie there. So
    each of them also leaves a byte in a pipe, and that is what is waited for.
    """
    news, put = os.pipe()
    os.set_blocking(put, False)
    before = signal.set_wakeup_fd(put, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a function, no byte
    # Whoever started us may hold it back for its own ends, and we would have that from there.
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
    """Copy until either side ends, then end the other, as if there were only one pipe."""
    try:
        while chunk := os.read(source, CHUNK):
            hear(way, chunk)  # before anybody can answer it
            written = os.write(sink, chunk)
            while written < len(chunk):
                written += os.write(sink, memoryview(chunk)[written:])
    except OSError:
        with contextlib.suppress(OSError):
            close_source()  # nobody reads it any more: whoever writes hears so
    with contextlib.suppress(OSError):
        close_sink()


def _replace(descriptor: int, flags: int) -> None:
    """Close it; its number must not be given to something else."""
    null = os.open(os.devnull, flags)
    os.dup2(null, descriptor)
    os.close(null)


def _pass_signals_on(process: "subprocess.Popen[bytes]") -> None:
    def passed(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            process.send_signal(number)

    def interrupted(number: int, frame: object) -> None:
        # Ctrl-C goes to all of a terminal's foreground, which they would have been part of.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)

    for name in _PASSED_ON:
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), passed)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def _end_like(number: int) -> int:
    """End by the signal that ended the command, so that nobody can tell us apart."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        # Who keeps the remains of crashes wants those of the command, not ours.
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    return 128 + number
