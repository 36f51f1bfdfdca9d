"""Credentials of an HTTP client: a stored login, renewed when needed, or a new login.

Requests never wait for each other. A lock is held only during a renewal or a login. The renewal or
login runs in a task of its own, which requests of this program share; other processes wait for its
result.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...errors import AuthorizationError
from ...observe.log_filter import register_secrets
from ...transport import timeouts
from ...transport.http.client.request_authorizer import AuthorizerBase
from ..challenge import Challenge, parse_challenges, pick_challenge
from ..clock_difference import check_clock
from ..dpop import DpopKey, nonce_of
from ..guarded_fetch import GuardedFetcher
from ..metadata import http_url, server_resource
from ..scopes import ScopeHistory
from ..storage.credential_store import CredentialStore, MemoryCredentialStore, StoredLogin
from .concurrent_login import ConcurrentLogin
from .interactive_login import Authorize, LoginPrompt, NoUser
from .login_flow import UNKNOWN_CLIENT, LoginFlow
from .login_record import LoginRecord, LoginTarget, LoginWish
from .login_renewal import LoginRenewal
from .missing_login import MissingLogin
from .oauth_settings import OAuthSettings
from .shared_attempt import SharedAttempt

__all__ = ["OAuthAuthorizer"]

log = logging.getLogger("fairlead.auth")

# Seconds for which a failed login is not repeated; otherwise every request would start a login.
FAILURE_PAUSE = 30.0
EARLY_WAIT = 2.0  # seconds for which a request waits for a renewal while its token is still valid
RENEWAL_PAUSE = 5.0  # seconds after a failed renewal while the token is still valid
# Seconds to wait for a renewal of another process, or for its login without a user.
RENEWAL_TIMEOUT = 60.0
STORE_TIMEOUT = 1.0  # seconds for a later attempt to store a renewed login
_NONE: Mapping[str, str] = {}


class OAuthAuthorizer(AuthorizerBase):
    """`RequestAuthorizer` with OAuth 2.1 for one server and one owner.

    It belongs to one event loop. Programs with several event loops create one authorizer for each,
    with the same store.
    """

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
        """`authorize` or `prompt` lets a user log in; without them a stored login is required.

        `credential_id` is the key of the login in the store, by default the URL of the server.
        `remedy` is the hint in errors on how to log in, for programs without a prompt.
        """
        super().__init__()
        # The metadata of a WebSocket server are served over HTTP at the same host and port.
        url = self._url = server_resource(http_url(url))
        self._settings = settings or OAuthSettings()
        store = store if store is not None else MemoryCredentialStore()
        target = LoginTarget(url, owner, credential_id or url)
        host = urlsplit(url).hostname or ""
        self._fetcher = GuardedFetcher(
            allow_loopback=host in ("localhost", "127.0.0.1", "::1"),
            allow_private=self._settings.allow_private,
        )
        self._record = LoginRecord(store, target)
        self._flow = LoginFlow(
            target, self._settings, store, self._fetcher, authorize=authorize, prompt=prompt
        )
        self._renewal = LoginRenewal(self._fetcher, self._settings)
        self._prompt = prompt or LoginPrompt()
        self._missing = MissingLogin(url, self._host, remedy)
        self._login: StoredLogin | None = None
        self._loaded = False
        self._key: DpopKey | None = None
        self._bearer: Mapping[str, str] = _NONE
        self._fresh_until = 0.0  # time until which `_bearer` can be used as it is
        # DPoP nonce of the server; the token endpoint has its own nonce
        self._nonce: str | None = None
        self._steps = ScopeHistory()
        self._last_challenge = 0  # status of the last response with a challenge
        self._renewed_after_challenge = ""  # access token that no request has used with success
        self._failure: tuple[float, AuthorizationError] | None = None
        self._logged_in_at = -FAILURE_PAUSE
        # issuers whose tokens were refused just after a login
        self._refused_issuers: set[str] = set()
        self._next_renewal = 0.0
        self._unstored: StoredLogin | None = None  # renewed, but the store could not be written
        self._next_write = 0.0
        self._attempt: SharedAttempt | None = None

    # Methods of RequestAuthorizer

    def current(self, method: str, url: str) -> Mapping[str, str] | None:
        # Usual case of each request: a bearer token that is fresh and stored.
        if time.time() < self._fresh_until and self._unstored is None:
            return self._bearer
        login = self._login
        if login is None:
            return _NONE if self._loaded else None
        if self._should_renew(login) or self._should_store():
            return None
        return self._headers(login, method, url)

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        if self._should_store():
            await self._store_again()
        login = await self._fresh_login()
        return _NONE if login is None else self._headers(login, method, url)

    async def challenged(
        self, status: int, headers: Mapping[str, str], sent: Mapping[str, str]
    ) -> bool:
        challenge = pick_challenge(parse_challenges(headers.get("www-authenticate")))
        self.responded(headers)
        proof = sent.get("DPoP")
        if proof is not None and challenge is not None and challenge.error == "use_dpop_nonce":
            # The token is not the problem. A proof with the demanded nonce is not repeated.
            return self._nonce is not None and nonce_of(proof) != self._nonce
        self._last_challenge = status
        if proof is not None and challenge is not None and challenge.error == "invalid_dpop_proof":
            check_clock(headers, time.time(), self._url)
        if status == 403 and (challenge is None or challenge.error != "insufficient_scope"):
            return False
        while True:
            login = self._login
            # Another request obtained a newer token while this request was in progress.
            if login is not None and not login.is_sent_in(sent):
                return True
            if self._attempt is None:
                break
            await self._attempt.join()
        if status == 403:
            return await self._begin(lambda attempt: self._step_up(attempt, challenge))
        return await self._begin(lambda attempt: self._replaced(attempt, login, challenge))

    def responded(self, headers: Mapping[str, str]) -> None:
        self._nonce = headers.get("dpop-nonce") or self._nonce

    def accepted(self) -> None:
        self._renewed_after_challenge = ""
        # A renewal after a 401 says nothing about scopes.
        if self._last_challenge == 403:
            self._steps.succeeded()

    def covers(self, url: str) -> bool:
        return self._login is None or self._login.covers(http_url(url))

    # Methods for other transports and for commands

    async def access_token(self) -> str | None:
        login = await self._fresh_login()
        unusable = login is None or not login.is_usable(time.time())
        if unusable and (newer := await self._record.load_newer(login)) is not None:
            self._adopt(newer)
            login = await self._fresh_login()
        if (login is None or login.ended) and not self._flow.needs_person:
            await self._begin(lambda attempt: self._log_in(attempt, None, login))
            login = self._login
        if login is None or not login.is_usable(time.time()):
            raise self._missing.login(login)
        return login.tokens.access_token

    async def log_in(self, scopes: Sequence[str] | None = None) -> StoredLogin:
        """Log in now, replacing a stored login.

        Raises:
            AuthorizationError: A step failed.
        """
        previous, challenge = await self._stored(), await self._flow.first_challenge()
        await self._begin(
            lambda attempt: self._log_in(attempt, challenge, previous, scopes, wanted=True)
        )
        assert self._login is not None
        return self._login

    async def log_out(self) -> bool:
        """Delete the stored login and revoke its tokens; return False if there was none."""
        login, removed = await self._record.remove()
        self._adopt(None)
        if login is not None:
            await self._renewal.revoke(login)
        return removed

    def register_again(self) -> None:
        """Register this program again at the next login, instead of using its last registration."""
        self._flow.register_again = True

    # Attempts

    async def _begin(self, work: Callable[[SharedAttempt], Coroutine[Any, Any, bool]]) -> bool:
        attempt = self._attempt = SharedAttempt(work, self._ended)
        return await attempt.join()

    def _ended(self) -> None:
        self._attempt = None

    async def _fresh_login(self) -> StoredLogin | None:
        """Return the stored login, renewed if it expires soon."""
        login = await self._stored()
        if login is None or not self._should_renew(login):
            return login
        if self._attempt is None:
            self._attempt = SharedAttempt(lambda _: self._renewed_in_time(login), self._ended)
        try:
            async with timeouts.timeout(EARLY_WAIT if login.tokens.is_valid(time.time()) else None):
                await self._attempt.join()
        except TimeoutError:
            # The renewal continues, and requests use the token while it is valid.
            self._next_renewal = time.monotonic() + RENEWAL_PAUSE
        return self._login

    # Renewal

    async def _stored(self) -> StoredLogin | None:
        if not self._loaded:
            found = await self._record.load()
            if not self._loaded:
                self._adopt(found)
        return self._login

    def _adopt(self, login: StoredLogin | None) -> None:
        self._loaded = True
        self._login = login
        if login is not None:
            # Registered again for each login, because the log filter reads the values once.
            register_secrets(self, lambda: login.secrets)
        key = None if login is None else login.dpop_key
        self._key = None if key is None else DpopKey(key)
        self._fresh_until = 0.0
        if login is not None and login.tokens.token_type == "Bearer":
            self._bearer = {"Authorization": f"Bearer {login.tokens.access_token}"}
            self._fresh_until = login.tokens.fresh_until

    def _should_renew(self, login: StoredLogin) -> bool:
        now = time.time()
        if login.tokens.is_fresh(now) or not self._can_renew(login):
            return False
        return not login.tokens.is_valid(now) or time.monotonic() >= self._next_renewal

    def _can_renew(self, login: StoredLogin) -> bool:
        if login.ended:
            return False
        return login.tokens.refresh_token is not None or not self._flow.needs_person

    async def _renewed_in_time(self, login: StoredLogin) -> bool:
        """Renew a token before it expires; a failure is raised only if it has expired already."""
        try:
            found = await self._renew(login, None)
            # The renewal of another program may be older than the lifetime of its token.
            if found is not None and found.tokens.lifetime and self._should_renew(found):
                await self._renew(found, None)
        except AuthorizationError as exc:
            if not login.tokens.is_valid(time.time()):
                raise
            self._next_renewal = time.monotonic() + RENEWAL_PAUSE
            log.warning("cannot renew the token for %s yet: %s", self._host, exc)
        return True

    async def _replaced(
        self, attempt: SharedAttempt, login: StoredLogin | None, challenge: Challenge | None
    ) -> bool:
        """Obtain a token after a 401; return False if the caller should see the 401."""
        # Another program may have logged in meanwhile, also after the end of the login.
        if (newer := await self._record.load_newer(login)) is not None:
            self._adopt(newer)
            if not newer.ended:
                return True
            login = newer
        # A token that was renewed because of a 401 and is refused as well needs a new login.
        refused = self._renewed_after_challenge
        if login and login.tokens.access_token != refused and self._can_renew(login):
            renewed = await self._renew(login, challenge)
            if renewed is not None:
                self._renewed_after_challenge = renewed.tokens.access_token
                return True
            login = self._login
        if login is not None:
            await self._check_refusal(login, challenge)
        return await self._log_in(attempt, challenge, login)

    async def _check_refusal(self, login: StoredLogin, challenge: Challenge | None) -> None:
        """Raise an error if logging in again soon after a login would yield another refused token.

        A server that has moved to another authorization server refuses the tokens of the old one.
        """
        if time.monotonic() - self._logged_in_at >= FAILURE_PAUSE:
            self._refused_issuers.clear()
            return
        self._refused_issuers.add(login.issuer)
        if await self._flow.find_issuer(challenge, login) in self._refused_issuers:
            raise AuthorizationError(
                f"{self._host} refuses the tokens of its authorization server {login.issuer}, "
                "although the login succeeded: report this to its operator",
                step="token",
                server=self._url,
                issuer=login.issuer,
            )

    async def _renew(self, login: StoredLogin, challenge: Challenge | None) -> StoredLogin | None:
        """Renew a login, once for all processes; return None if a new login is necessary.

        Raises:
            AuthorizationError: The renewal failed for another reason; the login is kept.
        """
        async with self._record.exclusive(login, RENEWAL_TIMEOUT) as newer:
            if newer is not None:
                self._adopt(newer)
                return newer if not newer.ended else None
            if await self._record.load() is None:
                self._adopt(None)  # another program has logged out
                return None
            if login.tokens.refresh_token is None:
                fresh = await self._flow.repeat(login, challenge)
                fresh = msgspec.structs.replace(fresh, login_id=login.login_id)
            else:
                try:
                    fresh = await self._renewal.renewed(login)
                except AuthorizationError as exc:
                    if exc.error in UNKNOWN_CLIENT and login.client.origin == "dynamic":
                        # The login is kept; the next one registers this program again.
                        await self._flow.forget_registration(login)
                        if self._flow.possible:
                            return None
                        why = f" because {login.issuer} no longer knows this program ({exc.error})"
                        raise self._missing.login(login, why) from exc
                    if exc.error != "invalid_grant":
                        raise
                    return await self._end(login)
            return await self._keep(fresh, login)

    async def _end(self, login: StoredLogin) -> StoredLogin | None:
        """End a login whose refresh token was refused, unless the store has a newer login."""
        newer = await self._record.load_newer(login)
        if newer is not None:
            self._adopt(newer)
            return None if newer.ended else newer
        await self._write(msgspec.structs.replace(login, ended=True))
        log.info("the login at %s has ended: its refresh token was refused", login.issuer)
        return None

    # Login

    async def _step_up(self, attempt: SharedAttempt, challenge: Challenge | None) -> bool:
        """Request more scopes after a 403; each set of scopes is requested only once."""
        login = self._login
        held = (*login.requested, *login.tokens.scopes) if login is not None else ()
        needed = challenge.scopes if challenge is not None else ()
        if (newer := await self._record.load_newer(login)) is not None and not newer.ended:
            self._adopt(newer)
            return True
        if not self._flow.possible:
            raise self._missing.scopes(needed, login)
        union = self._steps.step_up(held, needed)
        if union is None:
            return False
        return await self._log_in(attempt, challenge, login, union)

    async def _log_in(
        self,
        attempt: SharedAttempt,
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
                # Otherwise each request adds its frames to the traceback.
                raise error.with_traceback(None)
        new_client = self._flow.register_again
        wish = LoginWish(challenge, previous, scopes, explicit=wanted, new_client=new_client)
        try:
            if not self._flow.needs_person:
                await self._without_person(wish)
            else:
                with attempt.waiting_for_person(), self.logins:
                    await self._with_person(wish)
        except AuthorizationError as exc:
            if exc.step != "storage":
                self._failure = (time.monotonic(), exc)
            if scopes is not None and not exc.temporary:
                self._steps.requested(scopes, more=not wanted)
            raise
        self._failure = None
        if self._login is not None:
            self._steps.requested(self._login.requested, more=scopes is not None and not wanted)
        return True

    async def _without_person(self, wish: LoginWish) -> None:
        async with self._record.exclusive(wish.previous, RENEWAL_TIMEOUT) as newer:
            if newer is not None:
                self._adopt(newer)
                if not newer.ended and not wish.explicit:
                    return
                wish = msgspec.structs.replace(wish, previous=newer)
            await self._save(await self._flow.run(wish))
        self._logged_in_at = time.monotonic()

    async def _with_person(self, wish: LoginWish) -> None:
        """Ask the user to log in, without holding the lock of the login."""
        login = ConcurrentLogin(self._record, self._host, self._prompt, wish)
        try:
            if await login.run(lambda: self._flow.run(wish), self._adopt):
                self._logged_in_at = time.monotonic()
        except NoUser as exc:
            raise self._missing.login(wish.previous, f"; {exc}") from exc

    def _cannot_log_in(self, challenge: Challenge | None, previous: StoredLogin | None) -> bool:
        oauth = challenge is not None and bool(challenge.values("resource_metadata"))
        if previous is None and not oauth:
            return False  # the server did not ask for OAuth, so the caller reports the 401
        raise self._missing.login(previous, challenge=challenge)

    async def _keep(self, fresh: StoredLogin, previous: StoredLogin) -> StoredLogin | None:
        """Use and store a renewed login, unless another program replaced or deleted it."""
        try:
            stored, newer = await self._record.load(), await self._record.load_newer(previous)
        except AuthorizationError:
            stored, newer = previous, None  # unreadable now, so it is written later
        if stored is None:
            self._adopt(None)
            await self._renewal.revoke(fresh)
            return None
        if newer is not None and not newer.ended:
            self._adopt(newer)
            return newer
        await self._write(fresh)
        return fresh

    async def _write(self, login: StoredLogin) -> None:
        """Use a login, and store it now or, if that fails, with a later request."""
        try:
            await self._save(login)
        except AuthorizationError as exc:
            self._unstored, self._next_write = login, 0.0
            log.warning("the renewed login for %s is not stored: %s", self._host, exc)

    def _should_store(self) -> bool:
        return self._unstored is not None and time.monotonic() >= self._next_write

    async def _store_again(self) -> None:
        """Store the last renewal, unless another program has replaced or deleted the login."""
        login, self._unstored = self._unstored, None
        if login is None or login is not self._login:
            return
        try:
            async with self._record.exclusive(login, STORE_TIMEOUT) as newer:
                if newer is None and await self._record.load() is not None:
                    await self._record.save(login)
        except AuthorizationError:
            self._unstored = login
            self._next_write = time.monotonic() + RENEWAL_PAUSE

    async def _save(self, login: StoredLogin) -> None:
        # Used even if it cannot be stored, because the old tokens may no longer be valid.
        self._adopt(login)
        await self._record.save(login)

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
