"""Responses of token endpoints (RFC 6749, section 5): tokens or an error."""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from ..errors import AuthorizationError
from .metadata import AuthorizationServer
from .scopes import parse_scopes

__all__ = [
    "ClientRegistration",
    "TokenSet",
    "UnexplainedRefusal",
    "choose_auth_method",
    "client_authentication",
    "error_hint",
    "oauth_error",
    "read_registration",
    "read_token_response",
    "refusal",
    "seconds_of",
]

LONGEST = 10 * 365 * 86400.0  # seconds for which a token is used at most
LONGEST_TOKEN = 32 << 10  # characters of an access token; servers limit the headers of a request
_LATEST = 1e12  # the latest plausible time, in seconds since 1970
# seconds before its expiry that a token is renewed, or half of its lifetime if that is shorter
EARLY = 30.0

# An error code has no spaces. Some servers send sentences, which may quote a secret.
_CODE = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_METHODS = ("private_key_jwt", "client_secret_basic", "client_secret_post", "none")


class UnexplainedRefusal(AuthorizationError):
    """The server refused a request with a 4xx status other than 429 and without an OAuth error.

    Some servers respond like this to a client whose registration they have deleted.
    """


class TokenSet(Struct, frozen=True):
    """Tokens as received. `expires_at` is a Unix time; None means that it is unknown."""

    access_token: str
    token_type: str  # "Bearer" or "DPoP"
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    refresh_token: str | None = None
    lifetime: float | None = None  # seconds, as stated by the authorization server

    @property
    def fresh_until(self) -> float:
        """Unix time from which the tokens are renewed; infinite if the expiry is unknown."""
        if self.expires_at is None:
            return math.inf
        return self.expires_at - (EARLY if self.lifetime is None else min(EARLY, self.lifetime / 2))

    def is_fresh(self, now: float) -> bool:
        """Return True unless the access token expires soon or has expired."""
        return now < self.fresh_until

    def is_valid(self, now: float) -> bool:
        """Return True unless the access token has certainly expired."""
        return self.expires_at is None or now < self.expires_at

    def __repr__(self) -> str:
        # The tokens are left out, because tracebacks and failed assertions print values.
        return f"TokenSet({self.token_type}, {self.scopes}, expires_at={self.expires_at})"


class ClientRegistration(Struct, frozen=True):
    """An OAuth client as registered at an authorization server."""

    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None  # None: chosen from the server's metadata
    origin: str = "configured"  # or "document" or "dynamic"; dynamic registrations can be replaced
    secret_expires_at: float = 0.0  # 0 means never
    redirect_uri: str | None = None  # registered redirect URI, whose port is reused

    def is_usable(self, now: float) -> bool:
        return not self.secret_expires_at or now < self.secret_expires_at

    def __repr__(self) -> str:
        return f"ClientRegistration({self.client_id!r}, origin={self.origin!r})"


def oauth_error(document: object) -> tuple[str, str]:
    """Return `error` and `error_description` of a response, each empty if missing or unusual."""
    if not isinstance(document, dict):
        return "", ""
    code, detail = document.get("error"), document.get("error_description")
    return (
        code if isinstance(code, str) and _CODE.fullmatch(code) else "",
        detail[:300] if isinstance(detail, str) else "",
    )


def refusal(
    what: str, document: object, status: int, *, issuer: str, step: str, hint: str = ""
) -> AuthorizationError:
    """Return the error for a response that refuses a request. `hint` is a possible cause."""
    # The text of the server may quote the request, and with it a secret: only codes are shown.
    code, _ = oauth_error(document)
    unexplained = not code and 400 <= status < 500 and status != 429
    kind = UnexplainedRefusal if unexplained else AuthorizationError
    hint = hint or error_hint(code)
    why = f"HTTP {status} with an invalid response" if 200 <= status < 300 else f"HTTP {status}"
    return kind(
        f"the authorization server {issuer} refused {what}: {code or why}{hint and f'; {hint}'}",
        step=step,
        issuer=issuer,
        error=code,
        temporary=not code and (status == 429 or status >= 500),
    )


