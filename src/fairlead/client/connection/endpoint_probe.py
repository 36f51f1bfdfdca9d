"""Search for the MCP endpoint of a server whose URL has the wrong path."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from ...auth.challenge import parse_challenges, pick_challenge
from ...auth.client.authorization_discovery import PING, PING_HEADERS
from ...auth.metadata import named_endpoint
from ...errors import FairleadError
from ...transport import timeouts
from ...wire.json import read_json

__all__ = ["find_endpoint"]

PROBE_TIMEOUT = 3.0  # seconds for all requests of one search
MAX_BODY = 64 << 10  # bytes of a response that are read


async def find_endpoint(url: str) -> str | None:
    """Return the URL with the usual path at which the same host serves MCP, or None.

    The requests contain no credentials.
    """
    # A server may demand a token for every path: then only the last candidate is likely, which is
    # at the root.
    guarded: str | None = None
    try:
        async with timeouts.timeout(PROBE_TIMEOUT):
            for candidate in _candidates(url):
                serves = await _serves_mcp(candidate)
                if serves:
                    return candidate
                guarded = candidate if serves is None else guarded
    except TimeoutError:
        pass
    return guarded


def _candidates(url: str) -> Iterator[str]:
    """Yield the URLs below the path and at the root of the host, without user name and query."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        return
    if parts.scheme.lower() not in ("http", "https"):
        return
    path = parts.path.rstrip("/")
    below = () if path.endswith("/mcp") else (f"{path}/mcp",)
    for other in dict.fromkeys((*below, "/mcp")):
        if other != path:
            yield origin + other


async def _serves_mcp(url: str) -> bool | None:
    """Return True if a URL serves MCP; None if it requires a token but names no endpoint."""
    from ...transport.http.client.http1.http_client import HttpClient
    from ...transport.http.client.http1.url import EndpointUrl

    client = HttpClient(EndpointUrl(url), redirects=0)
    try:
        reply = await client.open("POST", PING_HEADERS, PING)
        challenge = reply.header("www-authenticate") or ""
        if reply.status == 401:
            # A protected server may refuse every path; its challenge then names the path of the
            # endpoint.
            found = pick_challenge(parse_challenges(challenge))
            if found is None:
                return False
            metadata = found.values("resource_metadata")
            return not any(named_endpoint(url, one) for one in metadata) if metadata else None
        kind = reply.header("content-type") or ""
        if kind.startswith("text/event-stream"):
            return reply.status == 200
        body = await reply.read(MAX_BODY)
        return reply.status != 404 and "jsonrpc" in (read_json(body, dict, None) or {})
    # The search must not replace the error that it is about.
    except (FairleadError, OSError):
        return False
    finally:
        await client.close()
