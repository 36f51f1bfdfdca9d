"""Lock for a tape while it is recorded. The system releases the lock when the process ends."""

import sys

__all__ = ["held", "hold"]

# Windows has no `flock`, so two recorders of one tape are not detected on Windows.
if sys.platform == "win32":

    def hold(file: int) -> None:
        """Do nothing, because Windows has no `flock`."""

    def held(file: int) -> bool:
        """Return False: the lock is not supported."""
        return False

else:
    import fcntl

    def hold(file: int) -> None:
        """Lock an open file.

        Raises:
            OSError: Another process is recording the tape.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise OSError(exc.errno, "another process is recording this tape") from None

    def held(file: int) -> bool:
        """Return True if another process holds the lock."""
        try:
            # A shared lock fails if and only if a recorder holds the exclusive lock.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False
