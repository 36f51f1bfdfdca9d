"""Remembered verdicts, and applications that are mounted in another one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import aiohttp
import pytest
import uvicorn

from fairlead import Context, MCPServer
from fairlead.auth.challenge import parse_challenges
from fairlead.auth.dpop import DpopKey
from fairlead.auth.server import access_control
from fairlead.auth.server.access_control import EndpointAccess
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from fairlead.protocol.caller import Principal
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.gateway_servers import free_port
from tests.support.http_server import Web, stateless
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

BASE = "https://mcp.example"
LIMIT = 20.0


def header(token: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {token}".encode()}


async def admitted(access: EndpointAccess, token: str) -> Principal:
    found = await access.verify(header(token), "POST", None)
    assert not isinstance(found, RequestRefusal), found.message
    return found


async def test_expired_verdicts_on_tokens_are_dropped_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access_control, "MAX_VERDICTS", 20)
    mint = TokenMint()
    issuer = TokenIssuer(mint.issuer, jwks=mint.jwks)
    access = ServerAuth(issuer=issuer, public_url=BASE).open_access().endpoint("/mcp")
    tokens = [mint.token(f"{BASE}/mcp", sub=f"user{n}") for n in range(45)]
    for token in tokens[:20]:
        await admitted(access, token)
    assert len(access.verdicts) == 20
    # All are valid, so the oldest tenth is dropped.
    await admitted(access, tokens[20])
    assert len(access.verdicts) == 19
    known = [sha256(token.encode()).digest() in access.verdicts for token in tokens[:21]]
    assert known == [False] * 2 + [True] * 19
    await admitted(access, tokens[21])

    now = access_control.time.time()
    later = now + 1000  # after the end of all tokens so far
    monkeypatch.setattr(access_control.time, "time", lambda: later)
    assert access.verify_now(header(tokens[20]), "POST", None) is None
    fresh = mint.token(f"{BASE}/mcp", sub="fresh", iat=int(now), exp=int(later) + 600)
    await admitted(access, fresh)
    assert len(access.verdicts) == 1


async def test_a_token_whose_verdict_was_dropped_is_verified_again() -> None:
    mint = TokenMint()
    issuer = TokenIssuer(mint.issuer, jwks=mint.jwks)
    access = ServerAuth(issuer=issuer, public_url=BASE).open_access().endpoint("/mcp")
    token = mint.token(f"{BASE}/mcp")
    first = await admitted(access, token)
    for _ in range(2):
        access.verdicts.clear()
        assert await access.verify(header(token), "POST", None) == first
        access.verdicts.clear()
        assert access.verify_now(header(token), "POST", None) == first


async def test_a_token_is_verified_without_waiting_unless_keys_must_be_fetched() -> None:
    async with running_issuer() as issuer:
        auth = ServerAuth(issuer=issuer.issuer, public_url=BASE, private_issuers=True)
        server = auth.open_access()
        access, audience = server.endpoint("/mcp"), f"{BASE}/mcp"
        unknown = header(issuer.token(audience, header={"kid": "other"}))
        foreign = issuer.token(audience, key=TokenMint().key)
        for token in (issuer.token("https://else.example"), issuer.token(audience, exp=1)):
            assert status(access.verify_now(header(token), "POST", None)) == 401
        assert issuer.counts["/jwks"] == 0
        assert access.verify_now(unknown, "POST", None) is None  # no keys yet
        assert status(await access.verify(unknown, "POST", None)) == 401
        # The keys were just fetched, so an unknown key causes no further fetch.
        for given in (unknown, header(foreign)):
            assert status(access.verify_now(given, "POST", None)) == 401
        assert isinstance(
            access.verify_now(header(issuer.token(audience)), "POST", None), TokenPrincipal
        )
        bound = issuer.bound_token(audience, DpopKey())
        assert access.verify_now(header(bound), "POST", None) is None
        assert issuer.counts["/jwks"] == 1
        await server.close()


async def test_rules_that_change_during_the_verification_of_a_token_apply_to_it() -> None:
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        issuer.gate = asyncio.Event()
        before = ServerAuth(issuer=issuer.issuer, public_url=BASE, private_issuers=True)
        server = before.open_access()
        access = server.endpoint("/mcp")
        waiting = asyncio.create_task(
            access.verify(header(issuer.token(f"{BASE}/mcp")), "POST", None)
        )
        await issuer.requested("/jwks")
        replace(before, audience="https://other.example").change_access(server, before)
        issuer.gate.set()
        assert status(await waiting) == 401
        await server.close()


def status(found: Principal | RequestRefusal | None) -> int | None:
    return found.status if isinstance(found, RequestRefusal) else None


@pytest.mark.parametrize("public", [f"{BASE}/", f"{BASE}//", BASE])
async def test_slashes_at_the_end_of_the_public_url_are_ignored(public: str) -> None:
    mint = TokenMint()
    issuer = TokenIssuer(mint.issuer, jwks=mint.jwks)
    server = ServerAuth(issuer=issuer, public_url=public).open_access()
    access = server.endpoint("/mcp")
    for audience in (f"{BASE}/mcp", f"{BASE}/mcp/"):
        await admitted(access, mint.token(audience))
    assert access.document("/mcp")["resource"] == f"{BASE}/mcp"


@contextlib.asynccontextmanager
async def mounted(**settings: Any) -> AsyncIterator[tuple[Web, RunningIssuer]]:
    """Serve a protected server below `/shelf` of a Starlette application."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    port = free_port()
    async with running_issuer() as issuer:
        public = f"http://127.0.0.1:{port}/shelf"
        auth = ServerAuth(issuer=issuer.issuer, public_url=public, **settings)
        server = MCPServer("shelf", auth=auth)

        @server.tool()
        async def whoami(ctx: Context) -> str:
            return str(ctx.subject)

        shelf = server.create_http_app()

        @contextlib.asynccontextmanager
        async def lifespan(site: Starlette) -> AsyncIterator[None]:
            async with shelf.running():
                yield

        site = Starlette(routes=[Mount("/shelf", shelf)], lifespan=lifespan)
        runner = uvicorn.Server(uvicorn.Config(site, port=port, log_level="warning"))
        task = asyncio.create_task(runner.serve())
        async with asyncio.timeout(LIMIT), aiohttp.ClientSession() as http:
            while not runner.started:
                await asyncio.sleep(0.01)
            yield Web(f"{public}/mcp", http), issuer
        runner.should_exit = True
        await task


