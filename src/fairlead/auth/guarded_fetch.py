"""Requests to URLs that a remote party chose: metadata, keys, token and registration endpoints.

Such a URL may lead into the network of this machine. Connections are opened only to addresses that
are allowed, so that ports of the network cannot be probed. The address of the connected socket is
checked as well before anything is sent.
With an HTTP proxy, the proxy resolves the name, so only host names and literal addresses are
checked. Configured headers of a server are never sent.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec import Struct

from ..errors import AuthorizationError, FairleadError
from ..transport import timeouts
from ..transport.http.client.http1.http_client import HttpClient, HttpClientOptions, HttpResponse
from ..transport.http.client.http1.url import EndpointUrl, ascii_host, host_of
from ..wire import to_json
from ..wire.json import read_json

__all__ = ["FetchBudget", "FetchedDocument", "GuardedFetcher", "is_public_address"]

MAX_DOCUMENT = 256 << 10  # bytes of a fetched document at most
DOCUMENT_TIMEOUT = 10.0  # seconds for one request, redirects included
DISCOVERY_TIMEOUT = 30.0  # seconds for all requests of one discovery
DISCOVERY_REQUESTS = 8  # maximum number of requests of one discovery
MAX_REDIRECTS = 3  # maximum number of redirects of one GET request
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# The only allocated range of global IPv6 addresses. `is_global` is True for others as well,
# such as site-local addresses and IPv4 in the obsolete form `::10.0.0.1`.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
# Metadata services of cloud providers at addresses in private networks.
_CLOUD_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("fd00:ec2::254", "fd20:ce::254")
)
# Not public, although `is_global` is True for it before Python 3.12.4.
_PROTOCOL_ASSIGNMENTS = ipaddress.ip_network("192.0.0.0/24")
# Names of local networks (RFC 6762, section 3 and appendix G; RFC 8375), and aliases of localhost.
_LOCAL_SUFFIXES = (
    *(".local", ".internal", ".home.arpa", ".intranet", ".private", ".corp", ".home", ".lan"),
    *(".localdomain", ".localdomain4", ".localdomain6"),
)
_METADATA_NAMES = frozenset(
    (
        *("metadata", "metadata.goog", "metadata.google.internal", "metadata.azure.internal"),
        *("instance-data", "instance-data.ec2.internal", "metadata.tencentyun.com"),
    )
)
# A proxy could decode `%`, so that another name would be looked up than the one checked.
_HOST = re.compile(r"[a-z0-9._:-]+")


class FetchedDocument(Struct, frozen=True):
    """A response: its status, its headers, and its body if the body is a JSON object."""

    url: str
    status: int
    headers: Mapping[str, str]
    document: dict[str, Any] | None


class FetchBudget:
    """Limits on the duration and number of requests of one discovery."""

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
        private_setting: str = "allowPrivate",
    ) -> None:
        """`allow_loopback` permits plain HTTP to this machine; `allow_private` private networks.

        `private_setting` is the name of the user's setting for private networks, for errors.
        """
        self._hint = f"; `{private_setting}` permits private networks"
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
        async with _FetchLimit(url, seconds):
            for _ in range(MAX_REDIRECTS + 1):
                found, location = await self._request("GET", url, headers, None)
                if location is None:
                    return found
                url = _target(url, location)
                if budget is not None:
                    budget.take()
        raise _problem(url, "too many redirects")

    async def post_form(
        self,
        url: str,
        form: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        *,
        step: str = "token",
    ) -> FetchedDocument:
        """POST a form. Redirects are refused, because they would send secrets to another URL.

        `step` is that of errors.

        Raises:
            AuthorizationError: As for `get`.
        """
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        merged = {**kind, **(headers or {})}
        return await self._post(url, urlencode(form).encode(), merged, step)

    async def post_json(
        self, url: str, document: Mapping[str, Any], *, step: str = "registration"
    ) -> FetchedDocument:
        """POST a JSON object; otherwise like `post_form`."""
        kind = {"Content-Type": "application/json"}
        return await self._post(url, to_json(document), kind, step)

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str], step: str
    ) -> FetchedDocument:
        async with _FetchLimit(url, DOCUMENT_TIMEOUT, step):
            accept = {"Accept": "application/json", **headers}
            found, location = await self._request("POST", url, accept, body)
            if location is not None:
                raise _problem(url, "redirects of POST requests are not followed")
            return found

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[FetchedDocument, str | None]:
        """Return the response, and the target if it is a redirect."""
        self._check_url(url)
        check = partial(self._check_address, url)
        client = HttpClient(EndpointUrl(url), **self._tls, check_address=check, redirects=0)
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
            # A trailing dot only marks the name as absolute.
            host, _ = ascii_host(parts.hostname or "").rstrip("."), parts.port
        except ValueError as exc:
            raise _problem(url, "the URL is invalid") from exc
        plain = parts.scheme == "http" and self._allow_loopback and _names_loopback(host)
        if parts.scheme != "https" and not plain:
            raise _problem(url, "expected an https URL")
        invalid = not _HOST.fullmatch(host) or not url.isprintable()
        if invalid or parts.username is not None or parts.fragment:
            why = "the URL must have a valid host and neither credentials nor a fragment"
            raise _problem(url, why)
        # A proxy would connect to these hosts without a check of the address.
        if (literal := _literal_address(host)) is not None:
            self._check_address(url, literal)
        else:
            self._check_name(url, host)

    def _check_name(self, url: str, host: str) -> None:
        """Refuse names of the local network, which a proxy would resolve."""
        if host in _METADATA_NAMES:
            raise _problem(url, f"{host} is the metadata service of a cloud provider")
        if host.endswith(".localhost"):
            allowed, setting = self._allow_loopback or self._allow_private, ""
        else:
            # A name without a dot is looked up in the domain of this machine or of the proxy.
            local = host.endswith(_LOCAL_SUFFIXES) or "." not in host
            allowed = self._allow_private or not local
            setting = self._hint
        if not allowed:
            raise _problem(url, f"the name {host} is not public{setting}")

    def _check_address(self, url: str, address: str) -> None:
        allowed = (
            is_public_address(address)
            or (self._allow_loopback and _is_loopback(address))
            or (self._allow_private and _is_private(address))
        )
        if not allowed:
            setting = self._hint if _is_private(address) else ""
            raise _problem(url, f"the address {address} is not public{setting}")


class _FetchLimit:
    """Context with a time limit, which converts transport failures to authorization errors."""

    def __init__(self, url: str, seconds: float, step: str = "discovery") -> None:
        self._url = url
        self._step = step
        self._timeout = timeouts.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as exc:
            raise self._problem("no response in time") from exc
        if isinstance(error, AuthorizationError):
            error.step = self._step
        elif isinstance(error, FairleadError):
            raise self._problem(str(error)) from error

    def _problem(self, why: str) -> AuthorizationError:
        error = _problem(self._url, why, temporary=True)
        error.step = self._step
        return error


async def _read(url: str, reply: HttpResponse) -> FetchedDocument:
    body = await reply.read(MAX_DOCUMENT)
    kind = reply.content_type
    if kind == "application/x-www-form-urlencoded":
        from urllib.parse import parse_qsl

        document: dict[str, Any] | None = dict(parse_qsl(body.decode("utf-8", "replace")))
    else:
        document = read_json(body, dict[str, Any], None)
    return FetchedDocument(url, reply.status, reply.headers, document)


def _target(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as exc:
        raise _problem(url, "the redirect is invalid") from exc


def _problem(url: str, why: str, *, temporary: bool = False) -> AuthorizationError:
    # The message omits the path, which may contain secrets, and the response.
    return AuthorizationError(
        f"cannot fetch from {host_of(url)}: {why}", step="discovery", temporary=temporary
    )


def is_public_address(address: str) -> bool:
    """Return True if an IP address, and any IPv4 address inside it, is public."""
    return all(
        ip.is_global
        and not ip.is_multicast
        and ip not in _PROTOCOL_ASSIGNMENTS
        and (ip.version == 4 or ip in _GLOBAL_UNICAST or ip in _NAT64)
        for ip in _forms(address)
    )


def _is_loopback(address: str) -> bool:
    return all(ip.is_loopback for ip in _forms(address))


def _is_private(address: str) -> bool:
    # `_PRIVATE` has no link-local network, because cloud providers have metadata services there.
    return all(
        any(ip in network for network in _PRIVATE) and ip not in _CLOUD_METADATA
        for ip in _forms(address)
    )


def _literal_address(host: str) -> str | None:
    """Return the address of a host name such as `127.0.0.1`, `127.1` or `0x7f000001`, or None."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError, ValueError):
        return "127.0.0.1" if host == "localhost" else None


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
    # An IPv4-mapped address is IPv4 on the wire, so only the IPv4 address counts.
    return [*found] if ip.ipv4_mapped is not None else [ip, *found]


def _names_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
