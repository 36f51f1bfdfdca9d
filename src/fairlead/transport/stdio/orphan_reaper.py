"""Termination of child processes after this process has died, even by SIGKILL.

One `sh` per host process reads the ids of our process groups from a pipe whose write end only this
process holds. When the pipe closes, because this process has ended for whatever reason, the shell
ends the groups that are still registered. (`PDEATHSIG` would act when the spawning thread ends,
miss grandchildren, and need a slow `preexec_fn`.)
"""

import contextlib
import os
import subprocess
import threading
import time

__all__ = ["register", "unregister"]

RESTART_PAUSE = 1.0  # seconds before a reaper that was killed soon after its start is replaced

# No `--` before the group: dash does not support it.
# Servers see the end of their stdin at the same moment and get one second to exit.
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
_inode = 0  # inode of the pipe; shows that `_pipe` is still the same file
_pid = 0  # process id of the reaper


def _tell(line: bytes) -> None:
    global _pipe, _inode
    # A reaper that was killed is started again, once.
    for _ in range(2):
        if _pipe is None:
            if not _groups:
                return
            _pipe = _start()
            _inode = os.fstat(_pipe).st_ino
            line = b"".join([b"+ %d\n" % group for group in _groups])
        try:
            os.write(_pipe, line)
            return
        except OSError:
            _forget()


def _start() -> int:
    global _pid
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
    # The reaper usually outlives this process; this suppresses a `ResourceWarning`.
    process.returncode = 0
    # Without a thread, a reaper that was killed is replaced at the next start or end of a server.
    with contextlib.suppress(RuntimeError):
        watch = threading.Thread(
            target=_replace, args=(process.pid,), name="fairlead-reaper", daemon=True
        )
        watch.start()
    _pid = process.pid
    return ours


def _replace(pid: int) -> None:
    """Wait for the end of a reaper, and start another one if servers need it."""
    began = time.monotonic()
    # The program may have collected the process itself.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    if time.monotonic() - began < RESTART_PAUSE:
        time.sleep(RESTART_PAUSE)
    with _lock:
        if _pid == pid:
            _forget()
            with contextlib.suppress(OSError):  # tried again with the next server
                _tell(b"")


def _forget() -> None:
    global _pipe, _pid
    pipe, _pipe, _pid = _pipe, None, 0
    if pipe is not None:
        # A program that becomes a daemon has closed all descriptors.
        with contextlib.suppress(OSError):
            if os.fstat(pipe).st_ino == _inode:
                os.close(pipe)


def _after_fork() -> None:
    """Reset the state of a forked child; the reaper belongs to its parent."""
    _groups.clear()
    _forget()
    # The lock was acquired before the fork; see `register_at_fork` below.
    _lock.release()


if hasattr(os, "register_at_fork"):
    # No fork may happen while `_start` holds a pipe that `_after_fork` does not know:
    # the child would keep it open, and the reaper would never see its end.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
