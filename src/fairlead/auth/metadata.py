"""Metadata of protected resources (RFC 9728) and authorization servers (RFC 8414, OpenID Connect).

This module does no I/O: it computes metadata URLs and validates documents.
"""

from typing import Annotated
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Meta, Struct

from ..errors import AuthorizationError, ConfigError

__all__ = [
    "AuthorizationServer",
    "OtherResource",
    "ProtectedResource",
    "canonical_resource",
    "check_issuer",
    "check_pkce",
    "check_resource",
    "default_endpoints",
    "http_url",
    "is_within",
    "named_endpoint",
    "origin_of",
    "plain_url",
    "read_authorization_server",
    "read_protected_resource",
    "resource_metadata_urls",
    "server_metadata_urls",
    "server_resource",
]

_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_OAUTH_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"

_Url = Annotated[str, Meta(max_length=2048)]
# Some providers announce hundreds of scopes.
_Words = Annotated[list[Annotated[str, Meta(max_length=512)]], Meta(max_length=4096)]


class OtherResource(AuthorizationError):
    """The metadata of a server concern another URL.

    `endpoint` is that URL if it is at the same host, which means that the user's URL probably has
    the wrong path; otherwise it is empty, and `elsewhere` is that URL if it can be parsed.
    """

    def __init__(self, message: str, server_url: str, resource: str) -> None:
        super().__init__(message, step="discovery", server=plain_url(server_url))
        is_here = is_within(resource, origin_of(server_url))
        self.endpoint = plain_url(resource) if is_here else ""
        self.elsewhere = "" if is_here else _readable(resource)


class ProtectedResource(Struct, frozen=True):
    """Protected resource metadata: the members that a client uses."""

    resource: _Url
    authorization_servers: Annotated[list[_Url], Meta(min_length=1, max_length=32)]
    scopes_supported: _Words | None = None
    dpop_bound_access_tokens_required: bool = False
    dpop_signing_alg_values_supported: _Words | None = None


class AuthorizationServer(Struct, frozen=True):
    """Authorization server metadata: the members that a client uses."""

    issuer: _Url
    authorization_endpoint: _Url | None = None
    token_endpoint: _Url | None = None
    registration_endpoint: _Url | None = None
    device_authorization_endpoint: _Url | None = None
    pushed_authorization_request_endpoint: _Url | None = None
    revocation_endpoint: _Url | None = None
    introspection_endpoint: _Url | None = None
    jwks_uri: _Url | None = None
    scopes_supported: _Words | None = None
    code_challenge_methods_supported: _Words | None = None
    token_endpoint_auth_methods_supported: _Words | None = None
    grant_types_supported: _Words | None = None
    dpop_signing_alg_values_supported: _Words | None = None
    authorization_grant_profiles_supported: _Words | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    require_pushed_authorization_requests: bool = False


def read_protected_resource(document: object) -> ProtectedResource | None:
    """Return the metadata in a decoded document, or None if the document is not valid metadata."""
    try:
        return msgspec.convert(document, ProtectedResource)
    except msgspec.ValidationError:
        return None


def read_authorization_server(document: object) -> AuthorizationServer | None:
    """Return the metadata in a decoded document, or None if the document is not valid metadata."""
    try:
        return msgspec.convert(document, AuthorizationServer)
    except msgspec.ValidationError:
        return None


def resource_metadata_urls(server_url: str) -> list[str]:
    """Return the default URLs of a server's resource metadata, in the order to try them."""
    parts = urlsplit(server_url)
    root = urlunsplit((parts.scheme, parts.netloc, _RESOURCE_PATH, "", ""))
    path = parts.path.rstrip("/")
    return [root + path, root] if path else [root]


def server_metadata_urls(issuer: str) -> list[str]:
    """Return the URLs of an issuer's metadata, in the order in which to try them.

    For an issuer with a path, the root of the host is not tried: another tenant may own it.

    Raises:
        AuthorizationError: The issuer is not a URL.
    """
    try:
        if not issuer.isprintable():
            raise ValueError("urlsplit removes some control characters")
        parts = urlsplit(issuer)
    except ValueError as exc:
        raise AuthorizationError(
            f"invalid authorization server {issuer!r}: expected an https URL", step="discovery"
        ) from exc
    base = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    path = parts.path.rstrip("/")
    places = [f"{base}{_OAUTH_PATH}{path}", f"{base}{_OPENID_PATH}{path}"]
    return [*places, f"{base}{path}{_OPENID_PATH}"] if path else places


