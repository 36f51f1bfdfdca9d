"""The authorization code grant: one attempt, from its URL to the verified redirect.

This module neither opens a browser nor sends requests. Each attempt is used once.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from ..errors import AuthorizationError
from .metadata import AuthorizationServer
from .token_response import error_hint

__all__ = ["AuthorizationAttempt", "begin_attempt", "code_of", "is_redirect", "pkce_challenge"]

MAX_REDIRECT = 16 << 10  # maximum number of characters of a redirect URL
# The characters of a URL (RFC 3986, appendix A). The program that opens a URL could interpret
# others: quotes, backslashes, blanks and control characters.
_URL = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]{1,8192}")


class AuthorizationAttempt(Struct, frozen=True):
    """One login with an authorization code: the page to open, and the values to check later.

    The verifier and the redirect URI are sent with the request for the tokens.
    """

    issuer: str
    client_id: str
    redirect_uri: str
    scopes: tuple[str, ...]
    resource: str | None
    state: str
    verifier: str  # PKCE code verifier, sent only in the token request
    sends_iss: bool  # the server announced that its redirects contain `iss`
    url: str  # page to open in the user's browser

    def __repr__(self) -> str:
        return f"AuthorizationAttempt({self.issuer!r}, {self.client_id!r})"


def pkce_challenge(verifier: str) -> str:
    """Return the S256 challenge of a PKCE verifier (RFC 7636, section 4.2)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def begin_attempt(
    metadata: AuthorizationServer,
    *,
    client_id: str,
    redirect_uri: str,
    scopes: Sequence[str],
    resource: str | None,
    prompt: str | None = None,
    dpop_thumbprint: str | None = None,
) -> tuple[AuthorizationAttempt, dict[str, str]]:
    """Return a new attempt, and its parameters for a pushed authorization request.

    Raises:
        AuthorizationError: The server has no authorization endpoint that a browser may open.
    """
    endpoint = check_browser_url(metadata.authorization_endpoint, metadata.issuer)
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    params = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce_challenge(verifier),
        "code_challenge_method": "S256",
    }
    optional = {
        "scope": " ".join(scopes),
        "resource": resource,
        "prompt": prompt,
        "dpop_jkt": dpop_thumbprint,
    }
    params |= {name: value for name, value in optional.items() if value}
    attempt = AuthorizationAttempt(
        issuer=metadata.issuer,
        client_id=client_id,
        redirect_uri=redirect_uri,
        scopes=tuple(scopes),
        resource=resource,
        state=state,
        verifier=verifier,
        sends_iss=metadata.authorization_response_iss_parameter_supported,
        url=with_query(endpoint, params),
    )
    return attempt, params


def with_query(endpoint: str, params: dict[str, str]) -> str:
    """Add parameters to the query of a URL, whose own parameters are kept."""
    parts = urlsplit(endpoint)
    query = "&".join(filter(None, (parts.query, urlencode(params))))
    return urlunsplit(parts._replace(query=query))


def check_browser_url(url: str | None, issuer: str) -> str:
    """Return a URL that is safe to hand to a browser.

    Raises:
        AuthorizationError: The URL is missing, or its scheme or a character is not allowed.
    """
    if url is None or not _may_open(url):
        raise AuthorizationError(
            f"the authorization server {issuer} has no authorization endpoint that a browser may "
            "open: expected an https URL",
            step="authorization",
            issuer=issuer,
        )
    return url


def _may_open(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    allowed = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    # A user name could make another host look like a trusted one.
    return bool(allowed and host and parts.username is None and _URL.fullmatch(url))


def _is_loopback(host: str | None) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def is_redirect(url: str, state: str) -> bool:
    """Return True if a URL is the redirect at the end of the login with this state."""
    try:
        found = parse_qs(urlsplit(url[:MAX_REDIRECT]).query)
    except ValueError:
        return False
    states = found.get("state", [])
    ours = len(states) == 1 and hmac.compare_digest(states[0].encode(), state.encode())
    return ours and not found.keys().isdisjoint(("code", "error"))


def code_of(attempt: AuthorizationAttempt, redirect_url: str) -> str:
    """Return the authorization code of a redirect that belongs to an attempt.

    `state` and `iss` are compared first, because an error from another server must not be shown.

    Raises:
        AuthorizationError: The redirect belongs to another attempt or server, has a parameter
            twice, contains no code, or reports an error of the authorization server.
    """
    try:
        query = urlsplit(redirect_url[:MAX_REDIRECT]).query
    except ValueError as exc:
        raise _rejected(attempt, "the redirect is not a URL") from exc
    pairs = parse_qsl(query, keep_blank_values=True)
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found and name in ("code", "state", "iss", "error"):
            raise _rejected(attempt, f"the redirect has the parameter {name!r} twice")
        found.setdefault(name, value)
    if not hmac.compare_digest(found.get("state", "").encode(), attempt.state.encode()):
        raise _rejected(attempt, "the redirect belongs to another login (wrong state)")
    if ("iss" in found or attempt.sends_iss) and found.get("iss") != attempt.issuer:
        raise _rejected(attempt, "the redirect comes from another authorization server (iss)")
    if "error" in found:
        detail = found.get("error_description", "")
        why = f"login refused: {found['error']} {detail}"
        if hint := error_hint(found["error"]):
            why = f"{why[:300].strip()}; {hint}"
        raise _rejected(attempt, why, found["error"])
    if not found.get("code"):
        raise _rejected(attempt, "the redirect contains no authorization code")
    return found["code"]


def _rejected(attempt: AuthorizationAttempt, why: str, error: str = "") -> AuthorizationError:
    plain = "".join(char for char in why if char.isprintable())[:500].strip()
    return AuthorizationError(plain, step="authorization", issuer=attempt.issuer, error=error)