CALL = {"name": "whoami", "arguments": {}}


@pytest.mark.covers("AUT-06")
async def test_a_mounted_application_publishes_and_expects_its_public_url() -> None:
    async with mounted() as (web, issuer):
        refused = await web.stateless("tools/call", CALL)
        assert refused.status == 401
        (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
        metadata = str(challenge.get("resource_metadata"))
        found = await web.get(metadata)
        assert (found.status, found.json["resource"]) == (200, web.url)
        token = issuer.token(web.url)
        given = {"Authorization": f"Bearer {token}"}
        assert (await web.stateless("tools/call", CALL, given)).text == "alice"
        # A token for the same path without the prefix belongs to another server.
        other = issuer.token(web.url.replace("/shelf", ""))
        given = {"Authorization": f"Bearer {other}"}
        assert (await web.stateless("tools/call", CALL, given)).status == 401
        async with web.http.ws_connect(
            web.url.replace("/mcp", "/ws"), headers={"Authorization": f"Bearer {token}"}
        ) as socket:
            await socket.send_json(stateless("tools/call", CALL)[0])
            answer = await socket.receive_json()
            assert answer["result"]["content"][0]["text"] == "alice"


async def test_proofs_for_a_mounted_application_contain_its_public_url() -> None:
    async with mounted(dpop="required") as (web, issuer):
        key = DpopKey()
        token = issuer.bound_token(web.url, key)

        async def status(url: str) -> int:
            proof = key.proof("POST", url, access_token=token)
            given = {"Authorization": f"DPoP {token}", "DPoP": proof}
            return (await web.stateless("tools/call", CALL, given)).status

        assert await status(web.url) == 200
        assert await status(web.url.replace("/shelf", "")) == 401
