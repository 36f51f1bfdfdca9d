"""A process that serves for a supervisor: it is handed the socket, and ends with its parent.

Over a line between the two it says what it has once its code is loaded, waits until it may
begin, and says when it serves. The parent's end of the line closes whatever ends the parent.
"""

import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass

__all__ = ["VARIABLE", "WorkerHandoff", "read_worker_variable", "worker_variable"]

VARIABLE = "FAIRLEAD_WORKER"
BEGIN, READY = b"b", b"ready\n"


@dataclass(frozen=True)
class WorkerHandoff:
    """What a worker was handed."""

    listening: socket.socket
    token: str | None
    _line: socket.socket

    def loaded(self, name: str, *, has_token: bool) -> None:
        """Report, and wait for our turn: the one before us may still be serving."""
        try:
            self._line.sendall(json.dumps([name, has_token]).encode() + b"\n")
            told = self._line.recv(1)
        except OSError:
            told = b""
        if told != BEGIN:
            sys.exit(0)  # the parent has gone, or does not want us any more
        threading.Thread(target=self._follow, name="fairlead-follow", daemon=True).start()

    def ready(self) -> None:
        """Report that we serve."""
        try:
            self._line.sendall(READY)
        except OSError:
            pass  # `_follow` sees it too

    def _follow(self) -> None:
        try:
            self._line.recv(1)
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)


def worker_variable(
    listening: socket.socket, line: socket.socket, token: str | None, *, changing: bool
) -> str:
    """The value of `VARIABLE` for a worker; `changing` code leaves no bytecode behind."""
    return json.dumps(
        {
            "listening": listening.fileno(),
            "line": line.fileno(),
            "token": token,
            "changing": changing,
        }
    )


def read_worker_variable() -> WorkerHandoff:
    """What the parent has for us; nobody whom we start finds it."""
    facts = json.loads(os.environ.pop(VARIABLE))
    # A change in the same second that leaves the size would not be seen through the bytecode.
    sys.dont_write_bytecode |= facts["changing"]
    listening, line = (socket.socket(fileno=facts[key]) for key in ("listening", "line"))
    listening.set_inheritable(False)
    line.set_inheritable(False)
    return WorkerHandoff(listening, facts["token"], line)
