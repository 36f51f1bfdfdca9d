"""Nonces that a protected server demands in the DPoP proofs of a client."""

import asyncio
import base64
import json
from typing import Any

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http1.url import EndpointUrl
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider

BOUND = OAuthSettings(dpop=True)
DEMAND = 'DPoP error="use_dpop_nonce", algs="ES256"'


def nonce_of(call: Call) -> Any:
    claims = call.headers["dpop"].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "==")).get("nonce")


async def logged_in(provider: ScriptedProvider) -> OAuthAuthorizer:
    provider.token = {"token_type": "DPoP"}
    authorizer = OAuthAuthorizer(provider.url, BOUND, authorize=provider.user())
    await authorizer.log_in()
    provider.calls.clear()
    return authorizer


def demand(provider: ScriptedProvider, nonce: str) -> None:
    async def respond(call: Call) -> None:
        if nonce_of(call) == nonce:
            await provider._mcp(call)
        else:
            await call.answer(401, "{}", WWW_Authenticate=DEMAND, DPoP_Nonce=nonce)

    provider.scripts["mcp"] = respond


async def test_concurrent_requests_are_repeated_with_a_new_nonce_without_a_renewal() -> None:
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider)
        demand(provider, "n1")
        together = asyncio.Barrier(8)
        respond = provider.scripts["mcp"]

        async def after_all(call: Call) -> None:
            if nonce_of(call) is None:
                await together.wait()
            await respond(call)

        provider.scripts["mcp"] = after_all
        found = await asyncio.gather(*(request(provider, authorizer) for _ in range(8)))
        assert [status for status, _ in found] == [200] * 8
        assert (provider.steps["token"], provider.steps["mcp"]) == (0, 16)


async def test_repeated_demands_for_a_nonce_cause_neither_a_renewal_nor_a_login() -> None:
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider)

        async def refuse(call: Call) -> None:
            await call.answer(401, "{}", WWW_Authenticate=DEMAND, DPoP_Nonce="n1")

        provider.scripts["mcp"] = refuse
        assert (await request(provider, authorizer))[0] == 401
        assert (provider.steps["token"], provider.steps["mcp"]) == (0, 2)


async def test_the_nonce_of_a_successful_response_is_used_by_the_next_request() -> None:
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider)

        async def respond(call: Call) -> None:
            await call.answer(200, "{}", DPoP_Nonce=f"n{provider.steps['mcp']}")

        provider.scripts["mcp"] = respond
        client = HttpClient(EndpointUrl(provider.url), authorizer=authorizer)
        for _ in range(3):
            (await client.open("POST", {}, b"{}")).close()
        await client.close()
        assert [nonce_of(call) for call in provider.of("mcp")] == [None, "n1", "n2"]
