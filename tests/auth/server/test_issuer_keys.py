"""Keys of issuers: fetches, renewals, outages and withdrawn keys."""

import asyncio
import base64
import json
import time

import pytest

from fairlead.auth.guarded_fetch import GuardedFetcher
from fairlead.auth.server import issuer_keys
from fairlead.auth.server.issuer_keys import (
    COOL_DOWN,
    IssuerKeys,
    KeyMayBeNew,
    cache_seconds,
)
from fairlead.auth.server.server_auth import Introspection, ServerAuth
from fairlead.errors import AuthorizationError
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.token_issuer import RunningIssuer, running_issuer

BASE = "http://127.0.0.1:1"
HERE = f"{BASE}/mcp"


def keys_of(issuer: RunningIssuer) -> IssuerKeys:
    return IssuerKeys(issuer.issuer, GuardedFetcher(allow_loopback=True))


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {token}".encode()}


@pytest.mark.parametrize(
    ("control", "seconds"),
    [
        ("max-age=3600", 3600),
        ("public, Max-Age=1", 300),
        ("max-age=999999999", 86_400),
        ("no-store, max-age=3600", 300),
        ("x-max-age=3600", 300),
        ("", 300),
    ],
)
def test_keys_are_cached_for_their_max_age_but_at_least_five_minutes_and_at_most_a_day(
    control: str, seconds: float
) -> None:
    assert cache_seconds({"Cache-Control": control}) == seconds


async def test_concurrent_tokens_share_one_fetch_of_the_keys() -> None:
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        found = await asyncio.gather(*(keys.find("first", "ES256") for _ in range(50)))
        assert all(len(one) == 1 for one in found)
        assert issuer.counts["/jwks"] == 1


async def test_tokens_with_unknown_keys_cause_at_most_one_fetch_per_cool_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokens with unknown key ids must not cause one fetch each."""
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        for number in range(100):
            assert not await keys.find(f"unknown-{number}", "ES256")
        assert issuer.counts["/jwks"] == 1
        issuer.rotate("second")
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr("fairlead.auth.server.issuer_keys._now", lambda: now + COOL_DOWN + 1)
        assert len(await keys.find("second", "ES256")) == 1
        assert not await keys.find("third", "ES256")
        assert issuer.counts["/jwks"] == 2


async def test_a_token_issued_after_the_last_fetch_of_keys_gets_503_with_retry_after(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A 401 would make clients discard a good login after the issuer rotated its keys."""
    async with running_issuer() as issuer:
        access = ServerAuth(issuer=issuer.issuer, public_url=BASE).open_access().endpoint("/mcp")

        async def result(token: str) -> str:
            found = await access.verify(bearer(token), "POST", None)
            if isinstance(found, RequestRefusal):
                return " ".join([str(found.status), *_retry_after(found)])
            return str(getattr(found, "subject", found))

        old, began = issuer.token(HERE), time.time()
        assert await result(old) == "alice"
        issuer.rotate("second")
        newer = issuer.token(HERE, iat=began + 5)
        status, seconds = (await result(newer)).split()
        assert (status, 25 <= int(seconds) <= 30) == ("503", True)
        # A flood of such tokens causes neither fetches nor more log lines; known keys still work.
        forged = [issuer.token(HERE, header={"kid": f"k{n}"}, iat=began + 5) for n in range(50)]
        assert {(await result(token)).split()[0] for token in forged} == {"503"}
        assert await result(old) == "alice"
        assert issuer.counts["/jwks"] == 1
        assert caplog.text.count("can be fetched again in") == 1
        # The set was fetched after this token was issued, so its key does not exist.
        assert await result(issuer.token(HERE, header={"kid": "third"}, iat=began - 5)) == "401"
        assert await result(issuer.token(HERE, header={"kid": "third"}, iat=None)) == "401"

        _advance(monkeypatch, COOL_DOWN + 1)
        assert await result(newer) == "alice"
        assert await result(forged[0]) == "503 30"
        assert issuer.counts["/jwks"] == 2


