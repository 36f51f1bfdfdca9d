"""Nothing is left behind, even when we are killed with SIGKILL.

One `sh` per host process reads the ids of our process groups from a pipe that only we hold. When
the pipe closes, because we have gone in whatever way, it ends the groups that are still
registered. (`PDEATHSIG` would follow the thread that spawned, miss grandchildren, and needs a slow
`preexec_fn`.)
"""

import os
import subprocess
import threading

__all__ = ["register", "unregister"]

# No `--` before the group: dash does not know it. Servers see the end of their stdin at the same
# moment and get a second to leave by themselves.
_SCRIPT = """
groups=' '
while read -r what id; do
  case $what in
    +) groups="$groups$id " ;;
    -) groups="${groups%% $id *} ${groups#* $id }" ;;
  esac
done
for id in $groups; do alive=yes; done
[ -n "$alive" ] || exit 0
sleep 1
for id in $groups; do kill -TERM "-$id" 2>/dev/null; done
sleep 0.5
for id in $groups; do kill -KILL "-$id" 2>/dev/null; done
"""


def register(group: int) -> None:
    """End this process group when we are gone. Blocks for some milliseconds the first time."""
    _tell(b"+ %d\n" % group)


def unregister(group: int) -> None:
    """The group has ended; its number may be used again by somebody else."""
    _tell(b"- %d\n" % group)


_lock = threading.Lock()
_pipe: int | None = None  # our end; plain, so that nothing but our death closes it by accident


def _tell(line: bytes) -> None:
    global _pipe
    with _lock:
        for _ in range(2):  # a reaper that somebody killed is started anew, once
            if _pipe is None:
                if line.startswith(b"-"):
                    return
                _pipe = _start()
            try:
                os.write(_pipe, line)
                return
            except OSError:
                _forget()


def _start() -> int:
    theirs, ours = os.pipe()
    process = subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath},
        start_new_session=True,  # Ctrl-C in a terminal goes to us, not to it
    )
    os.close(theirs)
    process.returncode = 0  # it outlives us: nobody will wait for it, and that is no leak
    return ours


def _forget() -> None:
    global _pipe
    if _pipe is not None:
        os.close(_pipe)
    _pipe = None


def _after_fork() -> None:
    """A forked child has no servers; the reaper belongs to its parent."""
    global _lock
    _lock = threading.Lock()
    _forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
