"""Termination of child processes after this process has died, even by SIGKILL.

One `sh` per host process reads the ids of our process groups from a pipe whose write end only this
process holds. When the pipe closes, because this process has ended for whatever reason, the shell
ends the groups that are still registered. (`PDEATHSIG` would follow the thread that spawned, miss
grandchildren, and need a slow `preexec_fn`.)
"""

import contextlib
import os
import subprocess
import threading

__all__ = ["register", "unregister"]

# No `--` before the group: dash does not support it. Servers see the end of their stdin at the same
# moment and get one second to exit by themselves.
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
    """Register a process group to be ended when this process is gone.

    Blocks for some milliseconds the first time.

    Raises:
        OSError: The reaper cannot be started.
    """
    with _lock:
        _groups.add(group)
        try:
            _tell(b"+ %d\n" % group)
        except BaseException:
            _groups.discard(group)
            raise


def unregister(group: int) -> None:
    """Unregister a group that has ended: its number may be reused by an unrelated process."""
    with _lock:
        if group in _groups:
            _groups.discard(group)
            with contextlib.suppress(OSError):
                _tell(b"- %d\n" % group)


# Reentrant: a signal handler may fork while the lock is held.
_lock = threading.RLock()
_groups: set[int] = set()  # the groups that the reaper has received
# A plain descriptor, so that only the end of this process closes it, not the garbage collector.
_pipe: int | None = None


def _tell(line: bytes) -> None:
    global _pipe
    # A reaper that was killed is started again, once.
    for _ in range(2):
        if _pipe is None:
            if not _groups:
                return
            _pipe = _start()
            line = b"".join([b"+ %d\n" % group for group in _groups])
        try:
            os.write(_pipe, line)
            return
        except OSError:
            _forget()


def _start() -> int:
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            # Ctrl-C in a terminal must not reach the reaper.
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    # The reaper outlives this process and is never waited for; this suppresses a `ResourceWarning`.
    process.returncode = 0
    return ours


def _forget() -> None:
    global _pipe
    pipe, _pipe = _pipe, None
    if pipe is not None:
        # A program that becomes a daemon has closed all descriptors.
        with contextlib.suppress(OSError):
            os.close(pipe)


def _after_fork() -> None:
    """Reset the state of a forked child; the reaper belongs to its parent."""
    _groups.clear()
    _forget()
    # The lock was acquired before the fork; see `register_at_fork` below.
    _lock.release()


if hasattr(os, "register_at_fork"):
    # No fork may happen while `_start` holds a pipe that `_after_fork` does not know: the child
    # would keep it open, and the reaper would never see its end.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
