"""The key that seals stored logins: in the keyring of the system, or in a file."""

import base64
import contextlib
import logging
import os
import secrets
from pathlib import Path

from ...errors import AuthorizationError

__all__ = ["SealingKey"]

log = logging.getLogger("fairlead.auth")

KEY_BYTES = 32  # AES-256
_SERVICE = "fairlead"
_ACCOUNT = "credential-store"


class SealingKey:
    """A key that is created on first use and then read once per process.

    With the package `keyring` (extra `keyring`) and a working backend it is kept by the system, so
    that a copy of the folder does not open. Otherwise it is in a file that only its owner can read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, use_keyring: bool = True) -> None:
        self._path = Path(folder) / "sealing.key"
        self._use_keyring = use_keyring
        self._value: bytes | None = None

    def value(self) -> bytes:
        """Return the key.

        Raises:
            AuthorizationError: The key can be neither read nor created.
        """
        if self._value is None:
            # A key file that exists is used even if a keyring was installed later, because the
            # stored logins were sealed with it.
            self._value = self._read_file() or self._from_keyring() or self._create_file()
        return self._value

    def _read_file(self) -> bytes | None:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unusable(f"cannot read {self._path}: {exc.strerror}") from exc
        if len(raw) != KEY_BYTES:
            raise _unusable(f"{self._path} is damaged: delete it and log in again")
        return raw

    def _create_file(self) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            # A link fails if another process was first; its key is then used.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self._path)
            temporary.unlink()
        except OSError as exc:
            raise _unusable(f"cannot create {self._path}: {exc.strerror}") from exc
        return self._read_file() or key

    def _from_keyring(self) -> bytes | None:
        if not self._use_keyring:
            return None
        try:
            import keyring
        except ImportError:
            return None
        try:
            text = keyring.get_password(_SERVICE, _ACCOUNT)
            if text is None:
                text = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
                keyring.set_password(_SERVICE, _ACCOUNT, text)
                text = keyring.get_password(_SERVICE, _ACCOUNT) or text
            key = base64.b64decode(text)
        # Backends raise errors of their own: locked, missing, or not permitted.
        except Exception as exc:
            # Logins that were sealed with the key in the keyring must not be replaced.
            if any(self._path.parent.glob("*.sealed")):
                why = f"the system's keyring does not answer ({type(exc).__name__}): unlock it"
                raise _unusable(why) from exc
            log.debug("no usable keyring (%s); %s holds the key", type(exc).__name__, self._path)
            return None
        return key if len(key) == KEY_BYTES else None


def _unusable(why: str) -> AuthorizationError:
    return AuthorizationError(f"the credential store cannot be used: {why}", step="storage")
