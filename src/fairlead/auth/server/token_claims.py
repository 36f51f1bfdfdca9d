"""Rules for access tokens: JWTs (RFC 9068, RFC 8725) and introspected tokens."""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from msgspec import Struct

from ...errors import FairleadError
from ...protocol.identity.token_principal import TokenPrincipal
from ...wire.json import read_json
from ..metadata import canonical_resource
from ..scopes import parse_scopes

__all__ = [
    "LEEWAY",
    "BadToken",
    "ParsedToken",
    "TokenVerdict",
    "WrongAudience",
    "audience_forms",
    "check_audience",
    "check_times",
    "expand_scopes",
    "is_time",
    "names_kind",
    "parse_token",
    "read_jwt",
    "verdict_of",
]

LEEWAY = 30.0  # seconds by which the clocks of issuer and server may differ
MAX_TOKEN = 16 << 10  # maximum number of characters of a token
MAX_SUBJECT = 1024  # maximum number of characters of a subject
MAX_AUDIENCES = 64  # maximum number of audiences read from a token
_PLAIN = re.compile(r"[!-?A-~]+")  # printable characters without `@`
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# `application/at+jwt` is the same type as `at+jwt` (RFC 7515, section 4.1.9).
_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
# Claims that name the client: of RFC 9068, of OpenID Connect, of Entra ID (v1) and of Okta.
_CLIENTS = ("client_id", "azp", "appid", "cid")
# Claims of ID tokens, which prove a login to a client and are not access tokens.
_ID_TOKEN = ("at_hash", "c_hash", "s_hash")
# Members in which issuers and introspection endpoints say what kind of token it is.
_KINDS = ("typ", "token_use", "token_type", "tokenName")
_OTHER_KINDS = frozenset(
    ("id", "refresh", "logout", "offline", "authorizationcode", "idjag", "oauthidjag")
)


class BadToken(FairleadError):
    """A token that must be refused with 401; the text is the `error_description`.

    The text never quotes the token. `until` is the Unix time until which the refusal may be used
    for the same token again; 0 if the token must be judged anew.
    """

    until = 0.0


class WrongAudience(BadToken):
    """A token for another server; the response names the audience that is expected here."""


class ParsedToken(Struct, frozen=True):
    """The parts of a JWT before its signature is verified."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes  # the bytes that the signature covers
    signature: bytes


class TokenVerdict(Struct, frozen=True):
    """The result of a successful verification."""

    principal: TokenPrincipal
    until: float  # Unix time until which the verdict may be used
    key: str | None = None  # thumbprint of the key to which the token is bound (DPoP)


def parse_token(token: str) -> ParsedToken:
    """Return the parts of a JWT whose size, form and header are acceptable.

    Keys that the header contains or refers to (`jwk`, `jku`, `x5u`) are ignored.

    Raises:
        BadToken: The text is not such a JWT.
    """
    parsed = read_jwt(token, MAX_TOKEN)
    if parsed is None:
        raise BadToken("the token is not a JWT")
    header = parsed.header
    if "crit" in header:
        raise BadToken("the token has critical extensions, which are not supported")
    kind = header.get("typ")
    if kind is not None and not (isinstance(kind, str) and kind.lower() in _TYPES):
        raise BadToken("the token has the wrong type")
    return parsed


def read_jwt(text: str, limit: int) -> ParsedToken | None:
    """Return the parts of a JWT that has at most `limit` characters; None if it is not a JWT."""
    import base64

    if len(text) > limit or _JWT.fullmatch(text) is None:
        return None
    head, body, seal = text.split(".")
    try:
        parts = [
            base64.urlsafe_b64decode(one + "=" * (-len(one) % 4)) for one in (head, body, seal)
        ]
    except ValueError:
        return None
    header = read_json(parts[0], dict[str, Any], None)
    claims = read_json(parts[1], dict[str, Any], None)
    if header is None or claims is None:
        return None
    return ParsedToken(header, claims, f"{head}.{body}".encode(), parts[2])


def check_times(claims: Mapping[str, Any], now: float, *, required: bool) -> float | None:
    """Return the Unix time at which a token expires, leeway included; None if it has no expiry.

    Raises:
        BadToken: The token has expired or is not valid yet, or a time is malformed.
    """
    for name in ("nbf", "iat"):
        begin = claims.get(name)
        if begin is not None and not (is_time(begin) and begin <= now + LEEWAY):
            raise BadToken(f"the token is not valid yet ({name})")
    end = claims.get("exp")
    if end is None and not required:
        return None
    if end is None or not is_time(end):
        raise BadToken("the token has no valid expiry (exp)")
    if now >= end + LEEWAY:
        raise BadToken("the token has expired")
    return float(end) + LEEWAY


def is_time(value: object) -> TypeGuard[float]:
    """Return True for a number that can be a Unix time."""
    # Booleans are integers in Python; the bound excludes infinities and NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def audience_forms(audiences: Iterable[str]) -> frozenset[str]:
    """Return audiences in the form in which `check_audience` compares them."""
    return frozenset(map(_audience_form, audiences))


def check_audience(given: object, expected: Container[str]) -> None:
    """Check that a token was issued for this server. `expected` comes from `audience_forms`.

    Raises:
        WrongAudience: The audience is missing, or does not include this server.
    """
    named = [given] if isinstance(given, str) else given
    if isinstance(named, list):
        for one in named[:MAX_AUDIENCES]:
            if isinstance(one, str) and _audience_form(one) in expected:
                return
    raise WrongAudience("the token was issued for another audience")


def _audience_form(audience: str) -> str:
    """Return an audience without the variations that the same URL may have.

    Case of scheme and host, the default port and one trailing slash do not matter. Spaces, control
    characters and a user name do, although `urlsplit` removes some of them.
    """
    if len(audience) > 2048:
        return ""
    if _PLAIN.fullmatch(audience) is None:
        return audience
    try:
        parts = urlsplit(audience)
        if parts.scheme.lower() not in ("http", "https") or not parts.netloc or parts.fragment:
            return audience
        return canonical_resource(audience).removesuffix("/")
    except ValueError:
        return audience


def expand_scopes(scopes: Iterable[str], implied: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return scopes together with all narrower scopes that they imply, directly or indirectly."""
    found: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in found:
            found.add(scope)
            waiting.extend(implied.get(scope, ()))
    return frozenset(found)