def default_endpoints(server_url: str) -> AuthorizationServer:
    """Return the endpoints that revision 2025-03-26 assumes for servers without metadata."""
    base = origin_of(server_url)
    return AuthorizationServer(
        issuer=base,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        code_challenge_methods_supported=["S256"],
        token_endpoint_auth_methods_supported=["none", "client_secret_basic", "client_secret_post"],
    )


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))


def http_url(url: str) -> str:
    """Return the URL of a WebSocket as that of the HTTP request that opens it."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme) + colon + rest


def plain_url(url: str) -> str:
    """Return a URL without credentials, query and fragment, which may contain secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _readable(url: str) -> str:
    try:
        return plain_url(url)
    except ValueError:
        return ""


def canonical_resource(url: str) -> str:
    """Return the canonical URI of a server: scheme and host in lower case, no fragment.

    A trailing slash is removed if it is the whole path.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme.lower())
    place = host if parts.port in (None, usual) else f"{host}:{parts.port}"
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower(), place, path, parts.query, ""))


def server_resource(url: str) -> str:
    """Return the canonical URI of a server without credentials and query, which may be secret.

    Raises:
        ConfigError: The URL is invalid.
    """
    try:
        return canonical_resource(plain_url(url))
    except ValueError:
        # Without the reason, which may quote a part of a password.
        raise ConfigError("Invalid server URL: its host or port is invalid") from None


def check_resource(resource: str, server_url: str) -> None:
    """Check that published metadata concern a server: the same origin, and its path or a parent.

    RFC 9728 requires equality; many servers publish a parent such as their origin.

    Raises:
        AuthorizationError: The metadata belong to another resource.
    """
    if not is_within(server_url, resource):
        raise OtherResource(
            f"the metadata of {plain_url(server_url)} name another resource: "
            f"{resource.partition('?')[0]!r}",
            server_url,
            resource,
        )


def named_endpoint(server_url: str, metadata_url: str) -> str:
    """Return the URL of the endpoint whose metadata a challenge names, if it is another path of
    the same host; otherwise an empty string.
    """
    try:
        origin, place = origin_of(server_url), urlsplit(plain_url(metadata_url))
    except ValueError:
        return ""
    path = place.path.removeprefix(_RESOURCE_PATH)
    endpoint = f"{origin}{path}"
    if path in (place.path, "", "/") or not endpoint.isprintable():
        return ""
    same = f"{place.scheme}://{place.netloc}" == origin
    return endpoint if same and not is_within(server_url, endpoint) else ""


def is_within(url: str, resource: str) -> bool:
    """Return True if a URL has the origin of a resource, and its path or a path below it."""
    try:
        named, asked = (urlsplit(canonical_resource(one)) for one in (resource, url))
    except ValueError:
        return False
    parent = named.path.rstrip("/")
    same = (named.scheme, named.netloc) == (asked.scheme, asked.netloc)
    if not same or asked.path.rstrip("/") == parent:
        return same
    return asked.path.startswith(f"{parent}/") and not _has_dot_segments(asked.path)


def _has_dot_segments(path: str) -> bool:
    """Return True if a server could read the path as one outside of its first segments."""
    decoded = unquote(unquote(path)).replace("\\", "/")
    # Some servers remove the parameters of a segment, as in `/..;x/`.
    return any(part.partition(";")[0] in (".", "..") for part in decoded.split("/"))


def check_issuer(metadata: AuthorizationServer, issuer: str) -> None:
    """Check that metadata belong to the issuer that they were requested for.

    Raises:
        AuthorizationError: The issuer differs; the comparison is exact.
    """
    if metadata.issuer != issuer:
        raise AuthorizationError(
            f"the metadata of the authorization server {issuer!r} name another issuer: "
            f"{metadata.issuer!r}",
            step="discovery",
            issuer=issuer,
        )


def check_pkce(metadata: AuthorizationServer) -> None:
    """Check that an authorization server supports PKCE with SHA-256.

    PKCE makes an intercepted authorization code useless.

    Raises:
        AuthorizationError: The server does not announce `S256`.
    """
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthorizationError(
            f"the authorization server {metadata.issuer} does not announce PKCE with S256 "
            "(code_challenge_methods_supported)",
            step="discovery",
            issuer=metadata.issuer,
        )
