"""Discovery of a protected server's authorization server (RFC 9728, RFC 8414)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from ...errors import AuthorizationError, FairleadError
from ...transport import timeouts
from ...transport.http.client.http1.http_client import HttpClient
from ...transport.http.client.http1.url import EndpointUrl
from ..challenge import Challenge, parse_challenges, pick_challenge
from ..guarded_fetch import FetchBudget, GuardedFetcher
from ..metadata import (
    AuthorizationServer,
    ProtectedResource,
    canonical_resource,
    check_issuer,
    check_resource,
    default_endpoints,
    origin_of,
    plain_url,
    read_authorization_server,
    read_protected_resource,
    resource_metadata_urls,
    server_metadata_urls,
)

__all__ = [
    "PING",
    "PING_HEADERS",
    "DiscoveredServer",
    "discover",
    "discover_issuer",
    "first_challenge",
]

CHALLENGE_TIMEOUT = 5.0  # seconds for a server to refuse a request
# Servers answer this without opening a session: with a result, or an error about the session.
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PING_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}

T = TypeVar("T")


class DiscoveredServer(Struct, frozen=True):
    """The authorization server of a resource."""

    authorization: AuthorizationServer
    resource: str  # `resource` parameter, exactly as published
    protected: ProtectedResource | None  # None: the server follows revision 2025-03-26
    documented: bool = True  # False: the default endpoints of revision 2025-03-26 are used


async def first_challenge(server_url: str) -> Challenge | None:
    """Return the challenge of a server to a request without credentials, or None.

    The metadata of the server may be at a URL that only the challenge names.
    """
    client = HttpClient(EndpointUrl(server_url))
    try:
        async with timeouts.timeout(CHALLENGE_TIMEOUT):
            reply = await client.open("POST", PING_HEADERS, PING)
        challenges = parse_challenges(reply.header("www-authenticate"))
        return pick_challenge(challenges) if reply.status == 401 else None
    # The discovery that follows reports a server that cannot be reached.
    except (FairleadError, OSError, TimeoutError):
        return None
    finally:
        await client.close()


async def discover(
    fetcher: GuardedFetcher,
    server_url: str,
    challenge: Challenge | None,
    known_issuers: Sequence[str] = (),
    is_registered: Callable[[str], Awaitable[bool]] | None = None,
) -> DiscoveredServer:
    """Find the authorization server of an MCP server.

    If the metadata name several issuers, the first of `known_issuers` is preferred, then the first
    issuer for which `is_registered` returns True.

    Raises:
        AuthorizationError: No metadata can be used; `temporary` is True if a later attempt may
            succeed.
    """
    budget = FetchBudget()
    protected = await _protected_resource(fetcher, server_url, challenge, budget)
    if protected is None:
        return await _without_resource_metadata(fetcher, server_url, budget)
    check_resource(protected.resource, server_url)
    issuer = await _chosen(protected.authorization_servers, known_issuers, is_registered)
    try:
        found = await discover_issuer(fetcher, issuer, budget)
    except AuthorizationError as exc:
        exc.issuer = exc.issuer or issuer
        raise
    return DiscoveredServer(found, protected.resource, protected)


async def _chosen(
    issuers: Sequence[str],
    known: Sequence[str],
    is_registered: Callable[[str], Awaitable[bool]] | None,
) -> str:
    for issuer in known:
        if issuer in issuers:
            return issuer
    if is_registered is not None and len(issuers) > 1:
        for issuer in issuers:
            if await is_registered(issuer):
                return issuer
    return issuers[0]


async def _protected_resource(
    fetcher: GuardedFetcher, server_url: str, challenge: Challenge | None, budget: FetchBudget
) -> ProtectedResource | None:
    named = challenge.values("resource_metadata") if challenge is not None else []
    urls = dict.fromkeys([*named, *resource_metadata_urls(server_url)])
    return await _published(fetcher, urls, read_protected_resource, budget)


async def discover_issuer(
    fetcher: GuardedFetcher, issuer: str, budget: FetchBudget | None = None
) -> AuthorizationServer:
    """Return the metadata of an issuer.

    Raises:
        AuthorizationError: The metadata are missing or name another issuer.
    """
    budget = budget or FetchBudget()
    urls = server_metadata_urls(issuer)
    found = await _published(fetcher, urls, read_authorization_server, budget)
    if found is None:
        raise AuthorizationError(
            f"the authorization server {issuer} publishes no metadata",
            step="discovery",
            issuer=issuer,
        )
    check_issuer(found, issuer)
    return found


async def _without_resource_metadata(
    fetcher: GuardedFetcher, server_url: str, budget: FetchBudget
) -> DiscoveredServer:
    """Apply the rules of revision 2025-03-26: the server's own origin is the issuer."""
    origin = origin_of(server_url)
    resource = canonical_resource(server_url)
    urls = server_metadata_urls(origin)[:1]
    found = await _published(fetcher, urls, read_authorization_server, budget)
    if found is None:
        return DiscoveredServer(default_endpoints(server_url), resource, None, documented=False)
    # The issuer may have a trailing slash after the host.
    if found.issuer.rstrip("/") != origin:
        check_issuer(found, origin)
    return DiscoveredServer(found, resource, None)


async def _published(
    fetcher: GuardedFetcher,
    urls: Iterable[str],
    read: Callable[[object], T | None],
    budget: FetchBudget,
) -> T | None:
    """Return the first valid document at one of the URLs, or None if all of them answer 404.

    Raises:
        AuthorizationError: A URL cannot be fetched now, or answers with something else. This must
            not lead to the endpoints of an older revision, which could belong to another party.
    """
    unusable: AuthorizationError | None = None
    for url in urls:
        found = await fetcher.get(url, budget)
        if found.status == 429 or found.status >= 500:
            raise AuthorizationError(
                f"{urlsplit(url).netloc} responded with HTTP {found.status} to the request for its "
                "metadata: try again later",
                step="discovery",
                temporary=True,
            )
        document = read(found.document) if 200 <= found.status < 300 else None
        if document is not None:
            return document
        if found.status != 404 and unusable is None:
            # Metadata are public, so a server that demands a token for them has no login.
            end = "; if its operator gave you a token, pass the token instead of logging in"
            unusable = AuthorizationError(
                f"{plain_url(url)} responded with HTTP {found.status} and without valid metadata: "
                "expected a JSON document, or HTTP 404 if there is none"
                f"{end if found.status == 401 else ''}",
                step="discovery",
            )
    if unusable is not None:
        raise unusable
    return None
