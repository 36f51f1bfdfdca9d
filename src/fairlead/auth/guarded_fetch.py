"""Requests to URLs that a remote party chose: metadata, keys, token and registration endpoints.

Such a URL may lead into the network of this machine. The address of the connected socket is
checked before anything is sent, because a lookup before connecting may be answered differently.
Configured headers of a server are never sent.
"""

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec import Struct

from ..errors import AuthorizationError, FairleadError, TransportError
from ..transport.http.client.http1.http_client import HttpClient, HttpClientOptions, HttpResponse
from ..transport.http.client.http1.url import EndpointUrl, host_of
from ..wire import to_json
from ..wire.json import read_json

__all__ = ["FetchBudget", "FetchedDocument", "GuardedFetcher", "is_public_address"]

MAX_DOCUMENT = 256 << 10  # bytes
DOCUMENT_TIMEOUT = 10.0  # seconds for one request, redirects included
DISCOVERY_TIMEOUT = 30.0  # seconds for all requests of one discovery
DISCOVERY_REQUESTS = 8
MAX_REDIRECTS = 3
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class FetchedDocument(Struct, frozen=True):
    """A response: its status, its headers, and its body if that is a JSON object."""

    url: str
    status: int
    headers: Mapping[str, str]
    document: dict[str, Any] | None


class FetchBudget:
    """Limit of the seconds and requests of one discovery."""

    def __init__(
        self, seconds: float = DISCOVERY_TIMEOUT, requests: int = DISCOVERY_REQUESTS
    ) -> None:
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._requests = requests

    def take(self) -> float:
        """Count one request and return the seconds that it may take.

        Raises:
            AuthorizationError: The budget is used up.
        """
        left = self._deadline - asyncio.get_running_loop().time()
        self._requests -= 1
        if left <= 0 or self._requests < 0:
            raise AuthorizationError(
                "the discovery of the authorization server takes too long or too many requests",
                step="discovery",
                temporary=True,
            )
        return min(left, DOCUMENT_TIMEOUT)


class GuardedFetcher:
    """HTTP requests with a bounded cost to addresses that are allowed."""

    def __init__(
        self,
        *,
        allow_loopback: bool = False,
        allow_private: bool = False,
        tls: HttpClientOptions | None = None,
    ) -> None:
        """`allow_loopback` permits plain HTTP to this machine; `allow_private` private networks."""
        self._allow_loopback = allow_loopback
        self._allow_private = allow_private
        self._tls: HttpClientOptions = tls or {}

    async def get(self, url: str, budget: FetchBudget | None = None) -> FetchedDocument:
        """GET a JSON document; at most three redirects are followed, each checked like `url`.

        Raises:
            AuthorizationError: The URL is not allowed, the server cannot be reached, or its
                response exceeds a limit.
        """
        seconds = DOCUMENT_TIMEOUT if budget is None else budget.take()
        headers = {"Accept": "application/json"}
        async with self._limit(url, seconds):
            for _ in range(MAX_REDIRECTS + 1):
                found, location = await self._request("GET", url, headers, None)
                if location is None:
                    return found
                url = urljoin(url, location)
        raise _problem(url, "too many redirects")

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> FetchedDocument:
        """POST a form. Redirects are refused, because they would carry secrets elsewhere.

        Raises:
            AuthorizationError: As for `get`.
        """
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._post(url, urlencode(form).encode(), {**kind, **(headers or {})})

    async def post_json(self, url: str, document: Mapping[str, Any]) -> FetchedDocument:
        """POST a JSON object; otherwise like `post_form`."""
        return await self._post(url, to_json(document), {"Content-Type": "application/json"})

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchedDocument:
        async with self._limit(url, DOCUMENT_TIMEOUT):
            accept = {"Accept": "application/json", **headers}
            found, location = await self._request("POST", url, accept, body)
        if location is not None:
            raise _problem(url, "redirects of POST requests are not followed")
        return found

    def _limit(self, url: str, seconds: float) -> "_FetchLimit":
        return _FetchLimit(url, seconds)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[FetchedDocument, str | None]:
        """Return the response, and the target if it is a redirect."""
        self._check_url(url)
        client = HttpClient(
            EndpointUrl(url), **self._tls, check_address=self._check_address, redirects=0
        )
        try:
            reply = await client.open(method, headers, body)
            if reply.status in _REDIRECTS:
                return FetchedDocument(url, reply.status, {}, None), reply.header("location") or ""
            return await _read(url, reply), None
        finally:
            await client.close()

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as exc:
            raise _problem(url, "the URL is invalid") from exc
        plain = parts.scheme == "http" and self._allow_loopback and _names_loopback(host)
        if parts.scheme != "https" and not plain:
            raise _problem(url, "expected an https URL")
        if not host or parts.username is not None or parts.fragment or not url.isprintable():
            raise _problem(url, "the URL must have a host and neither credentials nor a fragment")

    def _check_address(self, address: str) -> None:
        allowed = (
            is_public_address(address)
            or (self._allow_loopback and _is_loopback(address))
            or (self._allow_private and _is_private(address))
        )
        if not allowed:
            raise TransportError(f"the address {address} is not public", delivered=False)


class _FetchLimit:
    """Time limit of a request that turns failures of the transport into authorization errors."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as exc:
            raise _problem(self._url, "no response in time") from exc
        if isinstance(error, FairleadError) and not isinstance(error, AuthorizationError):
            raise _problem(self._url, str(error)) from error


async def _read(url: str, reply: HttpResponse) -> FetchedDocument:
    body = await reply.read(MAX_DOCUMENT)
    kind = reply.content_type
    if kind == "application/x-www-form-urlencoded":
        from urllib.parse import parse_qsl

        document: dict[str, Any] | None = dict(parse_qsl(body.decode("utf-8", "replace")))
    else:
        document = read_json(body, dict[str, Any], None)
    return FetchedDocument(url, reply.status, reply.headers, document)


def _problem(url: str, why: str) -> AuthorizationError:
    # The host and the reason, but neither the path, which may contain secrets, nor the response.
    return AuthorizationError(
        f"cannot fetch from {host_of(url)}: {why}", step="discovery", temporary=True
    )


def is_public_address(address: str) -> bool:
    """Return True if an IP address is on the public internet, also inside an IPv6 address."""
    return all(ip.is_global and not ip.is_multicast for ip in _forms(address))


def _is_loopback(address: str) -> bool:
    return all(ip.is_loopback for ip in _forms(address)[-1:])


def _is_private(address: str) -> bool:
    # Link-local addresses include the metadata services of cloud providers.
    return all(
        ip.is_private and not (ip.is_link_local or ip.is_loopback or ip.is_unspecified)
        for ip in _forms(address)[-1:]
    )


def _forms(address: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return an address and the IPv4 addresses that it contains."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 4:
        return [ip]
    assert isinstance(ip, ipaddress.IPv6Address)
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    found = [one for one in inner if one is not None]
    # A mapped address is IPv4 on the wire, so only the inner one counts.
    return [*found] if ip.ipv4_mapped is not None else [ip, *found]


def _names_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
