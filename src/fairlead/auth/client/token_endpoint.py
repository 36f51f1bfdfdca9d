"""Requests to a token endpoint: client authentication, DPoP proofs and their nonces."""

import inspect
import secrets
import time
from collections.abc import Mapping, Sequence

import msgspec

from ...errors import AuthorizationError
from ..clock_difference import clock_difference
from ..dpop import DpopKey
from ..guarded_fetch import FetchedDocument, GuardedFetcher
from ..token_response import (
    ClientRegistration,
    TokenSet,
    UnexplainedRefusal,
    client_authentication,
    oauth_error,
    read_token_response,
)
from .oauth_settings import TextSource, key_kind

__all__ = ["EndpointMissing", "TokenEndpoint", "read_text", "sign_assertion"]

ASSERTION_LIFETIME = 120  # seconds for which a client assertion is valid


_SHORTEST_SECRET = 6  # characters; shorter parts of a secret also occur in ordinary error codes
_SECRET_FIELDS = frozenset(
    (
        *("assertion", "client_assertion", "client_secret", "code", "code_verifier"),
        *("device_code", "refresh_token", "subject_token", "token"),
    )
)


class EndpointMissing(UnexplainedRefusal):
    """The authorization server has no token endpoint at the stored URL; it may have moved."""


class TokenEndpoint:
    """One token endpoint as used by one client."""

    def __init__(
        self,
        fetcher: GuardedFetcher,
        url: str,
        *,
        issuer: str,
        client: ClientRegistration | None,
        auth_method: str = "none",
        private_key: str | None = None,
        signing_algorithm: str = "ES256",
        dpop: DpopKey | None = None,
        must_be_bound: bool = False,
    ) -> None:
        """`must_be_bound` refuses tokens that are not bound to the key `dpop`."""
        self.url = url
        self._fetcher = fetcher
        self._issuer = issuer
        self._client = client
        self._auth_method = auth_method
        self._private_key = private_key
        self._algorithm = signing_algorithm
        self._dpop = dpop
        self._must_be_bound = must_be_bound
        self._nonce: str | None = None

    def at(self, url: str) -> "TokenEndpoint":
        """Return the same client at another endpoint of its authorization server."""
        return TokenEndpoint(
            self._fetcher,
            url,
            issuer=self._issuer,
            client=self._client,
            auth_method=self._auth_method,
            private_key=self._private_key,
            signing_algorithm=self._algorithm,
        )

    async def tokens(
        self,
        form: Mapping[str, str | None],
        *,
        requested: Sequence[str] = (),
        refresh_token: str | None = None,
        step: str = "token",
    ) -> TokenSet:
        """Request tokens.

        Raises:
            AuthorizationError: The server refused (`error` is its code), cannot be reached, or sent
                an invalid response.
        """
        found = await self.send(form, step=step)
        if found.status in (404, 405) and not oauth_error(found.document)[0]:
            raise EndpointMissing(
                f"the authorization server {self._issuer} has no token endpoint at its former URL",
                step=step,
                issuer=self._issuer,
            )
        now = time.time()
        signed = self._dpop is not None or self._auth_method == "private_key_jwt"
        return read_token_response(
            found.status,
            found.document,
            issuer=self._issuer,
            now=now,
            hint=clock_difference(found.headers, now) if signed else "",
            requested=requested,
            refresh_token=refresh_token,
            sent_proof=self._dpop is not None,
            must_be_bound=self._must_be_bound,
            step=step,
        )

    async def send(self, form: Mapping[str, str | None], *, step: str = "token") -> FetchedDocument:
        """POST a form with the client's credentials; repeat it once if a nonce is demanded."""
        found = await self._send(form, step)
        nonce = found.headers.get("dpop-nonce")
        if self._dpop is not None and nonce and nonce != self._nonce:
            self._nonce = nonce
            if oauth_error(found.document)[0] == "use_dpop_nonce":
                found = await self._send(form, step)
        return found

    async def _send(self, form: Mapping[str, str | None], step: str) -> FetchedDocument:
        fields = {name: value for name, value in form.items() if value}
        headers: dict[str, str] = {}
        if self._client is not None:
            assertion = None
            if self._auth_method == "private_key_jwt":
                assertion = self._client_assertion(self._client.client_id)
            more, headers = client_authentication(self._auth_method, self._client, assertion)
            fields |= more
        if self._dpop is not None:
            headers["DPoP"] = self._dpop.proof("POST", self.url, nonce=self._nonce)
        found = await self._fetcher.post_form(self.url, fields, headers, step=step)
        return self._without_quoted_secret(found, fields)

    def _without_quoted_secret(
        self, found: FetchedDocument, fields: Mapping[str, str]
    ) -> FetchedDocument:
        """Return a response without its error code if that quotes a secret of the request."""
        code, _ = oauth_error(found.document)
        sent = {value for name, value in fields.items() if name in _SECRET_FIELDS}
        if self._client is not None and self._client.client_secret is not None:
            sent.add(self._client.client_secret)
        if not code or not any(_quotes(code, secret) for secret in sent):
            return found
        # Replaced, because a response without an error would be a successful one.
        document = {**(found.document or {}), "error": "an error code that quotes the request"}
        return msgspec.structs.replace(found, document=document)

    def _client_assertion(self, client_id: str) -> str:
        if self._private_key is None:
            raise AuthorizationError(
                "private_key_jwt needs a private key", step="token", issuer=self._issuer
            )
        return sign_assertion(
            self._private_key, self._algorithm, client_id=client_id, audience=self._issuer
        )


def _quotes(code: str, secret: str) -> bool:
    """Return True if an error code contains a secret, or is a part of it."""
    shorter, longer = sorted((code, secret), key=len)
    return len(shorter) >= _SHORTEST_SECRET and shorter in longer


def sign_assertion(key_pem: str, algorithm: str, *, client_id: str, audience: str) -> str:
    """Return a signed assertion of a client for one request (RFC 7523, section 3).

    Raises:
        AuthorizationError: The key cannot be used with the algorithm.
    """
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTION_LIFETIME,
        "jti": secrets.token_urlsafe(16),
    }
    kind = key_kind(algorithm)
    try:
        if kind is None:
            raise ValueError("unknown algorithm")
        key = import_key(key_pem, kind)  # type: ignore[call-overload]
        return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as exc:
        raise AuthorizationError(
            f"the private key cannot sign with {algorithm}: {type(exc).__name__}", step="token"
        ) from exc


async def read_text(source: TextSource) -> str:
    """Return a text that is given directly or returned by a function, which may be asynchronous."""
    value = source() if callable(source) else source
    return await value if inspect.isawaitable(value) else value
