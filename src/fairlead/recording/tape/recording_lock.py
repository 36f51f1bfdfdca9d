"""Who records a tape holds a lock on it, which ends with the process, however that ends."""

import sys

__all__ = ["held", "hold"]

if sys.platform == "win32":  # two recorders of one name are not noticed there

    def hold(file: int) -> None:
        """Nothing is held."""

    def held(file: int) -> bool:
        """Nobody can tell."""
        return False

else:
    import fcntl

    def hold(file: int) -> None:
        """Take the lock of an open file.

        Raises:
            OSError: somebody else records it.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise OSError(exc.errno, "somebody else is recording it") from None

    def held(file: int) -> bool:
        """Whether somebody holds it."""
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False