def error_hint(code: str) -> str:
    """Return how to avoid an error of an authorization server, or ""."""
    if code == "invalid_target":
        return (
            "if it does not support the parameter `resource`, set `resource` to false in the "
            "`auth` block of the server"
        )
    return ""


def read_token_response(
    status: int,
    document: object,
    *,
    issuer: str,
    now: float,
    requested: Sequence[str] = (),
    refresh_token: str | None = None,
    sent_proof: bool = False,
    must_be_bound: bool = False,
    step: str = "token",
    hint: str = "",
) -> TokenSet:
    """Return the tokens of a response.

    `refresh_token` is the token that was used; it stays valid if the response contains no new
    token. `must_be_bound` refuses tokens that are not bound to a key although a proof was sent.
    `hint` is a possible cause of a refusal.

    Raises:
        AuthorizationError: The response reports an error, which servers also send with status 200,
            or contains no usable token.
    """
    if not isinstance(document, dict) or document.get("error") or not 200 <= status < 300:
        what = "the request for a token"
        raise refusal(what, document, status, issuer=issuer, step=step, hint=hint)
    token, kind = document.get("access_token"), document.get("token_type")
    name = {"bearer": "Bearer", "dpop": "DPoP"}.get(kind.lower() if isinstance(kind, str) else "")
    if not _is_token(token) or name is None or (name == "DPoP" and not sent_proof):
        raise AuthorizationError(
            f"the token response of {issuer} contains no usable access token",
            step=step,
            issuer=issuer,
        )
    if must_be_bound and name != "DPoP":
        raise AuthorizationError(
            f"the authorization server {issuer} issued a token that is not bound to a key, but "
            "the setting `dpop` demands one",
            step=step,
            issuer=issuer,
        )
    lifetime = seconds_of(document.get("expires_in"))
    newer = document.get("refresh_token")
    granted = document.get("scope")
    return TokenSet(
        access_token=str(token),
        token_type=name,
        scopes=parse_scopes(granted) if isinstance(granted, str) else tuple(requested),
        expires_at=None if lifetime is None else now + lifetime,
        refresh_token=newer if isinstance(newer, str) and newer else refresh_token,
        lifetime=lifetime,
    )


def _is_token(value: object) -> bool:
    """Return True for a text that fits into a header."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TOKEN:
        return False
    return value.isascii() and value.isprintable() and " " not in value


def seconds_of(value: object) -> float | None:
    """Return a lifetime in seconds, limited to ten years, or None if the value is not a number."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = float(value)
    # NaN differs from itself.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    # Compared before the conversion, which fails for integers of hundreds of digits.
    return float(min(max(value, 0), LONGEST))


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
        # Servers of the official SDK look up the client by the form, also with this header.
        return fields, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if method == "client_secret_post":
        return {**fields, "client_secret": client.client_secret or ""}, {}
    if method == "private_key_jwt" and assertion is not None:
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return {**fields, "client_assertion_type": kind, "client_assertion": assertion}, {}
    return fields, {}


def read_registration(document: object, issuer: str, status: int = 201) -> ClientRegistration:
    """Return the client of a registration response (RFC 7591, section 3.2.1).

    Raises:
        AuthorizationError: The response reports an error or contains no client id.
    """
    usable = isinstance(document, dict) and 200 <= status < 300
    found: Mapping[str, object] = document if usable else {}  # type: ignore[assignment]
    client_id, secret = found.get("client_id"), found.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        what = "the registration of this client"
        raise refusal(what, document, status, issuer=issuer, step="registration")
    method, expires = found.get("token_endpoint_auth_method"), found.get("client_secret_expires_at")
    return ClientRegistration(
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) else None,
        auth_method=method if isinstance(method, str) else None,
        origin="dynamic",
        secret_expires_at=_time_of(expires),
    )


def _time_of(value: object) -> float:
    """Return a Unix time, or 0 for an invalid value; 0 means never."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    # Times in the far future count as never.
    return float(value) if 0 <= value < _LATEST else 0.0
