"""A supervisor's worker process, which inherits the listening socket and exits with its parent.

Over a socket pair, the worker reports that its code is loaded, waits for permission to start, and
reports that it serves. When the parent exits for any reason, its end of the pair closes.
"""

import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..framework.listen_address import ClientNeeds

__all__ = ["VARIABLE", "WorkerHandoff", "read_worker_variable", "worker_variable"]

VARIABLE = "FAIRLEAD_WORKER"
BEGIN, READY = b"b", b"ready\n"


@dataclass(frozen=True)
class WorkerHandoff:
    """The listening socket, token and control connection that a worker inherits."""

    listening: socket.socket
    token: str | None
    _line: socket.socket

    def loaded(self, name: str, access: "ClientNeeds") -> None:
        """Report that the code is loaded, and wait until the previous worker has stopped."""
        try:
            self._line.sendall(json.dumps([name, access]).encode() + b"\n")
            told = self._line.recv(1)
        except OSError:
            told = b""
        if told != BEGIN:
            sys.exit(0)  # the parent exited, or stopped this worker
        threading.Thread(target=self._follow, name="fairlead-follow", daemon=True).start()

    def ready(self) -> None:
        """Report that the worker serves."""
        try:
            self._line.sendall(READY)
        except OSError:
            pass  # The parent exited; `_follow` detects this and ends the worker.

    def _follow(self) -> None:
        try:
            self._line.recv(1)
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)


def worker_variable(
    listening: socket.socket, line: socket.socket, token: str | None, *, changing: bool
) -> str:
    """Return the value of the environment variable `VARIABLE` for a worker.

    `changing` disables bytecode files.
    """
    return json.dumps(
        {
            "listening": listening.fileno(),
            "line": line.fileno(),
            "token": token,
            "changing": changing,
        }
    )


def read_worker_variable() -> WorkerHandoff:
    """Read the data passed by the parent, and remove it from the environment of child processes."""
    facts = json.loads(os.environ.pop(VARIABLE))
    # Bytecode files would hide a change within one second that keeps the file's size.
    sys.dont_write_bytecode |= facts["changing"]
    listening, line = (socket.socket(fileno=facts[key]) for key in ("listening", "line"))
    listening.set_inheritable(False)
    line.set_inheritable(False)
    return WorkerHandoff(listening, facts["token"], line)
