"""Discovery of an authorization server, and the fallback of revision 2025-03-26."""

from typing import Any

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    Script,
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)

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
