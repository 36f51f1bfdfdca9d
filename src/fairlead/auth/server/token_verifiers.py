"""Verification of access tokens: by signature, by introspection, or by the program's function."""

import asyncio
import inspect
import logging
import time
import traceback
from base64 import b64encode
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote_plus

from msgspec import Struct

from ...errors import AuthorizationError
from ...protocol.identity.client_names import is_reserved
from ...protocol.identity.scoped_name import ScopedName
from ...protocol.identity.token_principal import TokenPrincipal
from ...transport import timeouts
from ..guarded_fetch import GuardedFetcher
from .issuer_keys import IssuerKeys
from .key_set import ALGORITHMS, SigningKey
from .pending_tokens import PendingTokens
from .token_claims import (
    BadToken,
    ParsedToken,
    TokenVerdict,
    check_audience,
    check_times,
    expand_scopes,
    names_kind,
    parse_token,
    verdict_of,
)

__all__ = [
    "FunctionVerifier",
    "IntrospectionVerifier",
    "JwtVerifier",
    "NamedVerdict",
    "TokenVerifier",
    "VerifyFunction",
]

MAX_ASKED = 64  # concurrent requests to an introspection endpoint
QUEUE_TIMEOUT = 10.0  # seconds for which a token waits until its introspection begins
REFUSED_AGE = 5.0  # seconds for which a token that was introspected and refused stays refused

log = logging.getLogger("fairlead.auth")

VerifyFunction = Callable[[str], Awaitable[TokenPrincipal | str | None]]


class NamedVerdict(Struct, frozen=True):
    """The verdict on a token that identifies a configured name, not a subject of an issuer."""

    principal: ScopedName
    until: float
    key: None = None  # such a token is not bound to a key


class TokenVerifier(Protocol):
    """Interface of objects that verify tokens. Concurrent calls are allowed."""

    async def verify(self, token: str, audiences: Container[str]) -> TokenVerdict | NamedVerdict:
        """Return the verdict on a token for one of these audiences (`audience_forms`).

        Raises:
            BadToken: The token is not valid for this server.
            AuthorizationError: The authorization server cannot be reached now, or too many tokens
                wait for it.
        """
        ...

    def verify_now(self, token: str, audiences: Container[str]) -> TokenVerdict | None:
        """Return the verdict on a token; None if `verify` has to wait for it.

        Raises:
            BadToken: The token is not valid for this server.
        """
        ...

    def renew_if_due(self) -> None:
        """Start to renew keys in the background if they are old. Returns at once."""

    async def close(self) -> None:
        """Cancel requests to authorization servers."""


