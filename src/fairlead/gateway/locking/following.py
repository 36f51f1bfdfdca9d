"""A lock file that may change while it is used: what was approved meanwhile holds at once."""

import logging
import os
import time
from typing import Final

from ...errors import ConfigError
from .file import Lock, read_lock

__all__ = ["LockFile"]

LOOK_AGAIN: Final = 0.5  # seconds after which the file is looked at with the next message

log = logging.getLogger("fairlead.gateway.lock")


class LockFile:
    """What a lock file says, now. One with mistakes changes nothing, and the log says why."""

    def __init__(self, path: str | os.PathLike[str], *, interval: float = LOOK_AGAIN) -> None:
        """Raises: ConfigError: it is not there, or no lock file."""
        self.path = os.fspath(path)
        self._interval = interval
        self._read = _stamp(self.path)
        self.lock: Lock = read_lock(path)
        self._look_at = time.monotonic() + interval

    def look(self) -> bool:
        """Read it again, if it has changed; whether that made a difference."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + self._interval
        stamp = _stamp(self.path)
        if stamp == self._read:
            return False
        self._read = stamp
        try:
            self.lock = read_lock(self.path)
        except ConfigError as exc:
            log.error("the lock stays as it was: %s", exc)
            return False
        log.info("%s: the lock was read again", self.path)
        return True


def _stamp(path: str) -> tuple[int, int, int]:
    """What tells one state of a file from another; a file that is gone has one too."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino
