"""Discovery of the authorization server of a protected server (RFC 9728, RFC 8414)."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from ...errors import AuthorizationError
from ..challenge import Challenge
from ..guarded_fetch import FetchBudget, GuardedFetcher
from ..metadata import (
    AuthorizationServer,
    ProtectedResource,
    canonical_resource,
    check_issuer,
    check_resource,
    default_endpoints,
    origin_of,
    read_authorization_server,
    read_protected_resource,
    resource_metadata_urls,
    server_metadata_urls,
)

__all__ = ["DiscoveredServer", "discover", "discover_issuer"]


class DiscoveredServer(Struct, frozen=True):
    """The authorization server of a resource."""

    authorization: AuthorizationServer
    resource: str  # sent exactly as it was published
    protected: ProtectedResource | None  # None: a server of 2025-03-26
    documented: bool = True  # False: default endpoints of 2025-03-26


async def discover(
    fetcher: GuardedFetcher,
    server_url: str,
    challenge: Challenge | None,
    known_issuers: Sequence[str] = (),
) -> DiscoveredServer:
    """Find the authorization server of a server.

    `known_issuers` are preferred if the metadata name several issuers.

    Raises:
        AuthorizationError: No metadata can be used; `temporary` is True if a later attempt may
            succeed.
    """
    budget = FetchBudget()
    protected = await _protected_resource(fetcher, server_url, challenge, budget)
    if protected is None:
        return await _without_resource_metadata(fetcher, server_url, budget)
    check_resource(protected.resource, server_url)
    issuers = protected.authorization_servers
    issuer = next((one for one in issuers if one in known_issuers), issuers[0])
    found = await discover_issuer(fetcher, issuer, budget)
    return DiscoveredServer(found, protected.resource, protected)


async def _protected_resource(
    fetcher: GuardedFetcher, server_url: str, challenge: Challenge | None, budget: FetchBudget
) -> ProtectedResource | None:
    named = challenge.values("resource_metadata") if challenge is not None else []
    for url in dict.fromkeys([*named, *resource_metadata_urls(server_url)]):
        document = await _document(fetcher, url, budget)
        found = None if document is None else read_protected_resource(document)
        if found is not None:
            return found
    return None


async def discover_issuer(
    fetcher: GuardedFetcher, issuer: str, budget: FetchBudget | None = None
) -> AuthorizationServer:
    """Return the metadata of an issuer.

    Raises:
        AuthorizationError: There are none, or they name another issuer.
    """
    budget = budget or FetchBudget()
    for url in server_metadata_urls(issuer):
        document = await _document(fetcher, url, budget)
        found = None if document is None else read_authorization_server(document)
        if found is not None:
            check_issuer(found, issuer)
            return found
    raise AuthorizationError(
        f"the authorization server {issuer} publishes no metadata",
        step="discovery",
        issuer=issuer,
    )


async def _without_resource_metadata(
    fetcher: GuardedFetcher, server_url: str, budget: FetchBudget
) -> DiscoveredServer:
    """Apply the rules of 2025-03-26: the server's own origin is the issuer."""
    origin = origin_of(server_url)
    resource = canonical_resource(server_url)
    document = await _document(fetcher, server_metadata_urls(origin)[0], budget)
    found = None if document is None else read_authorization_server(document)
    if found is None:
        return DiscoveredServer(default_endpoints(server_url), resource, None, documented=False)
    # The issuer of a host may be written with a slash.
    if found.issuer.rstrip("/") != origin:
        check_issuer(found, origin)
    return DiscoveredServer(found, resource, None)


async def _document(
    fetcher: GuardedFetcher, url: str, budget: FetchBudget
) -> dict[str, object] | None:
    """Return the document at a URL, or None if the server has no such document.

    Raises:
        AuthorizationError: The place cannot be asked now; another place must not be used instead,
            because it could belong to an older revision or to another party.
    """
    found = await fetcher.get(url, budget)
    if found.status == 429 or found.status >= 500:
        raise AuthorizationError(
            f"{urlsplit(url).netloc} responded with HTTP {found.status} to the request for its "
            "metadata: try again later",
            step="discovery",
            temporary=True,
        )
    return found.document if 200 <= found.status < 300 else None
