"""The key that seals stored logins, kept in the system's keyring or in a file."""

import base64
import contextlib
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...errors import AuthorizationError
from .private_folder import create_private_folder

__all__ = ["SealingKey"]

log = logging.getLogger("fairlead.auth")

KEY_BYTES = 32  # bytes of an AES-256 key
KEYRING_TIMEOUT = 60.0  # seconds for a keyring to answer; its user may have to unlock it
LOCK_TIMEOUT = 70.0  # seconds for another process to create the key in the keyring
LOCK_POLL = 0.05  # seconds between two attempts to lock
_SERVICE = "fairlead"
_ACCOUNT = "credential-store"


class SealingKey:
    """A key that is created on first use and then read once per process.

    With the package `keyring` (extra `keyring`) and a working backend, the system keeps the key, so
    that a copy of the folder cannot be decrypted. Otherwise it is in a file that only its owner can
    read.
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
            # A key file that exists is used even if a keyring was installed later,
            # because the stored logins were sealed with it.
            self._value = self._read_file() or self._from_keyring() or self._create_file()
        return self._value

    def _check_new(self) -> None:
        """Refuse to create a key while logins are stored that only the old key can open."""
        if self._has_logins and not self._path.exists():
            raise _unusable(
                f"the key of the stored logins is neither in {self._path} nor in the keyring of "
                f"the system: restore it, or delete {self._path.parent} and log in again"
            )

    def _read_file(self) -> bytes | None:
        try:
            raw = self._path.read_bytes()
            if self._path.stat().st_mode & 0o077:
                log.warning("%s was readable by other users; its mode is now 0600", self._path)
                self._path.chmod(0o600)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unusable(f"cannot read {self._path}: {exc.strerror}") from exc
        if len(raw) != KEY_BYTES:
            raise _unusable(f"{self._path} is damaged: delete it and log in again")
        return raw

    def _create_file(self) -> bytes:
        self._check_new()
        key = secrets.token_bytes(KEY_BYTES)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        create_private_folder(self._path.parent)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            # `os.link` fails if another process has created the file first; its key is then used.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self._path)
        except OSError as exc:
            raise _unusable(f"cannot create {self._path}: {exc.strerror}") from exc
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        return self._read_file() or key

    def _from_keyring(self) -> bytes | None:
        if not self._use_keyring:
            return None
        try:
            import keyring
        except ImportError:
            return None
        try:
            text = _in_time(keyring.get_password, _SERVICE, _ACCOUNT)
            if text is None:
                with self._creating():
                    found = _in_time(keyring.get_password, _SERVICE, _ACCOUNT)
                    text = found or self._create_in(keyring)
        except AuthorizationError:
            raise
        # Backends raise errors of their own: locked, missing, or not permitted.
        except Exception as exc:
            why = str(exc) if isinstance(exc, _Unanswered) else type(exc).__name__
            has_logins = self._has_logins
            # Another program may have created a file, and stored its first login, meanwhile.
            if (created := self._read_file()) is not None:
                return created
            missing = type(exc).__name__ == "NoKeyringError"
            # Logins that were sealed with the key in the keyring must not be replaced.
            if has_logins and missing:
                raise _unusable(
                    f"the key of the stored logins is neither in {self._path} nor in a keyring, "
                    "because this session of the system has none: restore it, or delete "
                    f"{self._path.parent} and log in again"
                ) from exc
            if has_logins:
                raise _unusable(
                    f"the system's keyring returns no key ({why}): unlock it, or delete "
                    f"{self._path.parent} and log in again"
                ) from exc
            # A machine without any keyring is usual, for example a server.
            level = logging.INFO if missing else logging.WARNING
            what = "the system's keyring cannot be used (%s); %s holds the key of stored logins"
            log.log(level, what, why, self._path)
            return None
        return self._decoded(text)

    @property
    def _has_logins(self) -> bool:
        return any(self._path.parent.glob("*.sealed"))

    def _decoded(self, text: str) -> bytes:
        with contextlib.suppress(ValueError):
            key = base64.b64decode(text)
            if len(key) == KEY_BYTES:
                return key
        raise _unusable(
            f"the key {_ACCOUNT!r} of {_SERVICE!r} in the system's keyring is damaged: restore it, "
            f"or delete it and {self._path.parent} and log in again"
        )

    def _create_in(self, keyring: Any) -> str:
        self._check_new()
        text = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        _in_time(keyring.set_password, _SERVICE, _ACCOUNT, text)
        # A disabled keyring accepts a key without storing it.
        if _in_time(keyring.get_password, _SERVICE, _ACCOUNT) != text:
            raise LookupError("the keyring does not store keys")
        return text

    @contextlib.contextmanager
    def _creating(self) -> Iterator[None]:
        """Let one process at a time create a key, because a keyring replaces the existing one."""
        create_private_folder(self._path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path.with_suffix(".lock"), flags, 0o600)
        except OSError as exc:
            raise _unusable(f"cannot lock {self._path.parent}: {exc.strerror}") from exc
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)  # releases the lock


class _Unanswered(Exception):
    """Raised if a keyring does not answer, for example because it waits for its user."""


def _in_time(call: Callable[..., Any], *arguments: str) -> Any:
    """Call a keyring in a thread of its own, which does not keep the program from ending.

    Raises:
        _Unanswered: The keyring does not answer.
    """
    outcome: Future[Any] = Future()

    def answer() -> None:
        try:
            outcome.set_result(call(*arguments))
        except BaseException as exc:  # raised again by `result`
            outcome.set_exception(exc)

    threading.Thread(target=answer, daemon=True, name="fairlead-keyring").start()
    try:
        return outcome.result(KEYRING_TIMEOUT)
    except TimeoutError as exc:
        raise _Unanswered(f"no answer within {KEYRING_TIMEOUT:.0f} seconds") from exc


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise _unusable("another process takes too long to create its key") from exc
        time.sleep(LOCK_POLL)


def _unusable(why: str) -> AuthorizationError:
    return AuthorizationError(f"the credential store cannot be used: {why}", step="storage")
