"""Other people on this machine, who can connect to every port on its loopback address."""

import os
import struct
import sys
from collections.abc import Iterator

__all__ = ["other_users"]

FIRST_PERSON = 1000  # user ids below it belong to the system
NOBODY = 65534
_NO_LOGIN = ("nologin", "false", "sync", "shutdown", "halt")

_PROC = "/proc"
_LOGGED_IN = "/run/systemd/users"  # a file for each, named like its user id
_UTMP = "/run/utmp"
_RECORD = struct.Struct("=h2xi32s4s32s")  # type, pid, line, id, user: how a record begins
_SIZES = (384, 400)  # of a record; the second one where times have 64 bits
_USER_PROCESS = 7
_MOST = 1 << 20  # bytes of that file that are worth reading


def other_users() -> list[str]:
    """Return the names of other people who are logged in or run something, sorted.

    Never fails: what cannot be read counts for nothing, so an empty list proves nothing.
    """
    if sys.platform == "win32":
        return []
    from pwd import getpwnam, getpwuid

    found = set()
    known: set[int | str] = {*_process_owners(), *_sessions(), *_utmp_users()}
    for who in known:
        try:
            person = getpwuid(who) if isinstance(who, int) else getpwnam(who)
        except (KeyError, OSError, ValueError):
            continue  # a container's user, or one that is gone
        shell = os.path.basename(person.pw_shell)
        if (
            person.pw_uid not in (os.getuid(), os.geteuid(), NOBODY)
            and person.pw_uid >= FIRST_PERSON
            and shell not in _NO_LOGIN
        ):
            found.add(person.pw_name)
    return sorted(found)


def _process_owners() -> Iterator[int]:
    """Yield the owners of processes, as far as the kernel shows them (Linux)."""
    try:
        with os.scandir(_PROC) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    try:
                        yield entry.stat().st_uid
                    except OSError:
                        continue  # it has just ended
    except OSError:
        return


def _sessions() -> Iterator[int]:
    """Yield the ids of users who are logged in, where systemd keeps count."""
    try:
        yield from (int(name) for name in os.listdir(_LOGGED_IN) if name.isdigit())
    except OSError:
        return


def _utmp_users() -> Iterator[str]:
    """Yield the names of users who are logged in, from the file that `who` reads."""
    try:
        with open(_UTMP, "rb") as file:
            content = file.read(_MOST)
    except OSError:
        return
    size = next((size for size in _SIZES if len(content) % size == 0), _SIZES[0])
    for start in range(0, len(content) - _RECORD.size + 1, size):
        kind, _, _, _, user = _RECORD.unpack_from(content, start)
        if kind == _USER_PROCESS:
            yield user.partition(b"\0")[0].decode("utf-8", "replace")