async def test_the_message_of_a_503_names_the_seconds_of_its_retry_after_header() -> None:
    async with running_issuer() as issuer:
        access = ServerAuth(issuer=issuer.issuer, public_url=BASE).open_access().endpoint("/mcp")
        assert not isinstance(
            await access.verify(bearer(issuer.token(HERE)), "POST", None), RequestRefusal
        )
        issuer.rotate("second")
        newer = issuer.token(HERE, iat=time.time() + 1)
        refusal = await access.verify(bearer(newer), "POST", None)
        assert isinstance(refusal, RequestRefusal)
        [seconds] = _retry_after(refusal)
        assert refusal.message == (
            f"The access token cannot be verified now; try again in {seconds} s"
        )


async def test_tokens_with_unknown_keys_get_no_401_while_the_issuer_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        await keys.find("first", "ES256")
        issuer.rotate("second")
        issuer.status = 500
        _advance(monkeypatch, COOL_DOWN + 1)
        with pytest.raises(KeyMayBeNew, match="can be fetched again in 30 s"):
            await keys.find("second", "ES256", time.time() + 1)
        issuer.status = 200
        _advance(monkeypatch, COOL_DOWN + 1)
        assert len(await keys.find("second", "ES256", time.time() + 1)) == 1


async def test_a_token_is_not_refused_because_of_keys_fetched_before_it_was_issued() -> None:
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        issuer.gate = asyncio.Event()
        first = asyncio.create_task(keys.find("first", "ES256"))
        await issuer.requested("/jwks")
        later = asyncio.create_task(keys.find("second", "ES256", time.time() + 1))
        issuer.gate.set()
        assert len(await first) == 1
        with pytest.raises(KeyMayBeNew):
            await later


