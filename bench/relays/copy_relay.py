"""Copy from pipe to pipe: the minimal cost of a relay.

copy_relay.py COMMAND...: between its own stdin and stdout and those of the command.
"""

import fcntl
import os
import subprocess
import sys
import threading

CHUNK = 1 << 18
ROOM = 1 << 20  # in a pipe, as ours has


def copy(source: int, sink: int) -> None:
    while data := os.read(source, CHUNK):
        while data:
            data = data[os.write(sink, data) :]
    os.close(sink)


def main(command: list[str]) -> None:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    for pipe in (0, 1, child.stdin.fileno(), child.stdout.fileno()):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)
    up = (0, os.dup(child.stdin.fileno()))
    child.stdin.close()
    threading.Thread(target=copy, args=up, daemon=True).start()
    copy(child.stdout.fileno(), 1)
    child.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
