"""Failures that users of other clients have reported; these tests check the correct behaviour."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import EnterpriseLogin, OAuthSettings
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import request, scripted_provider

CALLS = 8


async def test_concurrent_requests_with_the_same_login_do_not_block_each_other() -> None:
    """With a lock around whole requests, an open stream would block all other requests."""
    async with scripted_provider() as provider:
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        together = asyncio.Barrier(CALLS)

        async def respond(call: Call) -> None:
            await together.wait()  # only passes if all requests are open at the same time
            await provider._mcp(call)

        provider.scripts["mcp"] = respond
        answers = await asyncio.gather(*(request(provider, authorizer) for _ in range(CALLS)))
        assert answers == [(200, {"token": "access-1"})] * CALLS


async def test_authorizers_that_start_together_share_one_login_and_one_registration(
    tmp_path: Path,
) -> None:
    async with scripted_provider() as provider:
        instances = [
            OAuthAuthorizer(
                provider.url, store=FileCredentialStore(tmp_path), authorize=provider.user()
            )
            for _ in range(3)
        ]
        answers = await asyncio.gather(*(request(provider, one) for one in instances))
        assert answers == [(200, {"token": "access-1"})] * 3
        assert len(provider.visits) == 1
        assert (provider.steps["register"], provider.steps["token"]) == (1, 1)


async def test_the_next_metadata_url_of_a_challenge_is_tried_after_a_404() -> None:
    """The metadata URL in a challenge is requested unchanged; no path is appended to it."""
    async with scripted_provider() as provider:
        place = "/.well-known/oauth-protected-resource/elsewhere"

        async def respond(call: Call) -> None:
            if "authorization" in call.headers:
                await provider._mcp(call)
                return
            texts = (f"{provider.origin}/dead", f"{provider.origin}{place}")
            named = ", ".join(f'resource_metadata="{text}"' for text in texts)
            await call.answer(401, "{}", WWW_Authenticate=f"Bearer {named}")

        provider.scripts["mcp"] = respond
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        assert [call.path for call in provider.of("none")] == ["/dead"]
        assert [call.path for call in provider.of("resource")] == [place]


async def test_missing_scopes_are_requested_even_if_another_challenge_comes_first() -> None:
    async with scripted_provider() as provider:

        async def respond(call: Call) -> None:
            if call.headers.get("authorization") == "Bearer access-1":
                text = 'DPoP algs="ES256", Bearer error="insufficient_scope", scope="write"'
                await call.answer(403, "{}", WWW_Authenticate=text)
            else:
                await provider._mcp(call)

        provider.scripts["mcp"] = respond
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        assert [visit.scopes for visit in provider.visits] == [(), ("write",)]


async def test_tokens_are_requested_from_the_authorization_server_and_not_from_the_mcp_server() -> (
    None
):
    async with scripted_provider() as server, scripted_provider() as other:
        server.protected = {"authorization_servers": [other.issuer]}
        server.accepted.add("access-1")
        authorizer = OAuthAuthorizer(server.url, authorize=other.user())
        assert (await request(server, authorizer))[0] == 200
        assert set(server.steps) == {"mcp", "resource"}
        assert other.steps == {"metadata": 1, "register": 1, "token": 1}


async def test_a_refusal_by_the_identity_provider_of_a_company_starts_no_interactive_login() -> (
    None
):
    async with scripted_provider() as provider:

        async def refuse(call: Call) -> None:
            await call.json({"error": "access_denied"}, 403)

        provider.scripts["token"] = refuse
        company = EnterpriseLogin(
            token_endpoint=f"{provider.issuer}/token", client_id="c", id_token="id"
        )
        settings = OAuthSettings(grant="enterprise", client_id="c", enterprise=company)
        authorizer = OAuthAuthorizer(provider.url, settings, authorize=provider.user())
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="the identity provider refused") as caught:
                await request(provider, authorizer)
            assert (caught.value.error, caught.value.step) == ("access_denied", "token")
        assert provider.visits == []
        # The identity provider is not asked again for each request.
        assert provider.steps["token"] == 1


@pytest.mark.covers("AUT-04")
@pytest.mark.parametrize("resource", ["{}", "{}/", "{}/mcp", "{}/mcp/"])
async def test_the_resource_parameter_equals_the_published_resource_in_every_request(
    resource: str,
) -> None:
    """Providers compare resources as text, so one with another slash or only the origin is
    refused.
    """
    async with scripted_provider() as provider:
        published = resource.format(provider.origin.replace("http:", "HTTP:"))
        provider.protected = {"resource": published}
        provider.token = {"expires_in": 0}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        provider.token = {}
        assert (await request(provider, authorizer))[0] == 200  # after a renewal
        [visit] = provider.visits
        assert parse_qs(urlsplit(visit.url).query)["resource"] == [published]
        assert [form["grant_type"] for form in provider.forms()] == [
            "authorization_code",
            "refresh_token",
        ]
        assert {form["resource"] for form in provider.forms()} == {published}
