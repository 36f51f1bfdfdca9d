"""Logins that a user denies or does not complete, and scopes that are requested again."""

import asyncio
from typing import Any

import pytest

from fairlead.auth.client.interactive_login import AuthorizationRequest
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)

CALLS = 10


def demand(provider: ScriptedProvider, scope: str, *tokens: str) -> None:
    """Let the server require a scope that only some tokens have."""

    async def check(call: Call) -> None:
        token = call.headers.get("authorization", "").partition(" ")[2]
        if token in tokens:
            await call.json({"token": token})
        elif token not in provider.accepted:
            await provider._mcp(call)
        else:
            value = f'Bearer error="insufficient_scope", scope="{scope}"'
            await call.answer(403, "null", WWW_Authenticate=value)

    provider.scripts["mcp"] = check


def one_after_the_other(users: list[Any]) -> Any:
    """Return an `authorize` callback that calls the next function of a list each time."""

    async def authorize(page: AuthorizationRequest) -> str:
        found = users.pop(0)(page)
        url: str = found if isinstance(found, str) else await found
        return url

    return authorize


async def test_scopes_that_a_login_requested_are_not_requested_again() -> None:
    async with scripted_provider() as provider:
        provider.challenge = {"scope": "read"}
        demand(provider, "read")
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for _ in range(3):
            assert await request(provider, authorizer) == (403, None)
        assert [visit.scopes for visit in provider.visits] == [("read",)]


async def test_scopes_are_requested_again_if_the_call_that_needed_them_was_cancelled() -> None:
    async with scripted_provider() as provider:
        asked = asyncio.Event()

        async def never(page: AuthorizationRequest) -> str:
            provider.visits.append(page)
            asked.set()
            await asyncio.Event().wait()
            return ""

        users: list[Any] = [provider.user(), never, never, never, provider.user()]
        demand(provider, "write", "access-2")
        authorizer = OAuthAuthorizer(provider.url, authorize=one_after_the_other(users))
        await authorizer.log_in()
        for _ in range(3):
            asked.clear()
            calling = asyncio.create_task(request(provider, authorizer))
            await asked.wait()
            calling.cancel()
            await asyncio.wait((calling,))
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert users == []


@pytest.mark.covers("AUT-04")
async def test_scopes_of_a_login_that_has_ended_are_requested_by_the_next_one() -> None:
    """Otherwise, the scopes that a 403 had demanded would be missing, and not requested again."""
    async with scripted_provider() as provider:
        provider.challenge = {"scope": "read"}

        async def check(call: Call) -> None:
            token = call.headers.get("authorization", "").partition(" ")[2]
            if token not in provider.accepted - provider.refused:
                await provider._mcp(call)
            elif "write" in provider.visits[-1].scopes:
                await call.json({"token": token})
            else:
                value = 'Bearer error="insufficient_scope", scope="write"'
                await call.answer(403, "null", WWW_Authenticate=value)

        provider.scripts["mcp"] = check
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        provider.refused.add("access-2")
        ended = responding(400, '{"error": "invalid_grant"}')

        async def refuse_renewal(call: Call) -> None:
            await (ended if b"refresh_token" in call.body else provider._token)(call)

        provider.scripts["token"] = refuse_renewal
        # End the pause after a login, in which a refused token causes no other login at its issuer.
        authorizer._logged_in_at -= 60
        assert await request(provider, authorizer) == (200, {"token": "access-3"})
        assert [set(visit.scopes) for visit in provider.visits] == [
            {"read"},
            {"read", "write"},
            {"read", "write"},
        ]


async def test_a_login_that_the_user_starts_requests_the_default_scopes() -> None:
    async with scripted_provider() as provider:
        provider.challenge = {"scope": "read"}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in(["read", "write"])
        await authorizer.log_in()
        assert [visit.scopes for visit in provider.visits] == [("read", "write"), ("read",)]


@pytest.mark.parametrize("status", [401, 403])
async def test_all_calls_that_wait_for_a_login_fail_if_the_user_denies_it(status: int) -> None:
    async with scripted_provider() as provider:
        all_refused = asyncio.Event()

        async def deny(page: AuthorizationRequest) -> str:
            provider.visits.append(page)
            await all_refused.wait()
            return provider.redirect(page, code=None, error="access_denied")

        users: list[Any] = [deny] if status == 401 else [provider.user(), deny]
        authorizer = OAuthAuthorizer(provider.url, authorize=one_after_the_other(users))
        if status == 403:
            await authorizer.log_in()
            provider.calls.clear()
            demand(provider, "write")
        refuse = provider.scripts.get("mcp", provider._mcp)

        async def count(call: Call) -> None:
            await refuse(call)
            if provider.steps["mcp"] == CALLS:
                all_refused.set()

        provider.scripts["mcp"] = count
        errors = await asyncio.gather(
            *(request(provider, authorizer) for _ in range(CALLS)), return_exceptions=True
        )
        assert users == []
        assert {getattr(error, "error", None) for error in errors} == {"access_denied"}
