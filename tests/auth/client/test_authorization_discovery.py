"""Discovery of an authorization server, and the fallback of revision 2025-03-26."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.errors import AuthorizationError
from tests.support.login_command import Fairlead, ended, fetch, login_page
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    Script,
    ScriptedProvider,
    hang,
    request,
    responding,
    scripted_provider,
)

LIMIT = 60.0
PLACE = "/.well-known/oauth-protected-resource/custom"
MISSING = responding(404, "")
OTHERS: dict[str, tuple[int, Script]] = {
    "400": (400, responding(400, "{}")),
    "401": (401, responding(401, "{}")),
    "403": (403, responding(403, "no", "text/plain")),
    "410": (410, responding(410, "")),
    "a web page": (200, responding(200, "<h1>Home</h1>", "text/html")),
    "truncated JSON": (200, responding(200, '{"issuer": ')),
    "other JSON": (200, responding(200, '{"resource": 1, "issuer": 1}')),
}


def register_at_the_root(provider: ScriptedProvider, server_metadata: Script) -> None:
    """Offer what revision 2025-03-26 expects at the root of the origin."""

    async def at_root(call: Call) -> None:
        if call.path == "/.well-known/oauth-authorization-server":
            await server_metadata(call)
        elif call.path == "/register":
            await call.json({"client_id": "c"}, 201)
        else:
            await call.answer(404)

    provider.scripts |= {"resource": MISSING, "none": at_root}


async def opened_page(provider: ScriptedProvider) -> str:
    """Log in until the login page is opened, and return its URL without the query."""
    opened: list[str] = []

    def stop(login: Any) -> str:
        opened.append(login.url.partition("?")[0])
        raise AuthorizationError("stopped", step="authorization")

    with pytest.raises(AuthorizationError, match="stopped"):
        await OAuthAuthorizer(provider.url, authorize=stop).log_in()
    return opened[0]


async def test_the_default_endpoints_are_used_if_a_server_publishes_no_metadata() -> None:
    async with scripted_provider() as provider:
        register_at_the_root(provider, MISSING)
        assert await opened_page(provider) == f"{provider.origin}/authorize"


@pytest.mark.covers("AUT-04")
async def test_server_metadata_at_the_root_are_used_if_the_resource_has_no_metadata() -> None:
    async with scripted_provider() as provider:

        async def metadata(call: Call) -> None:
            provider.metadata |= {"issuer": provider.origin}
            await provider._metadata(call)

        register_at_the_root(provider, metadata)
        assert await opened_page(provider) == f"{provider.issuer}/authorize"


@pytest.mark.parametrize("kind", OTHERS)
async def test_the_rules_of_2025_03_26_apply_only_if_resource_metadata_are_missing(
    kind: str,
) -> None:
    status, script = OTHERS[kind]
    async with scripted_provider() as provider:
        register_at_the_root(provider, MISSING)
        provider.scripts["resource"] = script
        with pytest.raises(AuthorizationError, match=f"responded with HTTP {status}") as caught:
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        place = f"{provider.origin}/.well-known/oauth-protected-resource/mcp"
        assert str(caught.value).startswith(f"{place} responded")
        assert ("pass the token instead of logging in" in str(caught.value)) == (status == 401)
        assert (caught.value.step, caught.value.temporary) == ("discovery", False)
        assert (provider.steps["none"], provider.visits) == (0, [])


@pytest.mark.parametrize("kind", OTHERS)
async def test_the_default_endpoints_are_used_only_if_metadata_at_the_root_are_missing(
    kind: str,
) -> None:
    status, script = OTHERS[kind]
    async with scripted_provider() as provider:
        register_at_the_root(provider, script)
        with pytest.raises(AuthorizationError) as caught:
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        place = f"{provider.origin}/.well-known/oauth-authorization-server"
        assert str(caught.value).startswith(f"{place} responded with HTTP {status}")
        assert (provider.steps["none"], provider.visits) == (1, [])


@pytest.mark.parametrize("kind", OTHERS)
async def test_the_next_metadata_url_is_tried_after_an_unusable_response(kind: str) -> None:
    _, script = OTHERS[kind]
    async with scripted_provider() as provider:

        async def only_at_the_root(call: Call) -> None:
            await (script if call.path.endswith("/mcp") else provider._resource)(call)

        provider.scripts["resource"] = only_at_the_root
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        assert provider.steps["resource"] == 2


async def test_the_error_for_an_issuer_without_metadata_has_issuer_and_status() -> None:
    async with scripted_provider() as provider:
        provider.scripts["metadata"] = responding(403, "no")
        with pytest.raises(AuthorizationError, match="responded with HTTP 403") as caught:
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert caught.value.issuer == provider.issuer
        provider.scripts["metadata"] = MISSING
        with pytest.raises(AuthorizationError, match="publishes no metadata"):
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()


# Logins that the user starts, at servers that name their metadata in a challenge


def publish_at_custom_place(provider: ScriptedProvider) -> None:
    """Publish the resource metadata only at the URL that the challenge names."""

    async def only_there(call: Call) -> None:
        if call.path == PLACE:
            await provider._resource(call)
        else:
            await call.answer(404)

    provider.scripts["resource"] = only_there
    provider.challenge["resource_metadata"] = provider.origin + PLACE


@pytest.mark.covers("AUT-04")
async def test_metadata_that_only_the_challenge_names_are_used() -> None:
    async with scripted_provider() as provider:
        publish_at_custom_place(provider)
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        login = await authorizer.log_in()
        assert (login.issuer, login.resource) == (provider.issuer, provider.url)
        assert [call.path for call in provider.of("resource")] == [PLACE]
        assert provider.steps["none"] == 0


@pytest.mark.covers("CMD-03")
async def test_the_login_command_uses_metadata_that_only_the_challenge_names(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        publish_at_custom_place(provider)
        process = await Fairlead(tmp_path).start("login", provider.url, "--no-browser")
        page = await login_page(process)
        query = parse_qs(urlsplit(page).query)
        [uri], [state] = query["redirect_uri"], query["state"]
        await fetch(f"{uri}?code=c&state={state}&iss={provider.issuer}")
        code, out = await ended(process)
        assert (code, out.splitlines()[0]) == (
            0,
            f"Logged in to {provider.url} at {provider.issuer}.",
        )


@pytest.mark.covers("AUT-04")
async def test_the_scopes_of_the_challenge_are_requested_and_no_others() -> None:
    async with scripted_provider() as provider:
        provider.protected = {"scopes_supported": ["read", "write", "admin"]}
        provider.challenge["scope"] = "read"
        login = await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert login.requested == provider.visits[-1].scopes == ("read",)


async def test_a_login_requests_a_bound_token_if_the_challenge_demands_one() -> None:
    async with scripted_provider() as provider:

        async def demand_proof(call: Call) -> None:
            await call.answer(401, WWW_Authenticate='DPoP algs="ES256"')

        provider.scripts["mcp"] = demand_proof
        provider.token = {"token_type": "DPoP"}
        login = await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert login.dpop_key is not None
        assert login.tokens.token_type == "DPoP"


@pytest.mark.parametrize(
    "script",
    [
        responding(200, "{}"),
        responding(403, "{}"),
        responding(401, "{}"),
        responding(307, ""),
        responding(500, "<h1>Oops</h1>", "text/html"),
    ],
)
async def test_the_default_metadata_url_is_used_if_the_server_sends_no_challenge(
    script: Script,
) -> None:
    async with scripted_provider() as provider:
        provider.scripts["mcp"] = script
        await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert [call.path for call in provider.of("resource")] == [
            "/.well-known/oauth-protected-resource/mcp"
        ]


async def test_a_login_continues_after_a_timeout_if_the_server_sends_no_challenge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.auth.client.authorization_discovery.CHALLENGE_TIMEOUT", 0.1)
    async with scripted_provider() as provider:
        provider.scripts["mcp"] = hang
        await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert (provider.steps["mcp"], provider.steps["resource"]) == (1, 1)


async def test_the_challenge_is_found_behind_a_redirect_to_another_path_of_the_server() -> None:
    """Many frameworks redirect `/mcp` to `/mcp/`."""
    async with scripted_provider() as provider:
        publish_at_custom_place(provider)
        challenge = f'Bearer resource_metadata="{provider.origin}{PLACE}"'

        async def redirect(call: Call) -> None:
            await call.answer(307, Location="/mcp/")

        async def refuse(call: Call) -> None:
            known = call.path == "/mcp/"
            await call.answer(401 if known else 404, WWW_Authenticate=challenge)

        provider.scripts |= {"mcp": redirect, "none": refuse}
        login = await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert login.issuer == provider.issuer


async def test_a_challenge_is_requested_without_credentials_and_not_for_a_token_url() -> None:
    async with scripted_provider() as provider:
        await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        [call] = provider.of("mcp")
        assert "authorization" not in call.headers
        provider.calls.clear()
        settings = OAuthSettings(
            grant="client_credentials",
            client_id="c",
            client_secret="s",
            token_url=f"{provider.issuer}/token",
        )
        await OAuthAuthorizer(provider.url, settings).log_in()
        assert provider.steps == {"token": 1}


async def test_requests_use_the_token_of_a_login_whose_metadata_the_challenge_named() -> None:
    async with scripted_provider() as provider:
        publish_at_custom_place(provider)
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        assert await request(provider, authorizer) == (200, {"token": "access-1"})
