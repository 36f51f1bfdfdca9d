"""The watch on the token of an open stream."""

import asyncio
import time
from collections.abc import Callable

import pytest

from fairlead.errors import AuthorizationError
from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.protocol.identity.scoped_name import ScopedName
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server import token_expiry
from fairlead.transport.http.server.token_expiry import expiring

LIMIT = 10.0


class Standing:
    """The verdict on a token, which tests withdraw."""

    def __init__(self) -> None:
        self.until = time.time() + 600
        self.current: TokenPrincipal | Exception | None = ann()
        self.checks = 0
        self.watchers: list[Callable[[], object]] = []

    def due(self) -> float:
        return self.until

    async def check(self) -> TokenPrincipal | None:
        self.checks += 1
        if isinstance(self.current, Exception):
            raise self.current
        self.until = time.time() + 600
        return self.current

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        self.watchers.append(changed)
        return lambda: self.watchers.remove(changed)

    def withdraw(self) -> None:
        self.until = 0.0
        for changed in self.watchers:
            changed()


def ann(expires: float | None = None, standing: Standing | None = None) -> TokenPrincipal:
    return TokenPrincipal(issuer="i", subject="ann", expires=expires, standing=standing)


@pytest.mark.parametrize(
    "current", [None, TokenPrincipal(issuer="i", subject="bob"), ann().with_role("other")]
)
async def test_a_stream_ends_once_its_token_is_invalid_or_of_another_principal(
    current: TokenPrincipal | None,
) -> None:
    standing, ended = Standing(), asyncio.Event()
    with expiring(lambda: ann(standing=standing), ended.set):
        standing.withdraw()
        async with asyncio.timeout(LIMIT):
            while not standing.checks:
                await asyncio.sleep(0)
        assert not ended.is_set(), "the token is still valid"
        standing.current = current
        standing.withdraw()
        async with asyncio.timeout(LIMIT):
            await ended.wait()
        # A burst of withdrawals causes few checks.
        assert standing.checks == 2
    assert standing.watchers == []


async def test_an_http_sse_stream_lasts_as_long_as_the_newest_token_of_its_client() -> None:
    first, second, ended = Standing(), Standing(), asyncio.Event()
    whose: list[Principal] = [ann(time.time() + 0.2, first)]
    with expiring(lambda: whose[0], ended.set):
        assert (len(first.watchers), len(second.watchers)) == (1, 0)
        whose[0] = ann(time.time() + 600, second)
        async with asyncio.timeout(LIMIT):
            while not second.watchers:
                await asyncio.sleep(0.01)
        assert (first.watchers, ended.is_set()) == ([], False)


async def test_a_stream_ends_if_its_token_cannot_be_verified_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_expiry, "RETRY_AFTER", 0.01)
    monkeypatch.setattr(token_expiry, "MAX_OUTAGE", 0.1)
    standing, ended = Standing(), asyncio.Event()
    standing.current = AuthorizationError("down", step="token", temporary=True)
    standing.until = 0.0
    began = time.monotonic()
    with expiring(lambda: ann(standing=standing), ended.set):
        async with asyncio.timeout(LIMIT):
            await ended.wait()
    assert standing.checks > 1
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("who", [ANONYMOUS, "bob", ScopedName("bot"), ann()])
async def test_a_stream_of_a_client_whose_authorization_does_not_expire_stays_open(
    who: Principal,
) -> None:
    ended = asyncio.Event()
    with expiring(lambda: who, ended.set):
        await asyncio.sleep(0)
    assert not ended.is_set()


async def test_a_stream_with_an_expired_token_ends_at_once() -> None:
    ended = asyncio.Event()
    with expiring(lambda: ann(time.time() - 1, Standing()), ended.set):
        assert ended.is_set()
