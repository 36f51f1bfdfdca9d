"""Responses of token endpoints (RFC 6749, section 5): tokens, or an error of the server."""

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from ..errors import AuthorizationError
from .metadata import AuthorizationServer
from .scopes import parse_scopes

__all__ = [
    "ClientRegistration",
    "TokenSet",
    "choose_auth_method",
    "client_authentication",
    "oauth_error",
    "read_registration",
    "read_token_response",
]

LONGEST = 10 * 365 * 86400.0  # seconds; a longer lifetime is taken as this one
EARLY = 30.0  # seconds before its expiry that a token counts as expired

_METHODS = ("private_key_jwt", "client_secret_basic", "client_secret_post", "none")


class TokenSet(Struct, frozen=True):
    """Tokens as received. `expires_at` is absolute; None means that the server did not say."""

    access_token: str
    token_type: str  # "Bearer" or "DPoP"
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    refresh_token: str | None = None

    def is_fresh(self, now: float) -> bool:
        """Return True unless the access token expires soon or has expired."""
        return self.expires_at is None or now < self.expires_at - EARLY

    def is_valid(self, now: float) -> bool:
        """Return True unless the access token has certainly expired."""
        return self.expires_at is None or now < self.expires_at


class ClientRegistration(Struct, frozen=True):
    """A client as an authorization server knows it."""

    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None  # None: the metadata of the server decide
    origin: str = "configured"  # or "document" or "dynamic"; a dynamic one can be replaced
    secret_expires_at: float = 0.0  # 0 means never
    redirect_uri: str | None = None  # as registered; its port is used again

    def is_usable(self, now: float) -> bool:
        return not self.secret_expires_at or now < self.secret_expires_at


def oauth_error(document: object) -> tuple[str, str]:
    """Return `error` and `error_description` of a response, each empty if missing."""
    if not isinstance(document, dict):
        return "", ""
    code, detail = document.get("error"), document.get("error_description")
    return (
        code[:100] if isinstance(code, str) else "",
        detail[:300] if isinstance(detail, str) else "",
    )


def read_token_response(
    status: int,
    document: object,
    *,
    issuer: str,
    now: float,
    requested: Sequence[str] = (),
    refresh_token: str | None = None,
    sent_proof: bool = False,
    step: str = "token",
) -> TokenSet:
    """Return the tokens of a response.

    `refresh_token` is the one that was used: it stays valid if the response contains no other.

    Raises:
        AuthorizationError: The response reports an error, which servers also send with status 200,
            or contains no usable token.
    """
    code, _ = oauth_error(document)
    if code or not 200 <= status < 300 or not isinstance(document, dict):
        # The text of the server may quote the request, and with it a secret: only codes are shown.
        shown = code or f"HTTP {status}"
        raise AuthorizationError(
            f"the authorization server {issuer} refused the request for a token: {shown}",
            step=step,
            issuer=issuer,
            error=code,
            temporary=not code and (status == 429 or status >= 500),
        )
    token, kind = document.get("access_token"), document.get("token_type")
    name = {"bearer": "Bearer", "dpop": "DPoP"}.get(kind.lower() if isinstance(kind, str) else "")
    unusable = not isinstance(token, str) or not token.isascii() or not token.isprintable()
    if unusable or " " in str(token) or name is None or (name == "DPoP" and not sent_proof):
        raise AuthorizationError(
            f"the token response of {issuer} contains no usable access token",
            step=step,
            issuer=issuer,
        )
    newer = document.get("refresh_token")
    granted = document.get("scope")
    return TokenSet(
        access_token=str(token),
        token_type=name,
        scopes=parse_scopes(granted) if isinstance(granted, str) else tuple(requested),
        expires_at=_expiry(document.get("expires_in"), now),
        refresh_token=newer if isinstance(newer, str) and newer else refresh_token,
    )


def _expiry(seconds: object, now: float) -> float | None:
    if isinstance(seconds, str) and seconds.strip().isdigit():
        seconds = float(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    # Also excludes NaN, which compares as False.
    return now + min(max(float(seconds), 0.0), LONGEST) if seconds == seconds else None


def choose_auth_method(server: AuthorizationServer, client: ClientRegistration) -> str:
    """Return how a client authenticates at the token endpoint."""
    supported = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    if client.auth_method is not None and (
        client.origin == "configured" or client.auth_method in supported
    ):
        return client.auth_method
    # A secret that came with a registration is not used where only public clients are supported.
    if client.client_secret is None or not set(supported) & set(_METHODS[1:3]):
        return "none"
    return next(method for method in _METHODS[1:3] if method in supported)


def client_authentication(
    method: str, client: ClientRegistration, assertion: str | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form fields and the headers that authenticate a client."""
    fields = {"client_id": client.client_id}
    if method == "client_secret_basic":
        # Both are form-encoded before base64 (RFC 6749, section 2.3.1).
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret or '', safe='')}"
        return {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if method == "client_secret_post":
        return {**fields, "client_secret": client.client_secret or ""}, {}
    if method == "private_key_jwt" and assertion is not None:
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return {**fields, "client_assertion_type": kind, "client_assertion": assertion}, {}
    return fields, {}


def read_registration(document: object, issuer: str) -> ClientRegistration:
    """Return the client of a registration response (RFC 7591, section 3.2.1).

    Raises:
        AuthorizationError: The response contains no client id.
    """
    found: Mapping[str, object] = document if isinstance(document, dict) else {}
    client_id, secret = found.get("client_id"), found.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        code, _ = oauth_error(document)
        raise AuthorizationError(
            f"the authorization server {issuer} refused to register this client"
            + (f": {code}" if code else ""),
            step="registration",
            issuer=issuer,
            error=code,
        )
    method, expires = found.get("token_endpoint_auth_method"), found.get("client_secret_expires_at")
    return ClientRegistration(
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) else None,
        auth_method=method if isinstance(method, str) else None,
        origin="dynamic",
        secret_expires_at=float(expires) if isinstance(expires, int | float) else 0.0,
    )
