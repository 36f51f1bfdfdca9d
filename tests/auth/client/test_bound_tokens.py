"""Tokens of a client that are bound to a DPoP key."""

import base64
import json
from typing import Any

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider

BOUND = OAuthSettings(dpop=True)


def bound(provider: ScriptedProvider, store: MemoryCredentialStore | None = None) -> Any:
    return OAuthAuthorizer(provider.url, BOUND, store=store, authorize=provider.user())


def header_of(call: Call) -> Any:
    return json.loads(base64.urlsafe_b64decode(call.headers["dpop"].partition(".")[0] + "=="))


async def test_an_unbound_token_is_refused_if_the_settings_require_dpop() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        with pytest.raises(AuthorizationError, match="not bound to a key.*`dpop`"):
            await bound(provider, store).log_in()
        assert store.logins() == []


async def test_an_unbound_renewed_token_is_refused_if_the_settings_require_dpop() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"token_type": "DPoP", "expires_in": 0}
        login = await bound(provider, store).log_in()
        provider.token = {}
        with pytest.raises(AuthorizationError, match="not bound to a key"):
            await request(provider, bound(provider, store))
        assert store.logins() == [login]


async def test_an_unbound_token_is_used_if_dpop_was_only_offered_by_the_challenge() -> None:
    async with scripted_provider() as provider:

        async def respond(call: Call) -> None:
            if "authorization" in call.headers:
                await provider._mcp(call)
            else:
                await call.answer(401, "{}", WWW_Authenticate='DPoP algs="ES256", Bearer')

        provider.scripts["mcp"] = respond
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        [call] = provider.of("token")
        assert "dpop" in call.headers


@pytest.mark.parametrize("where", ["authorization server", "resource"])
async def test_proofs_use_an_algorithm_that_the_server_supports(where: str) -> None:
    async with scripted_provider() as provider:
        provider.token = {"token_type": "DPoP"}
        changed = provider.metadata if where == "authorization server" else provider.protected
        changed["dpop_signing_alg_values_supported"] = ["PS256", "ES384"]
        assert (await request(provider, bound(provider)))[0] == 200
        assert header_of(provider.of("token")[0])["alg"] == "ES384"
        assert header_of(provider.of("mcp")[-1])["alg"] == "ES384"


async def test_a_login_fails_if_the_server_supports_none_of_our_proof_algorithms() -> None:
    async with scripted_provider() as provider:
        provider.metadata["dpop_signing_alg_values_supported"] = ["RS256"]
        with pytest.raises(AuthorizationError, match="ES256, ES384 or ES512") as caught:
            await bound(provider).log_in()
        assert (caught.value.issuer, provider.steps["register"]) == (provider.issuer, 0)


async def test_clients_with_and_without_bound_tokens_have_separate_registrations() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        provider.token = {"token_type": "DPoP"}
        for _ in range(2):
            await bound(provider, store).log_in()
        registered = [call.message for call in provider.of("register")]
        assert [one.get("dpop_bound_access_tokens") for one in registered] == [None, True]