def _advance(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the next reads of the clock return a later time."""
    now = issuer_keys._now() + seconds
    monkeypatch.setattr("fairlead.auth.server.issuer_keys._now", lambda: now)


def _retry_after(refusal: RequestRefusal) -> list[str]:
    return [value.decode() for name, value in refusal.headers if name == b"retry-after"]


async def test_known_keys_are_used_while_the_issuer_is_unavailable() -> None:
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        await keys.find("first", "ES256")
        issuer.status = 500
        keys._due = 0.0
        assert len(await keys.find("first", "ES256")) == 1
        await keys._fetch()
        assert len(await keys.find("first", "ES256")) == 1


async def test_a_too_large_key_set_is_refused_and_the_known_keys_stay_in_use() -> None:
    """More than a megabyte of keys, and then nothing but keys of 16,384 bits."""
    async with running_issuer() as issuer:
        keys = keys_of(issuer)
        await keys.find("first", "ES256")
        good = issuer.published
        issuer.published = [{**good[0], "kid": f"k{number}"} for number in range(8000)]
        assert len(json.dumps(issuer.jwks)) > 1_000_000
        await keys._fetch()
        assert len(await keys.find("first", "ES256")) == 1
        number = base64.urlsafe_b64encode(b"\xff" * 2048).decode().rstrip("=")
        issuer.published = [{"kty": "RSA", "n": number, "e": "AQAB", "kid": "large"}, *good]
        await keys._fetch()
        assert not await keys.find("large", "RS256")
        assert len(await keys.find("first", "ES256")) == 1


async def test_tokens_get_503_if_the_first_fetch_of_keys_fails() -> None:
    async with running_issuer() as issuer:
        issuer.status = 500
        access = ServerAuth(issuer=issuer.issuer, public_url=BASE).open_access().endpoint("/mcp")
        for _ in range(3):
            found = await access.verify(bearer(issuer.token(HERE)), "POST", None)
            assert isinstance(found, RequestRefusal)
            assert found.status == 503
        assert issuer.counts["/.well-known/oauth-authorization-server"] == 1


async def test_keys_are_not_fetched_from_metadata_of_another_issuer() -> None:
    async with running_issuer() as issuer:
        keys = IssuerKeys(
            issuer.issuer.replace("127.0.0.1", "localhost"), GuardedFetcher(allow_loopback=True)
        )
        with pytest.raises(AuthorizationError):
            await keys.find("first", "ES256")
        assert issuer.counts["/jwks"] == 0


async def test_a_known_token_does_not_wait_for_keys_and_is_refused_without_its_key() -> None:
    """A request with a known token starts a renewal but does not wait for it; a withdrawn key ends
    the verdicts that it signed.
    """
    async with running_issuer() as issuer:
        server = ServerAuth(issuer=issuer.issuer, public_url=BASE).open_access()
        access = server.endpoint("/mcp")
        given = bearer(issuer.token(HERE))
        assert isinstance(await access.verify(given, "POST", None), TokenPrincipal)
        keys: IssuerKeys = server.rules.verifier._issuers[issuer.issuer]  # type: ignore[union-attr]
        issuer.gate = asyncio.Event()
        issuer.rotate("second")
        keys._due = 0.0
        assert isinstance(access.verify_now(given, "POST", None), TokenPrincipal)
        assert keys._fetching is not None
        issuer.gate.set()
        async with asyncio.timeout(10):
            await keys._fetching
        assert isinstance(access.verify_now(given, "POST", None), RequestRefusal)
        found = await access.verify(given, "POST", None)
        assert isinstance(found, RequestRefusal)
        assert found.status == 401
        await server.close()


async def test_a_token_that_is_not_a_jwt_is_introspected() -> None:
    async with running_issuer() as issuer:
        asked = Introspection(url=f"{issuer.issuer}/introspect", client_id="a:b", client_secret="s")
        auth = ServerAuth(issuer=issuer.issuer, introspection=asked, public_url=BASE)
        access = auth.open_access().endpoint("/mcp")

        async def status(token: str) -> int:
            found = await access.verify(bearer(token), "POST", None)
            return found.status if isinstance(found, RequestRefusal) else 200

        assert await status("inactive") == 401
        issuer.introspected = {"active": True, "sub": "alice", "aud": HERE, "scope": "a"}
        assert await status("t1") == 200
        assert await status("t1") == 200
        assert len(issuer.asked) == 2, "the verdict is remembered"
        assert issuer.asked[1]["token"] == "t1"
        assert issuer.asked[1]["authorization"] == "Basic YSUzQWI6cw=="
        for wrong in (
            {"active": True, "sub": "alice"},
            {"active": True, "sub": "alice", "aud": BASE},
            {"active": True, "sub": "alice", "aud": HERE, "iss": "https://other.example"},
            {"active": True, "sub": "alice", "aud": HERE, "exp": time.time() - 60},
            {"active": True, "aud": HERE},
        ):
            issuer.introspected = wrong
            assert await status(f"t{len(issuer.asked)}") == 401, wrong
        issuer.introspected = {"active": "yes"}
        assert await status("t90") == 503
        issuer.status = 500
        assert await status("t91") == 503


@pytest.mark.slow
async def test_thousands_of_tokens_with_unknown_keys_cause_one_fetch() -> None:
    """10,000 tokens with different key ids within seconds."""
    async with running_issuer() as issuer:
        access = ServerAuth(issuer=issuer.issuer, public_url=BASE).open_access().endpoint("/mcp")
        token = issuer.token(HERE)
        claims, seal = token.split(".")[1:]

        def forged(number: int) -> str:
            header = json.dumps({"alg": "ES256", "kid": f"k{number}"}).encode()
            head = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
            return f"{head}.{claims}.{seal}"

        began = time.monotonic()
        for start in range(0, 10_000, 500):
            found = await asyncio.gather(
                *(
                    access.verify(bearer(forged(number)), "POST", None)
                    for number in range(start, start + 500)
                )
            )
            assert all(isinstance(one, RequestRefusal) and one.status == 401 for one in found)
        assert issuer.counts["/jwks"] == 1
        assert time.monotonic() - began < 10
        assert isinstance(await access.verify(bearer(token), "POST", None), TokenPrincipal)
