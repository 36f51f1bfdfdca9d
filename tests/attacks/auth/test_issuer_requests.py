"""Requests of a protected server to its authorization servers, which hang, redirect or lead into
the local network. All requests go through `ServerAuth`.
"""

import asyncio
import logging
import socket
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.auth.guarded_fetch import DOCUMENT_TIMEOUT, MAX_DOCUMENT, _is_private
from fairlead.auth.server import access_control
from fairlead.auth.server.server_auth import Introspection, ServerAuth, TokenIssuer
from fairlead.protocol.identity.token_principal import TokenPrincipal
from tests.support.http_server import Answer, Web, serving
from tests.support.scripted_http_server import Call, raw_server
from tests.support.scripted_provider import hang
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

LIMIT = 20.0
BASE = "https://mcp.example"
HERE = f"{BASE}/mcp"
PLACES = pytest.mark.parametrize("place", ["keys", "introspection"])
MINT = TokenMint()


def asking(place: str, url: str, **settings: Any) -> ServerAuth:
    """Return settings with which a token needs one request to this URL."""
    settings = {"public_url": BASE, **settings}
    if place == "keys":
        return ServerAuth(issuer=TokenIssuer(MINT.issuer, jwks_uri=url), **settings)
    asked = Introspection(url=url, client_id="c", client_secret="introspection-secret")
    return ServerAuth(issuer=MINT.issuer, introspection=asked, **settings)


async def outcome(auth: ServerAuth) -> int:
    """Verify a token with a new access control and return the status of the response."""
    access = auth.open_access()
    given = {b"authorization": f"Bearer {MINT.token(HERE)}".encode()}
    try:
        found = await access.endpoint("/mcp").verify(given, "POST", None)
    finally:
        await access.close()
    return 200 if isinstance(found, TokenPrincipal) else found.status  # type: ignore[union-attr]


# Addresses


