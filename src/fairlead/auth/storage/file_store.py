"""Logins in sealed files, one for each login, for all processes of a user.

A file is encrypted with AES-256-GCM. Owner, server, issuer and resource are stored beside the
sealed part and authenticated with it, so a file that is copied to another name cannot be opened.
"""

import errno
import fcntl
import hashlib
import logging
import os
import secrets
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from ...errors import AuthorizationError
from ...store.atomic_write import write_atomically
from ..token_response import ClientRegistration
from .credential_store import LoginLock, StoredLogin
from .private_folder import create_private_folder
from .sealing_key import SealingKey

__all__ = ["FileCredentialStore"]

log = logging.getLogger("fairlead.auth")

MAX_FILE = 1 << 20  # bytes of a login file at most
_NONCE = 12  # bytes of an AES-GCM nonce

T = TypeVar("T")


class _SealedFile(Struct, frozen=True):
    """Content of a file: the names that it is bound to, and the encrypted record."""

    bound: list[str]  # names in plain text, authenticated with the record
    nonce: bytes
    sealed: bytes
    version: int = 1


# Built here, because logins are loaded in several threads:
# msgspec crashes if one thread decodes a type while another one is resolving its fields.
_decode_sealed = msgspec.msgpack.Decoder(_SealedFile).decode
_DECODERS: dict[type[Any], Any] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (StoredLogin, ClientRegistration)
}


class FileCredentialStore:
    """Logins in a folder that only its owner can read."""

    def __init__(self, folder: str | os.PathLike[str], key: SealingKey | None = None) -> None:
        """`key` seals the files; by default it is in the system's keyring or in the same folder."""
        self._folder = Path(folder)
        self._key = key or SealingKey(self._folder)

    def load(self, owner: str, server: str) -> StoredLogin | None:
        login = self._open(self._login_path(owner, server), StoredLogin, "login")
        # The names are part of the sealed record: a renamed file is not accepted.
        if login is None or (login.owner, login.server) != (owner, server):
            return None
        return login

    def save(self, login: StoredLogin) -> None:
        bound = ["login", login.owner, login.server, login.issuer, login.resource or ""]
        self._write(self.path_of(login), bound, login)

    def delete(self, owner: str, server: str) -> bool:
        return self._unlink(self._login_path(owner, server))

    def path_of(self, login: StoredLogin) -> Path:
        """Return the file of a login."""
        return self._login_path(login.owner, login.server)

    def logins(self) -> list[StoredLogin]:
        found = [self._open(path, StoredLogin, "login") for path in self.paths()]
        return [login for login in found if login is not None]

    def paths(self) -> list[Path]:
        """Return the files of all logins, also of those that cannot be opened."""
        return sorted(self._folder.glob("login-*.sealed")) if self._folder.is_dir() else []

    def load_registration(self, issuer: str, redirect_uri: str) -> ClientRegistration | None:
        path = self._client_path(issuer, redirect_uri)
        return self._open(path, ClientRegistration, "client", issuer, redirect_uri)

    def save_registration(
        self, issuer: str, redirect_uri: str, client: ClientRegistration | None
    ) -> None:
        path = self._client_path(issuer, redirect_uri)
        if client is None:
            self._unlink(path)
        else:
            self._write(path, ["client", issuer, redirect_uri], client)

    def lock(self, owner: str, server: str) -> LoginLock:
        create_private_folder(self._folder)
        return _FileLock(self._login_path(owner, server).with_suffix(".lock"))

    # Files

    def _login_path(self, owner: str, server: str) -> Path:
        return self._folder / f"login-{_digest(owner, server)}.sealed"

    def _client_path(self, issuer: str, redirect_uri: str) -> Path:
        return self._folder / f"client-{_digest(issuer, redirect_uri)}.sealed"

    def _open(self, path: Path, kind: type[T], *bound: str) -> T | None:
        """Return the record in a file; None if it is missing, unusable or bound to other names."""
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unusable(f"cannot read {path}: {exc.strerror}") from exc
        try:
            sealed = _decode_sealed(raw)
            plain = self._cipher().decrypt(sealed.nonce, sealed.sealed, _bytes(sealed.bound))
            if tuple(sealed.bound[: len(bound)]) != bound:
                raise ValueError("the file belongs to another name")
            return cast(T, _DECODERS[kind].decode(plain))
        except AuthorizationError:
            raise
        # Truncated, written with another key, or modified: the next login replaces the file.
        except Exception as exc:
            why = "it is damaged or was encrypted with another key; log in again"
            log.warning("%s cannot be opened (%s): %s", path, type(exc).__name__, why)
            return None

    def _write(self, path: Path, bound: list[str], record: object) -> None:
        create_private_folder(self._folder)
        nonce = secrets.token_bytes(_NONCE)
        plain = msgspec.msgpack.encode(record)
        sealed = self._cipher().encrypt(nonce, plain, _bytes(bound))
        content = msgspec.msgpack.encode(_SealedFile(bound, nonce, sealed))
        try:
            write_atomically(path, content, durable=True)
        except OSError as exc:
            raise _unusable(f"cannot write {path}: {exc.strerror}") from exc

    def _unlink(self, path: Path) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise _unusable(f"cannot delete {path}: {exc.strerror}") from exc
        return True

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key.value())


class _FileLock:
    """Advisory lock on a file of its own, which the system releases when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise _unusable(f"cannot lock {self._path}: {exc.strerror}") from exc
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(descriptor)
            if exc.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise _unusable(f"cannot lock {self._path}: {exc.strerror}") from exc
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        # The file stays: deleting it would let two processes hold locks on different files.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing is not enough if a forked process has a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _digest(*names: str) -> str:
    return hashlib.sha256(_bytes(list(names))).hexdigest()[:32]


def _bytes(names: list[str]) -> bytes:
    return msgspec.msgpack.encode(names)


def _unusable(why: str) -> AuthorizationError:
    return AuthorizationError(f"the credential store cannot be used: {why}", step="storage")
