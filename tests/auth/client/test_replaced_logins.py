"""Logins that another program replaces, adds or deletes while this program uses the old one."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec
import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import (
    LoginLock,
    MemoryCredentialStore,
    StoredLogin,
)
from fairlead.errors import AuthorizationError, LoginRequired
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)

REMEDY = "run `fairlead login notes`"
ENDED = responding(400, '{"error": "invalid_grant"}')


async def log_in_elsewhere(
    provider: ScriptedProvider, store: MemoryCredentialStore, *scopes: str
) -> StoredLogin:
    other = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
    return await other.log_in(scopes or None)


async def log_out_elsewhere(provider: ScriptedProvider, store: MemoryCredentialStore) -> None:
    await OAuthAuthorizer(provider.url, store=store).log_out()


def renewed_often(store: MemoryCredentialStore) -> None:
    """Let the stored login look as if it had been renewed many times."""
    [login] = store.logins()
    store.save(msgspec.structs.replace(login, generation=9))


@pytest.mark.parametrize("expired", [False, True])
async def test_a_newer_login_is_used_even_if_the_older_one_was_renewed_more_often(
    expired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        renewed_often(store)
        mine = OAuthAuthorizer(provider.url, store=store)
        assert await request(provider, mine) == (200, {"token": "access-1"})
        await log_out_elsewhere(provider, store)
        provider.token = {"expires_in": 3 * 3600}
        newer = await log_in_elsewhere(provider, store)
        provider.refused.add("access-1")
        if expired:
            real = time.time
            monkeypatch.setattr("time.time", lambda: real() + 2 * 3600)
        provider.scripts["token"] = ENDED
        assert await request(provider, mine) == (200, {"token": "access-2"})
        assert store.logins() == [newer]


async def test_a_running_program_uses_a_new_login_after_its_login_has_ended() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store, remedy=REMEDY)
        provider.refused.add("access-1")
        provider.scripts["token"] = ENDED
        with pytest.raises(LoginRequired, match="fairlead login notes"):
            await request(provider, mine)
        with pytest.raises(LoginRequired, match="fairlead login notes"):
            await mine.access_token()
        del provider.scripts["token"]
        await log_in_elsewhere(provider, store)
        assert await mine.access_token() == "access-2"
        assert await request(provider, mine) == (200, {"token": "access-2"})


async def test_a_running_program_uses_a_new_login_if_its_own_has_no_refresh_token() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"refresh_token": None}
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store, remedy=REMEDY)
        assert await request(provider, mine) == (200, {"token": "access-1"})
        provider.refused.add("access-1")
        with pytest.raises(LoginRequired, match="fairlead login notes"):
            await request(provider, mine)
        await log_in_elsewhere(provider, store)
        assert await request(provider, mine) == (200, {"token": "access-2"})


async def test_a_login_made_during_a_refused_renewal_is_kept_and_used() -> None:
    """The store of this test has no lock between the two programs."""
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        newer = await log_in_elsewhere(provider, store)
        await log_out_elsewhere(provider, store)
        older = await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store)
        provider.refused.add(older.tokens.access_token)

        async def refuse(call: Call) -> None:
            store.save(newer)
            await ENDED(call)

        provider.scripts["token"] = refuse
        assert await request(provider, mine) == (200, {"token": newer.tokens.access_token})
        assert store.logins() == [newer]


async def test_a_renewal_does_not_restore_a_login_that_was_deleted_in_the_meantime() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store, remedy=REMEDY)
        provider.refused.add("access-1")

        async def renew(call: Call) -> None:
            store.delete("", provider.url)
            await provider._token(call)

        provider.scripts["token"] = renew
        with pytest.raises(LoginRequired):
            await request(provider, mine)
        assert store.logins() == []
        # Its tokens are revoked, because no program will use them.
        assert [form["token"] for form in provider.forms("revoke")] == ["refresh-2"]


async def test_logging_out_waits_for_a_renewal_of_another_program() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store)
        provider.refused.add("access-1")
        asked, proceed = asyncio.Event(), asyncio.Event()

        async def slow(call: Call) -> None:
            asked.set()
            await proceed.wait()
            await provider._token(call)

        provider.scripts["token"] = slow
        calling = asyncio.create_task(request(provider, mine))
        await asked.wait()
        leaving = asyncio.create_task(log_out_elsewhere(provider, store))
        proceed.set()
        await leaving
        assert store.logins() == []
        with contextlib.suppress(AuthorizationError):
            await calling
        assert store.logins() == []
        assert [form["token"] for form in provider.forms("revoke")] == ["refresh-2"]


class BusyStore(MemoryCredentialStore):
    """A store whose lock is held by a program that has just stored its renewal."""

    def __init__(self) -> None:
        super().__init__()
        self.locked = False
        self.deleted_with_lock: list[bool] = []

    def lock(self, owner: str, server: str) -> LoginLock:
        lock = super().lock(owner, server)
        acquire = lock.try_acquire
        others = 2  # attempts until the other program releases the lock

        def try_acquire() -> bool:
            nonlocal others
            others -= 1
            if others:
                [login] = self.logins()
                self.save(login.renewed(login.tokens))
                return False
            self.locked = acquire()
            return self.locked

        lock.try_acquire = try_acquire  # type: ignore[method-assign]
        return lock

    def delete(self, owner: str, server: str) -> bool:
        self.deleted_with_lock.append(self.locked)
        return super().delete(owner, server)


async def test_logging_out_holds_the_lock_of_the_login() -> None:
    """Otherwise, a program that checks the stored login could store it again."""
    async with scripted_provider() as provider:
        plain, store = MemoryCredentialStore(), BusyStore()
        store.save(await log_in_elsewhere(provider, plain))
        await log_out_elsewhere(provider, store)
        assert store.deleted_with_lock == [True]


# Tokens for programs that do not receive them in HTTP headers


@pytest.mark.covers("AUT-02")
async def test_a_program_gets_no_expired_token_that_cannot_be_renewed() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"refresh_token": None}
        await log_in_elsewhere(provider, store)
        expire(store)
        mine = OAuthAuthorizer(provider.url, store=store, remedy=REMEDY)
        with pytest.raises(LoginRequired, match="requires a new login: run `fairlead login notes`"):
            await mine.access_token()
        await log_in_elsewhere(provider, store)
        assert await mine.access_token() == "access-2"


@pytest.mark.covers("AUT-02", "AUT-03")
async def test_a_token_that_expired_after_the_renewal_of_another_program_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two uses, a machine may sleep for longer than a token lives."""
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        first, second = (OAuthAuthorizer(provider.url, store=store) for _ in range(2))
        for mine in (first, second):
            assert await mine.access_token() == "access-1"
        real = time.time
        monkeypatch.setattr("time.time", lambda: real() + 2 * 3600)
        assert await OAuthAuthorizer(provider.url, store=store).access_token() == "access-2"
        monkeypatch.setattr("time.time", lambda: real() + 4 * 3600)
        provider.refused |= {"access-1", "access-2"}
        provider.calls.clear()
        assert await first.access_token() == "access-3"
        assert await request(provider, second) == (200, {"token": "access-3"})
        assert provider.steps == {"token": 1, "mcp": 1}


