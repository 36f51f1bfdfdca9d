"""Many unknown tokens at once: a bounded queue for each authorization server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fairlead.auth.guarded_fetch import FetchedDocument, GuardedFetcher
from fairlead.auth.server import access_control, pending_tokens, token_verifiers
from fairlead.auth.server.access_control import EndpointAccess
from fairlead.auth.server.server_auth import Introspection, ServerAuth, TokenIssuer
from fairlead.auth.server.token_claims import BadToken, audience_forms
from fairlead.auth.server.token_verifiers import FunctionVerifier, IntrospectionVerifier
from fairlead.errors import AuthorizationError
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

BASE = "http://127.0.0.1:1"
HERE = f"{BASE}/mcp"
LIMIT = 20.0


async def status(access: EndpointAccess, token: str) -> int:
    headers = {b"authorization": f"Bearer {token}".encode()}
    async with asyncio.timeout(LIMIT):
        found = await access.verify(headers, "POST", None)
    return found.status if isinstance(found, RequestRefusal) else 200


async def statuses(access: EndpointAccess, *tokens: str) -> list[int]:
    return [*await asyncio.gather(*(status(access, token) for token in tokens))]


@contextlib.asynccontextmanager
async def introspecting(**settings: Any) -> AsyncIterator[tuple[EndpointAccess, RunningIssuer]]:
    async with running_issuer() as issuer:
        asked = Introspection(url=f"{issuer.issuer}/introspect", client_id="a", client_secret="s")
        auth = ServerAuth(issuer=issuer.issuer, introspection=asked, public_url=BASE, **settings)
        yield auth.open_access().endpoint("/mcp"), issuer


@pytest.mark.covers("AUT-06")
async def test_two_hundred_simultaneous_new_tokens_are_all_introspected() -> None:
    async with introspecting() as (access, issuer):
        issuer.introspected = {"active": True, "sub": "alice", "aud": HERE}
        found = await statuses(access, *(f"t{number}" for number in range(200)))
        assert (found, len(issuer.asked)) == ([200] * 200, 200)


class HeldFetcher(GuardedFetcher):
    """A fetcher whose requests wait for an event; it counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.running = self.most = 0
        self.full = asyncio.Event()  # set once as many requests are sent as are allowed

    async def post_form(self, url: str, *args: Any, **options: Any) -> FetchedDocument:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running == token_verifiers.MAX_ASKED:
            self.full.set()
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return FetchedDocument(url, 200, {}, {"active": True, "sub": "a", "aud": HERE})


def introspection(fetcher: GuardedFetcher) -> IntrospectionVerifier:
    return IntrospectionVerifier("https://as.example/i", fetcher, client_id="c", client_secret="s")


async def outcomes(verifier: Any, count: int, release: asyncio.Event) -> list[Any]:
    """Verify this many tokens at once; those that have to wait are released afterwards."""
    audiences = audience_forms([HERE])
    tasks = [asyncio.ensure_future(verifier.verify(str(n), audiences)) for n in range(count)]
    async with asyncio.timeout(LIMIT):
        # The tokens beyond the limit are refused while the others wait.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        release.set()
        return [*await asyncio.gather(*tasks, return_exceptions=True)]


async def test_the_number_of_tokens_that_wait_for_introspection_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_tokens, "MAX_PENDING", 100)
    fetcher = HeldFetcher()
    found = await outcomes(introspection(fetcher), 120, fetcher.gate)
    failed = [one for one in found if isinstance(one, AuthorizationError)]
    assert (len(failed), fetcher.most) == (20, token_verifiers.MAX_ASKED)
    assert all(one.temporary for one in failed)


async def test_a_token_waits_for_its_introspection_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_verifiers, "QUEUE_TIMEOUT", 0.05)
    fetcher = HeldFetcher()
    found = await outcomes(introspection(fetcher), token_verifiers.MAX_ASKED + 5, fetcher.gate)
    failed = [one for one in found if isinstance(one, AuthorizationError)]
    assert (len(failed), {one.temporary for one in failed}) == (5, {True})


async def test_the_number_of_tokens_that_wait_for_the_verify_function_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_tokens, "MAX_PENDING", 10)
    gate = asyncio.Event()

    async def verify(token: str) -> str:
        await gate.wait()
        return "bot"

    found = await outcomes(FunctionVerifier(verify), 15, gate)
    assert sum(isinstance(one, AuthorizationError) for one in found) == 5


@pytest.mark.covers("AUT-06")
async def test_tokens_that_wait_for_one_issuer_do_not_delay_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_tokens, "MAX_PENDING", 20)
    async with running_issuer() as slow, running_issuer() as quick:
        slow.gate = asyncio.Event()
        named = TokenMint("https://named.example")
        issuers = [slow.issuer, quick.issuer, TokenIssuer(named.issuer, jwks=named.jwks)]
        server = ServerAuth(issuer=issuers, public_url=BASE).open_access()
        access = server.endpoint("/mcp")
        tokens = [slow.token(HERE, sub=f"user{number}") for number in range(30)]
        waiting = [asyncio.ensure_future(status(access, token)) for token in tokens]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        others = [quick.token(HERE), named.token(HERE), "unknown.token.here"]
        assert await statuses(access, *others) == [200, 200, 401]
        slow.gate.set()
        found = await asyncio.gather(*waiting)
        assert (found.count(200), found.count(503)) == (20, 10)
        await server.close()


async def test_a_refused_token_is_not_introspected_again_within_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = access_control.time.time()
    async with introspecting() as (access, issuer):
        assert await statuses(access, *["bad"] * 10) == [401] * 10
        assert await status(access, "bad") == 401
        issuer.introspected = {"active": True, "sub": "alice", "aud": "https://other.example"}
        assert [await status(access, "foreign") for _ in range(3)] == [401] * 3
        assert len(issuer.asked) == 2
        later = now + token_verifiers.REFUSED_AGE + 1
        monkeypatch.setattr(access_control.time, "time", lambda: later)
        issuer.introspected = {"active": True, "sub": "alice", "aud": HERE}
        assert await status(access, "bad") == 200


async def test_a_remembered_refusal_is_forgotten_with_the_rules_that_caused_it() -> None:
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        issuer.introspected = {"active": True, "sub": "alice", "aud": "api://notes"}
        asked = Introspection(
            url=f"{issuer.issuer}/introspect", client_id="a", client_secret="secret"
        )
        before = ServerAuth(
            issuer=issuer.issuer, introspection=asked, public_url=BASE, private_issuers=True
        )
        server = before.open_access()
        access = server.endpoint("/mcp")
        assert await statuses(access, "opaque", "opaque") == [401, 401]
        replace(before, audience="api://notes").change_access(server, before)
        assert await status(access, "opaque") == 200
        await server.close()


async def test_the_number_of_remembered_refusals_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access_control, "MAX_REFUSED", 10)
    async with introspecting() as (access, issuer):
        for number in range(15):
            assert await status(access, f"t{number}") == 401
        assert await status(access, "t14") == 401
        assert len(issuer.asked) == 15
        assert await status(access, "t0") == 401
        assert len(issuer.asked) == 16


async def test_refusals_by_the_verify_function_are_not_remembered() -> None:
    allowed: set[str] = set()

    async def verify(token: str) -> str | None:
        return "bot" if token in allowed else None

    access = ServerAuth(verify=verify, public_url=BASE).open_access().endpoint("/mcp")
    assert await status(access, "new") == 401
    allowed.add("new")
    assert await status(access, "new") == 200
    assert BadToken("x").until == 0.0
