"""The folder of stored logins, which other users of the machine must not be able to change."""

import contextlib
from pathlib import Path

from ...errors import AuthorizationError

__all__ = ["create_private_folder"]

_OWN_FILES = ("login-", "client-", "sealing.", ".login-", ".client-", ".sealing.")


def create_private_folder(folder: Path) -> None:
    """Create a folder for its owner only, or restrict an existing folder to its owner.

    A folder with files of others is not restricted, because its other users may need it.

    Raises:
        AuthorizationError: The folder cannot be created, or other users can change its files.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
        if not mode & 0o077:
            return
        if all(path.name.startswith(_OWN_FILES) for path in folder.iterdir()):
            # Only the owner of the folder can restrict it.
            with contextlib.suppress(PermissionError):
                folder.chmod(0o700)
                return
    except OSError as exc:
        raise _unusable(f"cannot create {folder}: {exc.strerror}") from exc
    # Other users could replace the key and the logins with their own.
    if mode & 0o022:
        raise _unusable(
            f"other users can change files in {folder}: choose a folder of its own for logins, or "
            f"run `chmod go-w {folder}`"
        )


def _unusable(why: str) -> AuthorizationError:
    return AuthorizationError(f"the credential store cannot be used: {why}", step="storage")
