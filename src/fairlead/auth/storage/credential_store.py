"""Logins and client registrations, and the interface of the stores that keep them.

All methods of a store are synchronous and may block while they read or write a small file;
`OAuthAuthorizer` calls them in a worker thread.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..metadata import is_within
from ..token_response import ClientRegistration, TokenSet

__all__ = ["CredentialStore", "LoginLock", "MemoryCredentialStore", "StoredLogin"]


class StoredLogin(Struct, frozen=True, kw_only=True):
    """Login with all values that a renewal needs, so that a renewal requires no discovery."""

    owner: str  # the user of a gateway, or "" for the user of this machine
    server: str  # key: the URL of the server, or the configured `credentialId`
    url: str  # URL of the server without credentials and query
    issuer: str
    resource: str | None
    token_endpoint: str
    client: ClientRegistration
    auth_method: str
    tokens: TokenSet
    requested: tuple[str, ...] = ()  # scopes requested at the login
    configured_scopes: tuple[str, ...] | None = None  # scopes of the settings at the login
    revocation_endpoint: str | None = None
    dpop_key: dict[str, Any] | None = None  # private JWK
    login_id: str = ""  # differs between two logins; a renewal keeps it
    replaced_id: str | None = None  # `login_id` of the login that this one replaced
    generation: int = 1  # incremented by each renewal
    ended: bool = False  # the server no longer accepts the refresh token
    kind: str = "oauth"  # "apikey": the access token is a key that the user entered

    def covers(self, url: str) -> bool:
        """Return True if the token may be sent to a URL: its resource, or a path below it."""
        # The resource may be a parent of the server's URL, or a name that the user configured.
        parent = self.resource is not None and is_within(self.url, self.resource)
        return is_within(url, self.resource if parent and self.resource else self.url)

    def is_usable(self, now: float) -> bool:
        """Return True unless the login has ended or its token has certainly expired."""
        # A lifetime of 0 is a mistake of the server, which may accept the token once.
        return not self.ended and (self.tokens.lifetime == 0 or self.tokens.is_valid(now))

    def is_sent_in(self, headers: Mapping[str, str]) -> bool:
        """Return True if the headers of a request contain the access token."""
        return headers.get("Authorization", "").endswith(f" {self.tokens.access_token}")

    @property
    def secrets(self) -> dict[str, object]:
        """The secrets of the login by names that indicate secrets."""
        return {
            "access_token": self.tokens.access_token,
            "refresh_token": self.tokens.refresh_token,
            "client_secret": self.client.client_secret,
            "secret_key": (self.dpop_key or {}).get("d"),
        }

    def renewed(self, tokens: TokenSet) -> "StoredLogin":
        """Return the login with newer tokens."""
        return msgspec.structs.replace(self, tokens=tokens, generation=self.generation + 1)

    def __repr__(self) -> str:
        names = (self.owner, self.server, self.issuer)
        return f"StoredLogin{names} generation {self.generation}"


class LoginLock(Protocol):
    """Lock of one login among all tasks, threads and processes that use the store."""

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. A process releases its locks when it ends."""

    def release(self) -> None: ...


class CredentialStore(Protocol):
    """Interface of stores for logins. Implementations are safe to use from several threads.

    Methods raise `AuthorizationError` with the step `storage` if the store cannot be used.
    """

    def load(self, owner: str, server: str) -> StoredLogin | None:
        """Return a login, or None if it is missing or cannot be read."""

    def save(self, login: StoredLogin) -> None:
        """Store a login, replacing an older one of the same owner and server."""

    def delete(self, owner: str, server: str) -> bool:
        """Delete a login; return False if there was none."""

    def logins(self) -> list[StoredLogin]:
        """Return all logins."""

    def load_registration(self, issuer: str, redirect_uri: str) -> ClientRegistration | None:
        """Return the client that was registered at an issuer for a redirect URI."""

    def save_registration(
        self, issuer: str, redirect_uri: str, client: ClientRegistration | None
    ) -> None:
        """Store a registration, or delete it with None."""

    def lock(self, owner: str, server: str) -> LoginLock:
        """Return a new handle on the lock of a login."""


class MemoryCredentialStore:
    """Store of logins in memory, lost when the process ends."""

    def __init__(self) -> None:
        self._logins: dict[tuple[str, str], StoredLogin] = {}
        self._registrations: dict[tuple[str, str], ClientRegistration] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._guard = threading.Lock()

    def load(self, owner: str, server: str) -> StoredLogin | None:
        return self._logins.get((owner, server))

    def save(self, login: StoredLogin) -> None:
        self._logins[login.owner, login.server] = login

    def delete(self, owner: str, server: str) -> bool:
        return self._logins.pop((owner, server), None) is not None

    def logins(self) -> list[StoredLogin]:
        return list(self._logins.values())

    def load_registration(self, issuer: str, redirect_uri: str) -> ClientRegistration | None:
        return self._registrations.get((issuer, redirect_uri))

    def save_registration(
        self, issuer: str, redirect_uri: str, client: ClientRegistration | None
    ) -> None:
        if client is None:
            self._registrations.pop((issuer, redirect_uri), None)
        else:
            self._registrations[issuer, redirect_uri] = client

    def lock(self, owner: str, server: str) -> LoginLock:
        with self._guard:
            lock = self._locks.setdefault((owner, server), threading.Lock())
        return _ThreadLock(lambda: lock.acquire(blocking=False), lock.release)


class _ThreadLock:
    def __init__(self, acquire: Callable[[], bool], release: Callable[[], None]) -> None:
        self.try_acquire = acquire
        self.release = release
