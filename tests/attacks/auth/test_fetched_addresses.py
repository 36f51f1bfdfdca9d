"""Untrusted URLs that lead into the local network or to endless responses."""

import asyncio
import gzip
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.auth.challenge import Challenge
from fairlead.auth.client.authorization_discovery import discover
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.guarded_fetch import (
    DISCOVERY_REQUESTS,
    DISCOVERY_TIMEOUT,
    DOCUMENT_TIMEOUT,
    GuardedFetcher,
    is_public_address,
)
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call, raw_server
from tests.support.scripted_provider import hang, scripted_provider

LIMIT = 20.0
PRIVATE = [
    "169.254.169.254",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "127.0.0.1",
    "0.0.0.0",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
]
PREFIXES = {
    "mapped": "::ffff:{}",
    "compatible": "::{}",
    "translated": "::ffff:0:{}",
    "NAT64": "64:ff9b::{}",
    "local NAT64": "64:ff9b:1::{}",
}


@pytest.mark.attack(
    "metadata, keys or token endpoints at private, link-local or tunnelled addresses",
    "the address of the connected socket must be public; spellings of addresses are checked",
    "no request is sent",
)
@pytest.mark.parametrize("address", PRIVATE)
@pytest.mark.parametrize("prefix", ["{}", *PREFIXES.values()], ids=["plain", *PREFIXES])
def test_private_ipv4_addresses_are_refused_also_in_every_ipv6_notation(
    address: str, prefix: str
) -> None:
    assert not is_public_address(prefix.format(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_in_6to4_and_teredo_addresses(address: str) -> None:
    number = int.from_bytes(socket.inet_aton(address))
    assert not is_public_address(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1")
    teredo = (0x20010000 << 96) | (number ^ 0xFFFFFFFF)
    assert not is_public_address(socket.inet_ntop(socket.AF_INET6, teredo.to_bytes(16)))


@pytest.mark.parametrize("address", ["fec0::1", "fe80::1", "fd00:ec2::254", "ff02::1", "::", "::1"])
def test_local_ipv6_addresses_are_refused(address: str) -> None:
    assert not is_public_address(address)


@given(st.ip_addresses())
def test_classifying_an_ip_address_never_raises_an_exception(address: object) -> None:
    is_public_address(str(address))


SPELLINGS = [
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::]",
    "metadata.google.internal",
    "printer.local",
    "localhost",
    "x.localhost",
    "localhost.",
    "169.254.169.254.",
    "metadata.google.internal.",
    "printer.local.",
    "169。254。169。254",
    "１６９.254.169.254",
    "①⑥⑨.254.169.254",
    "metadata。google。internal",
    "ｌocalhost",
    "intranet",
    "intranet.",
    "ip6-localhost",
    "localhost.localdomain",
    "router.lan",
    "nas.home.arpa",
    "sso.corp",
    "metadata",
    "metadata.goog",
    "METADATA.goog.",
]
LOCAL_NAMES = ["printer.local", "sso.internal", "intranet", "router.lan", "localhost.localdomain"]


@pytest.mark.parametrize("host", SPELLINGS)
@pytest.mark.parametrize("proxied", [False, True])
async def test_all_spellings_of_private_hosts_are_refused_with_and_without_a_proxy(
    host: str, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a proxy, only the host name can be checked: the socket is connected to the proxy."""
    asked: list[Call] = []

    async def proxy(call: Call) -> None:
        asked.append(call)
        await call.answer(502)

    async with asyncio.timeout(LIMIT), raw_server(proxy) as served:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.delenv(name, raising=False)
            if proxied:
                monkeypatch.setenv(name, f"http://127.0.0.1:{served.port}")
        with pytest.raises(AuthorizationError, match="not public|metadata service") as caught:
            await GuardedFetcher().get(f"https://{host}/latest/meta-data")
        assert not caught.value.temporary
        assert asked == []


@pytest.mark.parametrize("host", LOCAL_NAMES)
async def test_local_names_that_a_proxy_would_resolve_need_the_setting_for_private_networks(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting that permits this machine does not permit other hosts of its network."""

    async def refuse(call: Call) -> None:
        await call.answer(502)

    async with asyncio.timeout(LIMIT), raw_server(refuse) as proxy:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(
            AuthorizationError, match="not public; `allowPrivate` permits"
        ) as caught:
            await GuardedFetcher(allow_loopback=True).get(f"https://{host}/")
        assert not caught.value.temporary
        assert proxy.calls == []
        with pytest.raises(AuthorizationError, match="the proxy answered 502"):
            await GuardedFetcher(allow_private=True).get(f"https://{host}/")
        assert len(proxy.calls) == 1


@pytest.mark.parametrize("host", ["metadata.google.internal", "metadata", "instance-data"])
async def test_names_of_metadata_services_are_refused_even_if_private_addresses_are_allowed(
    host: str,
) -> None:
    fetcher = GuardedFetcher(allow_private=True, allow_loopback=True)
    with pytest.raises(AuthorizationError, match=f"{host} is the metadata service"):
        await fetcher.get(f"https://{host}/")


@pytest.mark.parametrize("host", SPELLINGS)
async def test_redirects_to_private_hosts_are_refused(host: str) -> None:
    async def redirect(call: Call) -> None:
        await call.answer(302, Location=f"https://{host}/latest")

    async with asyncio.timeout(LIMIT), raw_server(redirect) as served:
        fetcher = GuardedFetcher(allow_loopback=True)
        with pytest.raises(AuthorizationError):
            await fetcher.get(served.url)
        assert len(served.calls) == 1


async def test_cloud_metadata_addresses_are_refused_even_if_private_addresses_are_allowed() -> None:
    fetcher = GuardedFetcher(allow_private=True, allow_loopback=True)
    for host in ("169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "[::ffff:169.254.0.1]"):
        with pytest.raises(AuthorizationError, match="not public"):
            await fetcher.get(f"https://{host}/")


async def test_the_error_for_a_private_address_names_the_setting_that_permits_it() -> None:
    with pytest.raises(AuthorizationError, match="`allowPrivate` permits private networks"):
        await GuardedFetcher().get("https://10.0.0.1/")


@pytest.mark.attack(
    "a name whose first look-up is public and whose second is private (DNS rebinding)",
    "the address of the connected socket is checked, not the result of a look-up",
    "no request is sent",
)
def test_an_address_that_changes_between_lookup_and_connection_is_refused() -> None:
    answers = ["93.184.216.34", "127.0.0.1"]

    class Rebinding(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
            name = answers.pop(0) if host == "rebind.example" else host
            return await super().getaddrinfo(name, port, **options)

    with asyncio.Runner(loop_factory=Rebinding) as runner:
        runner.run(fetch_after_look_up())
    assert answers == []


async def fetch_after_look_up() -> None:
    async def accept(call: Call) -> None:
        await call.json({})

    async with asyncio.timeout(LIMIT), raw_server(accept) as served:
        # The first lookup returns a public address.
        found = await asyncio.get_running_loop().getaddrinfo("rebind.example", 443)
        assert is_public_address(found[0][4][0])
        with pytest.raises(AuthorizationError, match=r"127\.0\.0\.1 is not public"):
            await GuardedFetcher().get(f"https://rebind.example:{served.port}/")
        assert served.calls == []


class Resolver(asyncio.SelectorEventLoop):
    """An event loop with scripted addresses for one name, which records connections."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__()
        self._addresses = addresses
        self.connected: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        assert host == "name.example"
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 1))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in self._addresses
        ]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self.connected.append(address[0])
        raise OSError("refused")


def fetch_resolved(addresses: list[str], **options: bool) -> tuple[str, list[str]]:
    """Fetch from a name with these addresses; return the error and the addresses connected to."""

    async def fetch() -> tuple[str, list[str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Resolver)
        with pytest.raises(AuthorizationError) as caught:
            await GuardedFetcher(**options).get("https://name.example/")  # type: ignore[arg-type]
        return str(caught.value), loop.connected

    with asyncio.Runner(loop_factory=lambda: Resolver(addresses)) as runner:
        return runner.run(fetch())


@pytest.mark.attack(
    "a name whose addresses are in the local network",
    "all addresses of a name are checked before a connection is opened",
    "no connection is opened, so ports of the local network cannot be probed",
)
@pytest.mark.parametrize(
    "address",
    [
        *PRIVATE,
        "::1",
        "fe80::1%eth0",
        "fe80::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    ],
)
def test_no_connection_is_opened_to_an_address_that_is_not_public(address: str) -> None:
    error, connected = fetch_resolved([address, address])
    assert "is not public" in error
    assert connected == []


def test_only_public_addresses_of_a_host_name_are_connected_to() -> None:
    error, connected = fetch_resolved(["10.0.0.1", "8.8.8.8", "::1", "2001:4860:4860::8888"])
    assert "refused" in error
    assert connected == ["8.8.8.8", "2001:4860:4860::8888"]


def test_an_unspecified_address_does_not_count_as_this_machine() -> None:
    """The system connects `0.0.0.0` to this machine, so the address of the socket would be
    permitted.
    """
    error, connected = fetch_resolved(["0.0.0.0", "::"], allow_loopback=True)
    assert "is not public" in error
    assert connected == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_post_request_does_not_follow_redirects(status: int) -> None:
    async def redirect(call: Call) -> None:
        await call.answer(status, Location="/elsewhere")

    async with asyncio.timeout(LIMIT), raw_server(redirect) as served:
        fetcher = GuardedFetcher(allow_loopback=True)
        with pytest.raises(AuthorizationError, match="redirects of POST") as caught:
            await fetcher.post_form(served.url, {"refresh_token": "secret"})
        with pytest.raises(AuthorizationError, match="redirects of POST"):
            await fetcher.post_json(served.url, {"a": 1})
        assert not caught.value.temporary
        assert [call.path for call in served.calls] == ["/mcp", "/mcp"]


async def test_a_redirect_to_a_malformed_url_raises_an_error() -> None:
    async def redirect(call: Call) -> None:
        await call.answer(302, Location="https://[::1")

    async with asyncio.timeout(LIMIT), raw_server(redirect) as served:
        with pytest.raises(AuthorizationError, match="redirect is invalid"):
            await GuardedFetcher(allow_loopback=True).get(served.url)


async def test_redirects_count_towards_the_request_limit_of_a_discovery() -> None:
    async with scripted_provider() as provider:

        async def around(call: Call) -> None:
            number = int(call.path.partition("?")[2] or 0) + 1
            if number % 4:
                await call.answer(302, Location=f"/.well-known/oauth-protected-resource?{number}")
            else:
                await call.answer(404)

        provider.scripts["resource"] = around
        with pytest.raises(AuthorizationError, match="too many requests"):
            await discover(GuardedFetcher(allow_loopback=True), f"{provider.origin}/a/b", None)
        assert sum(provider.steps.values()) <= DISCOVERY_REQUESTS


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("step", ["resource", "metadata"])
async def test_discovery_fails_after_at_most_ten_seconds_if_the_server_does_not_respond(
    step: str,
) -> None:
    async with scripted_provider() as provider:
        provider.scripts[step] = hang
        begin = asyncio.get_running_loop().time()
        with pytest.raises(AuthorizationError, match="no response in time") as caught:
            await discover(GuardedFetcher(allow_loopback=True), provider.url, None)
        assert caught.value.temporary
        assert asyncio.get_running_loop().time() - begin <= DOCUMENT_TIMEOUT + 1


@pytest.mark.usefixtures("virtual_time")
async def test_discovery_fails_after_at_most_thirty_seconds_if_documents_arrive_slowly() -> None:
    async def slow(call: Call) -> None:
        await asyncio.sleep(9)
        await call.answer(404)

    async with asyncio.timeout(60), raw_server(slow) as served:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(AuthorizationError):
            places = [("resource_metadata", f"{served.url}/{number}") for number in range(5)]
            challenge = Challenge("bearer", tuple(places))
            await discover(GuardedFetcher(allow_loopback=True), served.url, challenge)
        assert asyncio.get_running_loop().time() - begin <= DISCOVERY_TIMEOUT + 1


async def test_a_compressed_document_is_limited_by_its_decompressed_size() -> None:
    bomb = gzip.compress(b'{"a": "' + b" " * (50 << 20) + b'"}')

    async def explode(call: Call) -> None:
        await call.answer(200, bomb, Content_Type="application/json", Content_Encoding="gzip")

    async with asyncio.timeout(LIMIT), raw_server(explode) as served:
        with pytest.raises(AuthorizationError):
            await GuardedFetcher(allow_loopback=True).get(served.url)


async def test_a_response_with_endless_headers_is_refused() -> None:
    async def endless(call: Call) -> None:
        await call.raw(b"HTTP/1.1 200 OK\r\n")
        while True:
            await call.raw(b"X-More: " + b"x" * 60_000 + b"\r\n")

    async with asyncio.timeout(LIMIT), raw_server(endless) as served:
        with pytest.raises(AuthorizationError):
            await GuardedFetcher(allow_loopback=True).get(served.url)


async def test_configured_server_headers_are_not_sent_to_the_authorization_server() -> None:
    from tests.support.scripted_provider import request

    async with scripted_provider() as provider:
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        for step, call in provider.calls:
            assert ("x-configured" in call.headers) is (step == "mcp")
            if step != "mcp":
                assert "authorization" not in call.headers
                assert "access-" not in call.body.decode()
