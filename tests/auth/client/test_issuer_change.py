"""Servers whose metadata name another authorization server after a login."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider


class MovingServer:
    """A server that accepts only tokens of the authorization server that its metadata name."""

    def __init__(self, first: ScriptedProvider, second: ScriptedProvider) -> None:
        self._providers = (first, second)
        first.scripts["mcp"] = self._respond
        first.token = {"access_token": "of-first"}
        second.token = {"access_token": "of-second"}
        self.alternates = False
        self.accepted = "of-first"
        self.visits: list[str] = []

    @property
    def url(self) -> str:
        return self._providers[0].url

    def move(self) -> None:
        """Publish metadata with the other authorization server from now on."""
        first, second = self._providers
        new = second if self.accepted == "of-first" else first
        self.accepted = new.token["access_token"]
        first.protected = {"authorization_servers": [new.issuer]}

    async def _respond(self, call: Call) -> None:
        token = call.headers.get("authorization", "").partition(" ")[2]
        if self.alternates and token:
            self.move()
        if token == self.accepted and not self.alternates:
            await call.json({"token": token})
        else:
            await call.answer(401, "{}", WWW_Authenticate="Bearer")

    def user(self, asked):  # type: ignore[no-untyped-def]
        """Approve a login at either authorization server."""
        self.visits.append(asked.issuer)
        [provider] = [one for one in self._providers if one.issuer == asked.issuer]
        return provider.redirect(asked)


@contextlib.asynccontextmanager
async def moving_server() -> AsyncIterator[tuple[MovingServer, ScriptedProvider, ScriptedProvider]]:
    async with scripted_provider() as first, scripted_provider() as second:
        yield MovingServer(first, second), first, second


async def test_a_server_that_changes_its_issuer_after_a_login_causes_one_new_login() -> None:
    async with moving_server() as (server, first, second):
        store = MemoryCredentialStore()
        authorizer = OAuthAuthorizer(server.url, store=store, authorize=server.user)
        assert await request(first, authorizer) == (200, {"token": "of-first"})
        server.move()
        for _ in range(3):
            assert await request(first, authorizer) == (200, {"token": "of-second"})
        assert server.visits == [first.issuer, second.issuer]
        # Each authorization server has its own registration, and gets only its own tokens.
        assert (first.steps["register"], second.steps["register"]) == (1, 1)
        assert "refresh_token" not in second.forms()[0]
        [login] = store.logins()
        assert login.issuer == second.issuer


async def test_a_server_that_alternates_between_issuers_causes_no_third_login() -> None:
    async with moving_server() as (server, first, second):
        server.alternates = True
        authorizer = OAuthAuthorizer(server.url, authorize=server.user)
        for _ in range(5):
            with pytest.raises(AuthorizationError, match="refuses the tokens of its"):
                await request(first, authorizer)
        assert server.visits == [first.issuer, second.issuer]
