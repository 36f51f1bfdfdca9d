"""A process that has already imported `fairlead` and forks a child for each command.

Most tests of commands check texts and exit codes. Starting an interpreter and importing all
modules costs 0.2 to 0.4 s of CPU time, a fork 10 ms. Each command is still a separate process,
with its own pipes, environment and working directory. Tests of start-up or signals start
`python -m fairlead` instead.
"""

import atexit
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = ("fairlead.cli.main", "fairlead.client", "fairlead.manager", "fairlead.gateway")


class CommandServer:
    """The test's side of the command server. It starts the server process on first use."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fairlead-tests-")
        self._address = str(Path(self._folder.name) / "commands")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._address)
            listening.listen(16)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno())],
                pass_fds=(listening.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def run(
        self,
        args: Sequence[str],
        *,
        input: str,
        cwd: Path | None,
        env: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as `subprocess.run` does.

        Raises:
            subprocess.TimeoutExpired: The command took too long and was killed.
        """
        request = {"args": list(args), "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        theirs = [stdin[0], stdout[1], stderr[1]]
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout)
            line.connect(self._address)
            socket.send_fds(line, [json.dumps(request).encode() + b"\n"], theirs)
            for fd in theirs:
                os.close(fd)
            out, err = _Reader(stdout[0]), _Reader(stderr[0])
            threading.Thread(target=_write, args=(stdin[1], input.encode()), daemon=True).start()
            answers = line.makefile()
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(args), timeout, out.data, err.data) from None
        return subprocess.CompletedProcess(list(args), code, out.text(timeout), err.text(timeout))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


class _Reader:
    """A thread that reads a pipe until its end."""

    def __init__(self, fd: int) -> None:
        self.data = b""
        self._fd = fd
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self, timeout: float) -> str:
        self._thread.join(timeout)
        return io.TextIOWrapper(io.BytesIO(self.data), "utf-8").read()

    def _read(self) -> None:
        while chunk := os.read(self._fd, 65536):
            self.data += chunk
        os.close(self._fd)


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.write(data)


_started: list[CommandServer] = []


def command_server() -> CommandServer:
    """Return the command server of this test process."""
    if not _started:
        _started.append(CommandServer())
        atexit.register(_started[0].close)
    return _started[0]


# The server process


def _serve(listening: socket.socket) -> None:
    for name in PRELOADED:
        __import__(name)
    # The children that supervise commands end on their own and need no reaping.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        line, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _supervise(line)
        line.close()


def _supervise(line: socket.socket) -> None:
    """Run one command, and report its process id and exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, fds, _, _ = socket.recv_fds(line, 65536, 3)
    while not head.endswith(b"\n"):
        head += line.recv(65536)
    pid = os.fork()
    if pid == 0:
        line.close()
        _become(json.loads(head), fds)
    for fd in fds:
        os.close(fd)
    line.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(request: dict[str, object], fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["fairlead", *request["args"]]  # type: ignore[misc]
    script = Path(sys.executable).with_name("fairlead")
    sys.orig_argv = [sys.executable, str(script), *sys.argv[1:]]
    sys.path[0] = ""  # `python -m` also sets `sys.path[0]` to the current directory
    from fairlead.cli.main import main

    code = 1
    try:
        code = main()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        _serve(inherited)
