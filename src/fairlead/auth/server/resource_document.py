"""Protected resource metadata of our endpoints (RFC 9728): URLs and documents."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ...errors import ConfigError
from ..metadata import canonical_resource
from ..scopes import OFFLINE_ACCESS

__all__ = ["WELL_KNOWN", "check_public_url", "metadata_url", "resource_document", "resource_url"]

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def check_public_url(url: str, path: str | None = None) -> str:
    """Return the normal form of a `public_url`.

    Raises:
        ConfigError: The URL is invalid, or contains the path of the endpoint.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme.lower() in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or "@" in parts.netloc or not url.isprintable():
        raise ConfigError(
            f"invalid public_url {url!r}: expected the URL under which clients reach this server, "
            "such as https://mcp.example.com"
        )
    if path is not None and parts.path.rstrip("/").endswith(path.rstrip("/")) and path != "/":
        raise ConfigError(
            f"public_url {url!r} contains the path of the endpoint: leave out {path!r}, "
            "which is added to it"
        )
    return canonical_resource(url).rstrip("/")


def resource_url(base: str, path: str) -> str:
    """Return the canonical URI of an endpoint below a public URL."""
    return base + (path if path.startswith("/") else f"/{path}").rstrip("/")


def metadata_url(base: str, path: str) -> str:
    """Return the URL of the metadata of an endpoint.

    If the public URL has a path, a proxy forwards only requests below that path. The metadata are
    therefore below it as well, and not at the default URL at the root of the host.
    """
    return base + WELL_KNOWN + (path if path.startswith("/") else f"/{path}").rstrip("/")


def resource_document(
    resource: str,
    issuers: Sequence[str],
    scopes: Sequence[str],
    *,
    name: str | None = None,
    proof_algorithms: Sequence[str] = (),
    proof_required: bool = False,
) -> dict[str, Any]:
    """Return the metadata of one endpoint."""
    document: dict[str, Any] = {
        "resource": resource,
        "authorization_servers": list(issuers),
        "bearer_methods_supported": ["header"],
    }
    published = [scope for scope in dict.fromkeys(scopes) if scope != OFFLINE_ACCESS]
    if published:
        document["scopes_supported"] = published
    if name is not None:
        document["resource_name"] = name
    if proof_algorithms:
        document["dpop_signing_alg_values_supported"] = list(proof_algorithms)
        document["dpop_bound_access_tokens_required"] = proof_required
    return document
