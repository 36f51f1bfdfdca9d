"""Other users of this machine, who can connect to every port on its loopback address."""

import os
import sys
from collections.abc import Iterator

__all__ = ["other_users"]

FIRST_PERSON = 1000  # lower user ids belong to system accounts
NOBODY = 65534
_NO_LOGIN = ("nologin", "false", "sync", "shutdown", "halt")

_PROC = "/proc"
_LOGGED_IN = "/run/systemd/users"  # folder with one file per user, named after the user id


def other_users() -> list[str]:
    """Return the sorted names of other users who are logged in or run processes.

    Sources that cannot be read are ignored, so the list may be incomplete.
    """
    if sys.platform == "win32":
        return []
    from pwd import getpwuid

    found = set()
    for uid in {*_process_owners(), *_sessions()}:
        try:
            person = getpwuid(uid)
        except (KeyError, OSError):
            continue  # the user id belongs to a container or a deleted account
        shell = os.path.basename(person.pw_shell)
        if (
            person.pw_uid not in (os.getuid(), os.geteuid(), NOBODY)
            and person.pw_uid >= FIRST_PERSON
            and shell not in _NO_LOGIN
        ):
            found.add(person.pw_name)
    return sorted(found)


def _process_owners() -> Iterator[int]:
    """Yield the user ids of all processes that the kernel shows (Linux only)."""
    try:
        with os.scandir(_PROC) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    try:
                        yield entry.stat().st_uid
                    except OSError:
                        continue  # the process has just ended
    except OSError:
        return


def _sessions() -> Iterator[int]:
    """Yield the ids of users who are logged in, as recorded by systemd."""
    try:
        yield from (int(name) for name in os.listdir(_LOGGED_IN) if name.isdigit())
    except OSError:
        return
