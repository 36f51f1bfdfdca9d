"""Redirects within the origin of a server, which must not carry its token to other resources."""

import base64
import json
from typing import Any

import pytest

from fairlead.auth.client.api_key import ApiKeyAuthorizer
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import HttpError
from fairlead.transport.http.client.request_authorizer import RequestAuthorizer
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider


def redirect_to(provider: ScriptedProvider, path: str, status: int) -> list[Call]:
    """Redirect requests for `/mcp` to another path, and return the list of requests to it."""
    arrived: list[Call] = []

    async def redirect(call: Call) -> None:
        await call.answer(status, Location=path)

    async def accept(call: Call) -> None:
        if call.path == path:
            arrived.append(call)
            await call.json({"ok": True})
        else:
            await call.answer(404)

    provider.scripts |= {"mcp": redirect, "none": accept}
    return arrived


async def logged_in(provider: ScriptedProvider, kind: str) -> RequestAuthorizer:
    if kind == "API key":
        key = ApiKeyAuthorizer(provider.url, store=MemoryCredentialStore())
        await key.log_in("key-1")
        return key
    if kind == "DPoP":
        provider.token = {"token_type": "DPoP"}
    settings = OAuthSettings(dpop=kind == "DPoP")
    login = OAuthAuthorizer(provider.url, settings, authorize=provider.user())
    await login.log_in()
    return login


@pytest.mark.attack(
    "a redirect from the server of a token to another path of its origin",
    "a token is sent to its resource and below, and a proof is made for the URL of each request",
    "the request arrives without the token and without a proof",
)
@pytest.mark.parametrize("kind", ["Bearer", "DPoP", "API key"])
@pytest.mark.parametrize("status", [307, 308])
async def test_the_token_is_not_sent_after_a_redirect_outside_of_its_resource(
    kind: str, status: int
) -> None:
    async with scripted_provider() as provider:
        login = await logged_in(provider, kind)
        arrived = redirect_to(provider, "/tenant-b/mcp", status)
        for _ in range(2):  # a permanent redirect is remembered
            assert (await request(provider, login))[0] == 200
        assert [set(call.headers) & {"authorization", "dpop"} for call in arrived] == [set()] * 2


async def test_a_redirect_to_another_protected_path_raises_an_error_and_starts_no_login() -> None:
    async with scripted_provider() as provider:
        login = await logged_in(provider, "Bearer")
        redirect_to(provider, "/tenant-b/mcp", 307)

        async def refuse(call: Call) -> None:
            await call.answer(401, WWW_Authenticate="Bearer")

        provider.scripts["none"] = refuse
        with pytest.raises(HttpError, match="redirected to /tenant-b/mcp"):
            await request(provider, login)
        assert (provider.steps["token"], len(provider.visits)) == (1, 1)


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/v2?x=1"])
async def test_the_proof_sent_after_a_redirect_is_for_the_new_url(path: str) -> None:
    async with scripted_provider() as provider:
        login = await logged_in(provider, "DPoP")
        arrived = redirect_to(provider, path, 307)
        assert (await request(provider, login))[0] == 200
        [call] = arrived
        assert call.headers["authorization"] == "DPoP access-1"
        target = f"{provider.origin}{path}".partition("?")[0]
        assert claims(call.headers["dpop"])["htu"] == target


def claims(proof: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(proof.split(".")[1] + "=="))
