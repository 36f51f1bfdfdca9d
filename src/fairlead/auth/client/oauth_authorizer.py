"""Credentials of an HTTP client: a stored login, renewed when needed, or a new login.

Requests never wait for each other. A lock is held only for a renewal or a login: among the tasks
of a program by an `asyncio.Lock`, and among threads and processes by the lock of the store.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from ...errors import AuthorizationError, LoginRequired
from ...observe.log_filter import register_secrets
from ...transport.http.client.http1.http_client import HttpResponse
from ..challenge import Challenge, parse_challenges, pick_challenge
from ..dpop import DpopKey
from ..guarded_fetch import GuardedFetcher
from ..metadata import canonical_resource, origin_of
from ..scopes import ScopeHistory
from ..storage.credential_store import CredentialStore, MemoryCredentialStore, StoredLogin
from .interactive_login import LOGIN_TIMEOUT, Authorize, LoginPrompt
from .login_flow import LoginFlow, LoginTarget
from .oauth_settings import OAuthSettings
from .token_endpoint import TokenEndpoint

__all__ = ["OAuthAuthorizer"]

log = logging.getLogger("fairlead.auth")

LOCK_POLL = 0.02  # seconds between two attempts to lock a login, on average
# Seconds for which a failed login is not attempted again; every request would start another one.
FAILURE_PAUSE = 30.0
_NONE: Mapping[str, str] = {}


class OAuthAuthorizer:
    """`RequestAuthorizer` with OAuth 2.1 for one server and one owner."""

    def __init__(
        self,
        url: str,
        settings: OAuthSettings | None = None,
        *,
        store: CredentialStore | None = None,
        owner: str = "",
        credential_id: str | None = None,
        authorize: Authorize | None = None,
        prompt: LoginPrompt | None = None,
        remedy: str = "",
    ) -> None:
        """`authorize` or `prompt` lets a person log in; without them a stored login is required.

        `credential_id` is the key of the login in the store, by default the URL of the server.
        `remedy` tells the user of a program without a prompt how to log in.
        """
        self._url = url
        self._settings = settings or OAuthSettings()
        self._store = store if store is not None else MemoryCredentialStore()
        self._target = LoginTarget(url, owner, credential_id or canonical_resource(url))
        host = urlsplit(url).hostname or ""
        fetcher = GuardedFetcher(
            allow_loopback=host in ("localhost", "127.0.0.1", "::1"),
            allow_private=self._settings.allow_private,
        )
        self._fetcher = fetcher
        self._flow = LoginFlow(
            self._target, self._settings, self._store, fetcher, authorize=authorize, prompt=prompt
        )
        self._remedy = remedy
        self._login: StoredLogin | None = None
        self._loaded = False
        self._key: DpopKey | None = None
        self._nonce: str | None = None  # of the server; the token endpoint has its own
        self._steps = ScopeHistory()
        self._renewed_after_challenge = 0  # generation
        self._failure: tuple[float, AuthorizationError] | None = None
        self._lock: asyncio.Lock | None = None

    # Methods of RequestAuthorizer

    def current(self, method: str, url: str) -> Mapping[str, str] | None:
        login = self._login
        if login is None:
            return _NONE if self._loaded else None
        if not login.tokens.is_fresh(time.time()) and self._can_renew(login):
            return None
        return self._headers(login, method, url)

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        login = await self._stored()
        if login is not None and not login.tokens.is_fresh(time.time()) and self._can_renew(login):
            login = await self._renewed_in_time(login)
        return _NONE if login is None else self._headers(login, method, url)

    async def challenged(self, reply: HttpResponse, sent: Mapping[str, str]) -> bool:
        challenge = pick_challenge(parse_challenges(reply.header("www-authenticate")))
        nonce = reply.header("dpop-nonce")
        if nonce is not None and nonce != self._nonce:
            self._nonce = nonce
            if challenge is not None and challenge.error == "use_dpop_nonce" and "DPoP" in sent:
                return True
        if reply.status == 403 and (challenge is None or challenge.error != "insufficient_scope"):
            return False
        async with self._tasks():
            login = self._login
            # Another request obtained a newer token while this one was under way.
            if login is not None and not _carries(sent, login):
                return True
            if reply.status == 403:
                return await self._step_up(challenge)
            return await self._replaced(login, challenge)

    # For other transports

    async def access_token(self) -> str | None:
        """Return a valid access token, for servers that receive it in another way than HTTP.

        Raises:
            AuthorizationError: The stored login cannot be renewed.
        """
        login = await self._stored()
        if login is not None and not login.tokens.is_fresh(time.time()) and self._can_renew(login):
            login = await self._renewed_in_time(login)
        return None if login is None else login.tokens.access_token

    async def log_in(self, scopes: Sequence[str] | None = None) -> StoredLogin:
        """Log in now, replacing a stored login.

        Raises:
            AuthorizationError: A step failed.
        """
        async with self._tasks():
            await self._log_in(None, await self._stored(), scopes, wanted=True)
        assert self._login is not None
        return self._login

    async def log_out(self) -> bool:
        """Delete the stored login and revoke its tokens; return False if there was none."""
        login = await asyncio.to_thread(self._store.load, self._target.owner, self._target.server)
        self._adopt(None)
        removed = await asyncio.to_thread(
            self._store.delete, self._target.owner, self._target.server
        )
        if login is not None and login.revocation_endpoint is not None:
            await self._revoke(login, login.revocation_endpoint)
        return removed

    # Renewal

    async def _stored(self) -> StoredLogin | None:
        if not self._loaded:
            found = await self._newest()
            if not self._loaded:
                self._adopt(found)
        return self._login

    def _adopt(self, login: StoredLogin | None) -> None:
        self._loaded = True
        self._login = login
        if login is not None:
            # Registered again for each login, because the log filter reads the values once.
            secrets = {"token": login.tokens.access_token, "secret": login.tokens.refresh_token}
            register_secrets(self, lambda: secrets)
        key = None if login is None else login.dpop_key
        self._key = None if key is None else DpopKey(key)

    def _can_renew(self, login: StoredLogin) -> bool:
        if login.ended:
            return False
        return login.tokens.refresh_token is not None or not self._flow.needs_person

    async def _renewed_in_time(self, login: StoredLogin) -> StoredLogin | None:
        """Renew a token before it expires; a failure matters only if it has expired already."""
        async with self._tasks():
            if self._login is not login:
                return self._login
            try:
                return await self._renew(login, None)
            except AuthorizationError as exc:
                if login.tokens.is_valid(time.time()):
                    log.warning("cannot renew the token for %s yet: %s", self._host, exc)
                    return login
                raise

    async def _replaced(self, login: StoredLogin | None, challenge: Challenge | None) -> bool:
        """Obtain a token after a 401; return False if the caller should see the 401."""
        if login is None:
            login = await self._newest()
            if login is not None:
                self._adopt(login)
                return not login.ended
        # A token that was renewed because of a 401 and is refused as well needs a new login.
        tried = login is not None and login.generation == self._renewed_after_challenge
        if login is not None and not tried and self._can_renew(login):
            renewed = await self._renew(login, challenge)
            if renewed is not None:
                self._renewed_after_challenge = renewed.generation
                return True
            login = self._login
        return await self._log_in(challenge, login)

    async def _renew(self, login: StoredLogin, challenge: Challenge | None) -> StoredLogin | None:
        """Renew a login among all processes; return None if it has ended.

        Raises:
            AuthorizationError: The renewal failed for another reason; the login is kept.
        """
        async with self._exclusive(login.generation, LOGIN_TIMEOUT) as newer:
            if newer is not None:
                return newer if not newer.ended else None
            if login.tokens.refresh_token is None:
                fresh = await self._flow.run(challenge, previous=login)
            else:
                try:
                    fresh = await self._refreshed(login)
                except AuthorizationError as exc:
                    if exc.error != "invalid_grant":
                        raise
                    ended = msgspec.structs.replace(login, ended=True)
                    await self._save(ended)
                    log.info("the login at %s has ended: %s", login.issuer, exc.error)
                    return None
            await self._save(fresh)
            return fresh

    async def _refreshed(self, login: StoredLogin) -> StoredLogin:
        refresh = login.tokens.refresh_token
        endpoint = self._endpoint(login, login.token_endpoint)
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "resource": login.resource}
        tokens = await endpoint.tokens(
            form, requested=login.tokens.scopes, refresh_token=refresh, step="renewal"
        )
        return login.renewed(tokens)

    def _endpoint(self, login: StoredLogin, url: str) -> TokenEndpoint:
        return TokenEndpoint(
            self._fetcher,
            url,
            issuer=login.issuer,
            client=login.client,
            auth_method=login.auth_method,
            private_key=self._settings.private_key,
            signing_algorithm=self._settings.signing_algorithm,
            dpop=self._key,
        )

    async def _revoke(self, login: StoredLogin, place: str) -> None:
        token = login.tokens.refresh_token or login.tokens.access_token
        kind = "access_token" if login.tokens.refresh_token is None else "refresh_token"
        try:
            await self._endpoint(login, place).send({"token": token, "token_type_hint": kind})
        except AuthorizationError as exc:
            log.warning("cannot revoke the tokens at %s: %s", login.issuer, exc)

    # Login

    async def _step_up(self, challenge: Challenge | None) -> bool:
        """Request more scopes after a 403; a set is requested only once."""
        login = self._login
        held = (*login.requested, *login.tokens.scopes) if login is not None else ()
        needed = challenge.scopes if challenge is not None else ()
        union = self._steps.step_up(held, needed)
        if union is None or not self._flow.possible:
            return False
        return await self._log_in(challenge, login, union)

    async def _log_in(
        self,
        challenge: Challenge | None,
        previous: StoredLogin | None,
        scopes: Sequence[str] | None = None,
        *,
        wanted: bool = False,
    ) -> bool:
        if not self._flow.possible:
            return self._cannot_log_in(challenge, previous)
        if self._failure is not None and not wanted:
            at, error = self._failure
            if time.monotonic() - at < FAILURE_PAUSE:
                raise error
        known = 0 if previous is None else previous.generation
        async with self._exclusive(known, LOGIN_TIMEOUT) as newer:
            if newer is not None and not newer.ended and not wanted:
                return True
            try:
                login = await self._flow.run(challenge, previous=newer or previous, scopes=scopes)
            except AuthorizationError as exc:
                self._failure = (time.monotonic(), exc)
                raise
            await self._save(login)
        self._failure = None
        return True

    def _cannot_log_in(self, challenge: Challenge | None, previous: StoredLogin | None) -> bool:
        oauth = challenge is not None and bool(challenge.values("resource_metadata"))
        if previous is None and not oauth:
            return False  # not a server with OAuth as far as is known: the caller reports the 401
        what = "requires a login" if previous is None else "requires a new login"
        raise LoginRequired(
            f"{self._host} {what}",
            remedy=self._remedy,
            server=self._url,
            issuer="" if previous is None else previous.issuer,
        )

    # Locks and storage

    def _tasks(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    @contextlib.asynccontextmanager
    async def _exclusive(
        self, generation: int, seconds: float
    ) -> AsyncIterator[StoredLogin | None]:
        """Hold the lock of the login, or yield a newer login that another process has stored.

        Raises:
            AuthorizationError: The lock is not free in time.
        """
        lock = await asyncio.to_thread(self._store.lock, self._target.owner, self._target.server)
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(lock.try_acquire):
            if (newer := await self._newer(generation)) is not None:
                yield newer
                return
            if time.monotonic() > deadline:
                raise AuthorizationError(
                    f"another process has been logging in to {self._host} for too long",
                    step="storage",
                    server=self._url,
                    temporary=True,
                )
            await asyncio.sleep(random.uniform(0.5, 1.5) * LOCK_POLL)
        try:
            # Read again: the previous holder may have stored a result just before its release.
            yield await self._newer(generation)
        finally:
            lock.release()

    async def _newer(self, generation: int) -> StoredLogin | None:
        found = await self._newest()
        if found is None or (found.generation <= generation and not found.ended):
            return None
        self._adopt(found)
        return found

    async def _newest(self) -> StoredLogin | None:
        """Return the stored login, unless it belongs to a server at another origin.

        Any file can name a `credentialId`, so the name alone must not decide who gets the token.
        """
        found = await asyncio.to_thread(self._store.load, self._target.owner, self._target.server)
        if found is None or origin_of(found.url) != origin_of(self._url):
            return None
        return found

    async def _save(self, login: StoredLogin) -> None:
        # Used even if it cannot be stored, because the old tokens may no longer be valid.
        self._adopt(login)
        await asyncio.to_thread(self._store.save, login)

    # Headers

    @property
    def _host(self) -> str:
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def _headers(self, login: StoredLogin, method: str, url: str) -> Mapping[str, str]:
        tokens = login.tokens
        value = f"{tokens.token_type} {tokens.access_token}"
        if tokens.token_type != "DPoP" or self._key is None:
            return {"Authorization": value}
        proof = self._key.proof(method, url, nonce=self._nonce, access_token=tokens.access_token)
        return {"Authorization": value, "DPoP": proof}


def _carries(sent: Mapping[str, str], login: StoredLogin) -> bool:
    return sent.get("Authorization", "").endswith(f" {login.tokens.access_token}")