def verdict_of(
    claims: Mapping[str, Any],
    issuer: str,
    *,
    until: float,
    expires: float | None,
    implied: Mapping[str, Iterable[str]],
) -> TokenVerdict:
    """Return the verdict on a token whose signature, times and audience are valid.

    Raises:
        BadToken: It is not an access token, has no subject, or has an unsupported key binding.
    """
    _check_kind(claims)
    # Without a client, sessions would belong to the user alone.
    client = next((claims[name] for name in _CLIENTS if claims.get(name)), None)
    subject = claims.get("sub")
    if subject is None:
        subject = claims.get("client_id")
    if not isinstance(subject, str) or not isinstance(client, str | None):
        raise BadToken("the token names no subject")
    if not 0 < len(subject) <= MAX_SUBJECT:
        raise BadToken("the token names no subject")
    given = (*parse_scopes(claims.get("scope")), *parse_scopes(claims.get("scp")))
    principal = TokenPrincipal(
        issuer=issuer,
        subject=subject,
        client=client,
        scopes=expand_scopes(given, implied),
        claims=claims,
        expires=expires,
    )
    return TokenVerdict(principal, until, _bound_key(claims))


def _check_kind(claims: Mapping[str, Any]) -> None:
    other = any(_kind(claims.get(name)) in _OTHER_KINDS for name in _KINDS)
    if other or "events" in claims or any(name in claims for name in _ID_TOKEN):
        raise BadToken("the token is not an access token")


def names_kind(claims: Mapping[str, Any]) -> bool:
    """Return True if claims say what kind of token it is; `verdict_of` refuses all other kinds."""
    return any(map(_kind, map(claims.get, _KINDS)))


def _kind(value: object) -> str:
    """Return a kind of token without the variations in its spelling: `refresh_token`,
    `RefreshToken` and `refresh+jwt` are the same kind.
    """
    if not isinstance(value, str):
        return ""
    last = value.rpartition(":")[2]  # URNs of RFC 8693
    plain = "".join(filter(str.isalpha, last.lower()))
    return plain.removesuffix("jwt").removesuffix("token")


def _bound_key(claims: Mapping[str, Any]) -> str | None:
    """Return the thumbprint of the key to which a token is bound, or None."""
    binding = claims.get("cnf")
    if binding is None:
        return None
    key = binding.get("jkt") if isinstance(binding, Mapping) else None
    # Accepting a token that is bound to a certificate would make it a bearer token.
    if not isinstance(key, str) or not key or len(binding) != 1:
        raise BadToken("the token has an unsupported key binding (cnf)")
    return key