@pytest.mark.attack(
    "a key set or an introspection endpoint of a server's settings at a private address",
    "`private_issuers`; link-local addresses and metadata services are always refused",
    "503, and no request is sent",
)
@PLACES
@pytest.mark.parametrize("private_issuers", [False, True])
@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "2852039166", "0.0.0.0"])
async def test_no_request_is_sent_to_a_cloud_metadata_service(
    host: str, private_issuers: bool, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    auth = asking(place, f"https://{host}/latest", private_issuers=private_issuers)
    async with asyncio.timeout(LIMIT):
        assert await outcome(auth) == 503
    assert "is not public" in caplog.text


@PLACES
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.1", "[::ffff:192.168.0.1]"])
async def test_a_server_refuses_issuers_with_addresses_in_its_own_network(
    host: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(LIMIT):
        assert await outcome(asking(place, f"https://{host}/x")) == 503
    assert "is not public" in caplog.text


@PLACES
@pytest.mark.parametrize("private_issuers", [False, True])
async def test_an_issuer_on_this_machine_needs_the_setting_private_issuers(
    private_issuers: bool, place: str
) -> None:
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        issuer.published = MINT.published
        issuer.introspected = {"active": True, "sub": "alice", "aud": HERE}
        path = "/jwks" if place == "keys" else "/introspect"
        auth = asking(place, issuer.issuer + path, private_issuers=private_issuers)
        assert await outcome(auth) == (200 if private_issuers else 503)
        assert issuer.counts[path] == int(private_issuers)


def private_address() -> str | None:
    """Return an address of this machine in a private network, if it has one."""
    for family, target in ((socket.AF_INET, "10.255.255.1"), (socket.AF_INET6, "fd00::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))  # selects a source address; sends nothing
            except OSError:
                continue
            address = str(probe.getsockname()[0])
        if _is_private(address):
            return address
    return None


@PLACES
@pytest.mark.parametrize("private_issuers", [False, True])
async def test_an_issuer_in_a_private_network_needs_the_setting_private_issuers(
    private_issuers: bool, place: str
) -> None:
    """The listener has no certificate; the bytes that it receives show that it was asked."""
    address = private_address()
    if address is None:
        pytest.skip("needs an address in a private network")
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(listen, address, 0)
    host = f"[{address}]" if ":" in address else address
    async with server, asyncio.timeout(LIMIT):
        url = f"https://{host}:{server.sockets[0].getsockname()[1]}/x"
        assert await outcome(asking(place, url, private_issuers=private_issuers)) == 503
    assert bool(heard and heard[0]) is private_issuers


@PLACES
def test_a_name_that_resolves_to_this_machine_is_refused(place: str) -> None:
    class Rebinding(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
            name = "127.0.0.1" if host == "rebind.example" else host
            return await super().getaddrinfo(name, port, **options)

    async def ask() -> None:
        async with raw_server(hang) as served, asyncio.timeout(LIMIT):
            url = f"https://rebind.example:{served.port}/x"
            assert await outcome(asking(place, url)) == 503
            assert served.calls == []

    with asyncio.Runner(loop_factory=Rebinding) as runner:
        runner.run(ask())


# Responses


@PLACES
async def test_a_redirect_into_the_local_network_is_refused(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An introspection request is not redirected anywhere: it contains a secret."""

    async def redirect(call: Call) -> None:
        await call.answer(307, Location="https://169.254.169.254/latest")

    async with asyncio.timeout(LIMIT), raw_server(redirect) as served:
        auth = asking(place, served.url, private_issuers=True)
        assert await outcome(auth) == 503
        assert len(served.calls) == 1
    why = "is not public" if place == "keys" else "redirects of POST requests are not followed"
    assert why in caplog.text
    assert "introspection-secret" not in caplog.text


@PLACES
async def test_a_response_of_an_issuer_over_the_size_limit_is_refused(place: str) -> None:
    async def huge(call: Call) -> None:
        await call.json({"active": True, "keys": [], "padding": "x" * MAX_DOCUMENT})

    async with asyncio.timeout(LIMIT), raw_server(huge) as served:
        assert await outcome(asking(place, served.url, private_issuers=True)) == 503
        assert len(served.calls) == 1


@pytest.mark.usefixtures("virtual_time")
@PLACES
async def test_an_issuer_that_does_not_respond_is_awaited_for_ten_seconds_at_most(
    place: str,
) -> None:
    async with raw_server(hang) as served:
        begin = asyncio.get_running_loop().time()
        assert await outcome(asking(place, served.url, private_issuers=True)) == 503
        assert asyncio.get_running_loop().time() - begin <= DOCUMENT_TIMEOUT + 1


# Other requests


async def whose(web: Web, token: str) -> Answer:
    call = {"name": "whoami", "arguments": {}}
    return await web.stateless("tools/call", call, {"Authorization": f"Bearer {token}"})


def whoami_server(*issuers: RunningIssuer) -> MCPServer:
    auth = ServerAuth(issuer=[one.issuer for one in issuers], tokens={"static": "ci"})
    server = MCPServer("whoami", auth=auth, rate_limit_rate=0)

    @server.tool()
    async def whoami(ctx: Context) -> str:
        return ctx.subject or str(ctx.principal)

    return server


@pytest.mark.attack(
    "tokens of an issuer whose key set never arrives",
    "only requests with tokens of this issuer wait for its keys",
    "requests with other tokens are answered meanwhile",
)
@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_key_set_that_hangs_delays_only_the_tokens_of_its_issuer(fast_path: bool) -> None:
    """No request waits for keys that its own token does not need."""
    async with running_issuer() as slow, running_issuer() as other, asyncio.timeout(LIMIT):
        slow.gate = asyncio.Event()
        async with serving(whoami_server(slow, other), fast_path=fast_path) as web:
            waiting = [
                asyncio.create_task(whose(web, slow.token(web.url, sub=f"user{number}")))
                for number in range(3)
            ]
            await slow.requested("/jwks")
            for _ in range(3):
                assert (await whose(web, "static")).text == "ci"
                assert (await whose(web, other.token(web.url, sub="bob"))).text == "bob"
            assert (await whose(web, "unknown")).status == 401
            assert not any(task.done() for task in waiting)
            slow.gate.set()
            assert [(await task).text for task in waiting] == ["user0", "user1", "user2"]
        assert slow.counts["/jwks"] == 1


# Revocation


@pytest.mark.covers("AUT-06")
async def test_an_introspected_token_is_used_for_sixty_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`remember` may shorten this time; a longer one would delay revocations."""
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        issuer.introspected = {"active": True, "sub": "alice", "aud": HERE}
        url = f"{issuer.issuer}/introspect"
        auth = asking("introspection", url, private_issuers=True, remember=3600.0)
        access = auth.open_access().endpoint("/mcp")
        given = {b"authorization": b"Bearer opaque"}
        assert isinstance(await access.verify(given, "POST", None), TokenPrincipal)
        issuer.introspected = {"active": False}
        now = access_control.time.time()
        monkeypatch.setattr(access_control.time, "time", lambda: now + 50)
        assert access.verify_now(given, "POST", None) is not None
        monkeypatch.setattr(access_control.time, "time", lambda: now + 61)
        assert access.verify_now(given, "POST", None) is None
        found = await access.verify(given, "POST", None)
        assert found.status == 401  # type: ignore[union-attr]
        assert len(issuer.asked) == 2


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="fairlead.auth")