def expire(store: MemoryCredentialStore) -> None:
    """Set the expiry of the stored token to a time in the past."""
    [login] = store.logins()
    tokens = msgspec.structs.replace(login.tokens, expires_at=1.0)
    store.save(msgspec.structs.replace(login, tokens=tokens))


# More scopes


def demand(provider: ScriptedProvider, scope: str, *tokens: str) -> None:
    """Let the server require a scope that only some tokens have."""

    async def check(call: Call) -> None:
        token = call.headers.get("authorization", "").partition(" ")[2]
        if token in tokens:
            await call.json({"token": token})
        else:
            value = f'Bearer error="insufficient_scope", scope="{scope}"'
            await call.answer(403, "{}", WWW_Authenticate=value)

    provider.scripts["mcp"] = check


async def test_the_error_about_missing_scopes_is_repeated_until_another_program_logs_in() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store, remedy=REMEDY)
        demand(provider, "write", "access-2")
        for _ in range(4):
            with pytest.raises(LoginRequired, match="fairlead login notes --scope write`"):
                await request(provider, mine)
        await log_in_elsewhere(provider, store, "write")
        assert await request(provider, mine) == (200, {"token": "access-2"})


async def test_scopes_that_another_program_was_granted_are_not_requested_again() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in_elsewhere(provider, store)
        mine = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
        assert await request(provider, mine) == (200, {"token": "access-1"})
        demand(provider, "write", "access-2")
        await log_in_elsewhere(provider, store, "write")
        assert await request(provider, mine) == (200, {"token": "access-2"})
        assert len(provider.visits) == 2


# Clients without a user


async def test_a_client_without_a_user_gets_a_new_token_after_its_refresh_token_was_refused() -> (
    None
):
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        settings = OAuthSettings(grant="client_credentials", client_id="c", client_secret="s")
        mine = OAuthAuthorizer(provider.url, settings, store=store)
        provider.token = {"expires_in": 0}
        assert await mine.access_token() == "access-1"

        async def refuse_renewal(call: Call) -> None:
            if b"refresh_token" in call.body:
                await ENDED(call)
            else:
                await provider._token(call)

        provider.scripts["token"] = refuse_renewal
        provider.token = {}
        assert await mine.access_token() == "access-2"


@pytest.mark.parametrize("grant", ["authorization_code", "client_credentials"])
async def test_an_unstored_new_login_is_renewed_instead_of_the_older_stored_one(
    grant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        settings = OAuthSettings(grant=grant, client_id="c", client_secret="s")
        mine = OAuthAuthorizer(provider.url, settings, store=store, authorize=provider.user())
        await mine.log_in()
        with monkeypatch.context() as broken:
            broken.setattr(MemoryCredentialStore, "save", full_disk)
            with pytest.raises(AuthorizationError, match="disk is full"):
                await mine.log_in()
        assert await mine.access_token() == "access-2"
        provider.refused |= {"access-1", "access-2"}
        assert await request(provider, mine) == (200, {"token": "access-3"})
        assert provider.forms()[-1].get("refresh_token") == "refresh-2"
        assert [login.tokens.access_token for login in store.logins()] == ["access-3"]


def full_disk(store: MemoryCredentialStore, login: StoredLogin) -> None:
    raise AuthorizationError("the disk is full", step="storage")