class JwtVerifier:
    """Verification of JWTs with the keys of the issuers that they name."""

    def __init__(
        self,
        issuers: Sequence[IssuerKeys],
        algorithms: Sequence[str] = tuple(ALGORITHMS),
        implied: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._algorithms = frozenset(algorithms)
        self._implied = implied or {}

    def keys_of(self, issuer: str) -> IssuerKeys | None:
        """Return the keys of an issuer."""
        return self._issuers.get(issuer)

    async def verify(self, token: str, audiences: Container[str]) -> TokenVerdict:
        signed = self._examined(token, audiences)
        keys = await signed.issuer.find(signed.key_id, signed.algorithm, signed.issued)
        return self._verdict(signed, keys)

    def verify_now(self, token: str, audiences: Container[str]) -> TokenVerdict | None:
        signed = self._examined(token, audiences)
        keys = signed.issuer.find_now(signed.key_id, signed.algorithm, signed.issued)
        return None if keys is None else self._verdict(signed, keys)

    def _examined(self, token: str, audiences: Container[str]) -> "_SignedToken":
        """Return a token whose header and claims are acceptable; its signature is not verified.

        This needs no keys, so most invalid tokens are refused without any.
        """
        parsed = parse_token(token)
        header, claims = parsed.header, parsed.claims
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise BadToken("the token has an algorithm that is not accepted")
        if not isinstance(key_id, str | None):
            raise BadToken("the token has an invalid key id")
        name = claims.get("iss")
        # The keys of an issuer verify its own tokens only.
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise BadToken("the token is from an unknown issuer")
        end = check_times(claims, time.time(), required=True)
        check_audience(claims.get("aud"), audiences)
        assert end is not None
        issued = claims.get("iat", claims.get("nbf"))
        return _SignedToken(parsed, issuer, key_id, algorithm, end, issued)

    def _verdict(self, signed: "_SignedToken", keys: Sequence[SigningKey]) -> TokenVerdict:
        parsed, end = signed.parsed, signed.end
        if not any(key.verify(signed.algorithm, parsed.signed, parsed.signature) for key in keys):
            raise BadToken("the signature of the token is invalid")
        name = signed.issuer.issuer
        return verdict_of(parsed.claims, name, until=end, expires=end, implied=self._implied)

    def renew_if_due(self) -> None:
        for issuer in self._issuers.values():
            issuer.renew_if_due()

    async def close(self) -> None:
        for issuer in self._issuers.values():
            await issuer.close()


class _SignedToken(Struct, frozen=True, gc=False):
    """A token that is valid if one of the issuer's keys has signed it."""

    parsed: ParsedToken
    issuer: IssuerKeys
    key_id: str | None
    algorithm: str
    end: float  # Unix time at which it expires
    issued: float | None  # Unix time, not verified


class IntrospectionVerifier:
    """Verification of tokens by the authorization server itself (RFC 7662)."""

    def __init__(
        self,
        url: str,
        fetcher: GuardedFetcher,
        *,
        client_id: str,
        client_secret: str,
        issuers: Sequence[str] = (),
        remember: float = 60.0,
        require_audience: bool = True,
        implied: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`issuers` are accepted values of `iss`; a response without `iss` is from the first."""
        self._url = url
        self._fetcher = fetcher
        # Form-encoded before base64 (RFC 6749, section 2.3.1).
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        self._headers = {"Authorization": f"Basic {b64encode(pair).decode()}"}
        self._issuers = tuple(issuers) or (url,)
        self._remember = remember
        self._require_audience = require_audience
        self._implied = implied or {}
        self._pending = PendingTokens()
        self._turns = asyncio.Semaphore(MAX_ASKED)

    async def verify(self, token: str, audiences: Container[str]) -> TokenVerdict:
        with self._pending:
            claims = await self._introspect(token)
        now = time.time()
        try:
            return self._judge(claims, audiences, now)
        except BadToken as exc:
            exc.until = now + REFUSED_AGE
            raise

    async def _introspect(self, token: str) -> dict[str, Any]:
        """Return the response of the endpoint, which has a verdict in `active`.

        Raises:
            AuthorizationError: The endpoint does not answer now.
        """
        try:
            async with timeouts.timeout(QUEUE_TIMEOUT):
                await self._turns.acquire()
        except TimeoutError as exc:
            raise AuthorizationError(
                "too many tokens are being introspected", step="token", temporary=True
            ) from exc
        try:
            form = {"token": token, "token_type_hint": "access_token"}
            reply = await self._fetcher.post_form(self._url, form, self._headers)
        finally:
            self._turns.release()
        claims = reply.document
        if reply.status != 200 or claims is None or not isinstance(claims.get("active"), bool):
            raise AuthorizationError(
                f"the introspection endpoint answered with status {reply.status} and no verdict",
                step="token",
                temporary=True,
            )
        return claims

    def _judge(self, claims: dict[str, Any], audiences: Container[str], now: float) -> TokenVerdict:
        if not claims["active"]:
            raise BadToken("the token is not active")
        issuer = claims.get("iss", self._issuers[0])
        if issuer not in self._issuers:
            raise BadToken("the token is from an unknown issuer")
        end = check_times(claims, now, required=False)
        if self._require_audience or "aud" in claims:
            check_audience(claims.get("aud"), audiences)
        elif not names_kind(claims):
            # Some servers describe an active refresh token in this way.
            raise BadToken("the response for the token has neither `aud` nor `token_type`")
        until = now + self._remember
        until = until if end is None else min(until, end)
        return verdict_of(claims, issuer, until=until, expires=end, implied=self._implied)

    def verify_now(self, token: str, audiences: Container[str]) -> None:
        """Return None, because every token is verified elsewhere."""

    def renew_if_due(self) -> None:
        """Do nothing, because keys are not used."""

    async def close(self) -> None:
        """Do nothing: requests end with their callers."""


class FunctionVerifier:
    """Verification of tokens by a function that the program supplies."""

    def __init__(
        self,
        verify: VerifyFunction,
        remember: float = 60.0,
        taken: Container[str] = (),
        implied: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`taken` are names of other clients, which the function must not return."""
        self._verify = verify
        self._taken = taken
        self._implied = implied or {}
        self._remember = remember
        self._pending = PendingTokens()

    async def verify(self, token: str, audiences: Container[str]) -> TokenVerdict | NamedVerdict:
        with self._pending:
            whose = await self._ask(token)
        until = time.time() + self._remember
        match whose:
            case None:
                raise BadToken("the token is not accepted")
            case TokenPrincipal():
                if whose.fault is not None:
                    log.error("`verify` returned an unusable TokenPrincipal: %s", whose.fault)
                    raise _failed()
                if whose.has_expired():
                    raise BadToken("the token has expired")
                until = until if whose.expires is None else min(until, whose.expires)
                scopes = expand_scopes(whose.scopes, self._implied)
                return TokenVerdict(whose.with_scopes(scopes), until)
            case str() if is_reserved(whose) or whose in self._taken:
                log.error("`verify` returned the name of another client or issuer: %.60r", whose)
                raise BadToken("the token is not accepted")
            case str():
                scoped = whose if isinstance(whose, ScopedName) else ScopedName(whose)
                return NamedVerdict(scoped, until)
            case _:
                log.error(
                    "`verify` returned %s; expected a TokenPrincipal, a name or None",
                    type(whose).__name__,
                )
                raise _failed()

    async def _ask(self, token: str) -> Any:
        try:
            found: Any = self._verify(token)
            return await found if inspect.isawaitable(found) else found
        # The function is user code and may raise anything. Its message is not logged, because it
        # may quote the token.
        except Exception as exc:
            frames = "".join(traceback.format_tb(exc.__traceback__))
            log.error("`verify` raised %s:\n%s", type(exc).__name__, frames)
            raise _failed() from exc

    def verify_now(self, token: str, audiences: Container[str]) -> None:
        """Return None, because every token is verified elsewhere."""

    def renew_if_due(self) -> None:
        """Do nothing, because keys are not used."""

    async def close(self) -> None:
        """Do nothing, because this class sends no requests."""


def _failed() -> AuthorizationError:
    return AuthorizationError("the function `verify` failed", step="token", temporary=True)
