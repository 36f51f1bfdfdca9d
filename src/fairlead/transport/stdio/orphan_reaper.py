"""Nothing is left behind, even when we are killed with SIGKILL.

One `sh` per host process reads the ids of our process groups from a pipe that only we hold. When
the pipe closes, because we have gone in whatever way, it ends the groups that are still
registered. (`PDEATHSIG` would follow the thread that spawned, miss grandchildren, and needs a slow
`preexec_fn`.)
"""

import contextlib
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
    """End this process group when we are gone. Blocks for some milliseconds the first time.

    Raises:
        OSError: the reaper cannot be started.
    """
    with _lock:
        _groups.add(group)
        try:
            _tell(b"+ %d\n" % group)
        except BaseException:
            _groups.discard(group)
            raise


def unregister(group: int) -> None:
    """The group has ended; its number may be used again by somebody else."""
    with _lock:
        if group in _groups:
            _groups.discard(group)
            with contextlib.suppress(OSError):
                _tell(b"- %d\n" % group)


_lock = threading.RLock()  # a signal handler may fork in the midst of this
_groups: set[int] = set()  # those that the reaper knows
_pipe: int | None = None  # our end; plain, so that nothing but our death closes it by accident


def _tell(line: bytes) -> None:
    global _pipe
    for _ in range(2):  # a reaper that somebody killed is started anew, once
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
            start_new_session=True,  # Ctrl-C in a terminal goes to us, not to it
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    process.returncode = 0  # it outlives us: nobody will wait for it, and that is no leak
    return ours


def _forget() -> None:
    global _pipe
    pipe, _pipe = _pipe, None
    if pipe is not None:
        with contextlib.suppress(OSError):  # a program that becomes a daemon closes everything
            os.close(pipe)


def _after_fork() -> None:
    """A forked child has no servers; the reaper belongs to its parent."""
    _groups.clear()
    _forget()
    _lock.release()


if hasattr(os, "register_at_fork"):
    # No child is made while there is a pipe of which it would not know: it would keep it open.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
