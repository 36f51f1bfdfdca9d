"""Each grant at a real authorization server, from our client to our server and gateway, in both
eras.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.auth import MemoryCredentialStore, OAuthAuthorizer, OAuthSettings
from fairlead.auth.authorization_code import begin_attempt, code_of
from fairlead.auth.client.authorization_discovery import discover_issuer
from fairlead.auth.client.oauth_settings import EnterpriseLogin
from fairlead.auth.guarded_fetch import GuardedFetcher
from fairlead.auth.server.server_auth import ServerAuth
from fairlead.auth.storage.credential_store import CredentialStore
from fairlead.errors import AuthorizationError
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.auth.client.test_oauth_authorizer import DevicePrompt
from tests.support.gateway_servers import free_port, until
from tests.support.gateway_servers import serving as serving_at
from tests.support.http_server import serving
from tests.support.oidc_provider import Provider, running_provider, visit
from tests.support.scripted_http_server import Call, raw_server

LIMIT = 60.0
KEY = ECKey.generate_key("P-256")
CALLBACK = "http://127.0.0.1/callback"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ROBOT: dict[str, Any] = {
    "client_id": "robot",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}
PROTECTED = pytest.mark.covers("AUT-04", "AUT-06")
VERSIONS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
PLACES = pytest.mark.parametrize("place", ["server", "gateway"])
FILE = """
[auth]
issuer = "{issuer}"
public_url = "{url}"
scopes = ["mcp:basic"]
dpop = "{dpop}"
[[auth.rules]]
client = "users"
"""


@asynccontextmanager
async def protected(
    options: dict[str, Any] | None = None, place: str = "server", **settings: Any
) -> AsyncIterator[tuple[Provider, str]]:
    """Run a provider with options, and an endpoint that accepts its tokens; yield its URL."""
    async with asyncio.timeout(LIMIT), running_provider(ttl=3600, **(options or {})) as provider:
        if place == "gateway":
            async with protected_gateway(provider, settings.get("dpop", "off")) as url:
                yield provider, url
            return
        auth = ServerAuth(issuer=provider.issuer, scopes=["mcp:basic"], **settings)
        server = MCPServer("protected", auth=auth, rate_limit_rate=0)

        @server.tool()
        async def whoami(ctx: Context) -> str:
            return str(ctx.subject)

        @server.tool(scopes="mcp:write")
        async def write() -> str:
            return "written"

        async with serving(server) as web:
            yield provider, web.url


@asynccontextmanager
async def protected_gateway(provider: Provider, dpop: str) -> AsyncIterator[str]:
    """Run a gateway; yield the URL of its server, whose tool returns the user at the gateway."""
    users: list[str | None] = []

    async def note(exchange: Exchange, proceed: Proceed) -> Answer:
        users.append(exchange.caller.subject)
        return await proceed(exchange)

    plain = MCPServer("plain", rate_limit_rate=0)

    @plain.tool()
    async def whoami() -> str:
        return str(users[-1])

    base = f"http://127.0.0.1:{(port := free_port())}"
    text = FILE.format(issuer=provider.issuer, url=base, dpop=dpop)
    with TemporaryDirectory() as folder:
        Path(folder, "gateway.toml").write_text(text)
        file = read_gateway_file(Path(folder, "gateway.toml"))
    access = ClientAccess(file)
    async with (
        serving(plain) as upstream,
        Gateway(settings=file.settings, roles=file.role_views, interceptors=[note]) as gateway,
        serving_at(gateway, port=port, auth=access.access()),
    ):
        await gateway.connect({"plain": {"type": "http", "url": upstream.url}})
        await until(lambda: gateway.is_ready)
        yield f"{base}/mcp/plain"


async def call(authorizer: OAuthAuthorizer, url: str, version: str, tool: str = "whoami") -> str:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_http(url, config, http={"authorizer": authorizer}) as client:
        assert client.protocol_version == version
        await client.call(tool)
        # Again, because the first call may have been repeated after a challenge.
        return (await client.call(tool)).text


def expire(store: CredentialStore) -> None:
    [login] = store.logins()
    tokens = msgspec.structs.replace(login.tokens, expires_at=1.0)
    store.save(msgspec.structs.replace(login, tokens=tokens))


@PROTECTED
@VERSIONS
@PLACES
async def test_the_authorization_code_grant_obtains_and_renews_a_token(
    version: str, place: str
) -> None:
    async with protected(place=place) as (provider, url):
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(url, store=store, authorize=provider.user())
        assert await call(first, url, version) == "alice"
        expire(store)
        assert await call(OAuthAuthorizer(url, store=store), url, version) == "alice"
        assert await provider.counts() == {"authorization_code 200": 1, "refresh_token 200": 1}


@PROTECTED
@VERSIONS
@PLACES
async def test_the_authorization_code_grant_supports_pushed_requests(
    version: str, place: str
) -> None:
    async with protected({"requirePar": True}, place) as (provider, url):
        authorizer = OAuthAuthorizer(url, authorize=provider.user())
        assert await call(authorizer, url, version) == "alice"
        [page] = provider.visits
        query = parse_qs(urlsplit(page.url).query)
        assert query.keys() == {"client_id", "request_uri"}
        assert await provider.counts() == {"authorization_code 200": 1}


@PROTECTED
@VERSIONS
@PLACES
async def test_the_device_code_grant_obtains_and_renews_a_token(version: str, place: str) -> None:
    async with protected(place=place) as (provider, url):
        prompt, store = DevicePrompt(), MemoryCredentialStore()
        settings = OAuthSettings(grant="device_code")
        first = OAuthAuthorizer(url, settings, store=store, prompt=prompt)
        assert await call(first, url, version) == "alice"
        await prompt.confirming
        expire(store)
        assert await call(OAuthAuthorizer(url, settings, store=store), url, version) == "alice"
        assert (await provider.counts())["refresh_token 200"] == 1


@PROTECTED
@VERSIONS
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
@PLACES
async def test_the_client_credentials_grant_obtains_and_renews_a_token(
    version: str, method: str, place: str
) -> None:
    settings = OAuthSettings(grant="client_credentials", client_id="robot")
    client = {**ROBOT, "token_endpoint_auth_method": method}
    if method == "private_key_jwt":
        client["jwks"] = {"keys": [KEY.as_dict(private=False)]}
        client["token_endpoint_auth_signing_alg"] = "ES256"
        pem = KEY.as_pem(private=True).decode()
        settings = msgspec.structs.replace(settings, private_key=pem)
    else:
        client["client_secret"] = "a-secret"
        settings = msgspec.structs.replace(settings, client_secret="a-secret")
    async with protected({"clients": [client]}, place) as (provider, url):
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(url, settings, store=store)
        assert await call(first, url, version) == "robot"
        assert await provider.counts() == {"client_credentials 200": 1}
        # Without a refresh token, a renewal is another request with the same credentials.
        expire(store)
        second = OAuthAuthorizer(url, settings, store=store)
        assert await call(second, url, version) == "robot"
        assert await provider.counts() == {"client_credentials 200": 2}


@PROTECTED
@VERSIONS
@PLACES
async def test_bound_tokens_are_obtained_renewed_and_accepted_with_nonces(
    version: str, place: str
) -> None:
    """The provider and our server demand nonces; the gateway demands only proofs."""
    options = {"dpopNonce": True}
    async with protected(options, place, dpop="required", dpop_nonce=True) as (provider, url):
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(url, store=store, authorize=provider.user())
        assert await call(first, url, version) == "alice"
        [login] = store.logins()
        assert login.tokens.token_type == "DPoP"
        assert login.dpop_key is not None
        expire(store)
        assert await call(OAuthAuthorizer(url, store=store), url, version) == "alice"
        counts = await provider.counts()
        # Each exchange was first refused with a nonce, and repeated with it.
        assert (counts["authorization_code 200"], counts["refresh_token 200"]) == (1, 1)
        assert (counts["authorization_code 400"], counts["refresh_token 400"]) == (1, 1)
        assert len(provider.visits) == 1


@PROTECTED
@VERSIONS
async def test_a_call_of_a_tool_that_needs_more_scopes_causes_another_login(version: str) -> None:
    async with protected() as (provider, url):
        authorizer = OAuthAuthorizer(url, authorize=provider.user())
        assert await call(authorizer, url, version) == "alice"
        assert "mcp:write" not in provider.visits[0].scopes
        assert await call(authorizer, url, version, "write") == "written"
        assert {"mcp:basic", "mcp:write"} <= set(provider.visits[1].scopes)
        assert len(provider.visits) == 2


@PROTECTED
@VERSIONS
@PLACES
async def test_a_client_may_be_identified_by_its_metadata_document(
    version: str, place: str
) -> None:
    name = "https://client.example/fairlead.json"
    document = {
        "client_id": name,
        "client_name": "Fairlead",
        "application_type": "native",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }

    async def publish(request: Call) -> None:
        await request.json(document)

    async with raw_server(publish) as documents:
        # The provider fetches the documents of all hosts from this one.
        options = {"cimd": True, "dcr": False, "fetchVia": f"{documents.url}?url="}
        async with protected(options, place) as (provider, url):
            store = MemoryCredentialStore()
            settings = OAuthSettings(client_metadata_url=name)
            first = OAuthAuthorizer(url, settings, store=store, authorize=provider.user())
            assert await call(first, url, version) == "alice"
            [login] = store.logins()
            assert login.client.client_id == name
            expire(store)
            second = OAuthAuthorizer(url, settings, store=store)
            assert await call(second, url, version) == "alice"
    assert documents.calls


@PROTECTED
@VERSIONS
@PLACES
async def test_the_enterprise_grant_obtains_a_token_with_the_login_at_a_company(
    version: str, place: str
) -> None:
    """A user logs in at the company's provider; no page of the server's provider is opened."""
    company = {
        "client_id": "company",
        "client_secret": "company-secret",
        "token_endpoint_auth_method": "client_secret_post",
        "application_type": "native",
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", TOKEN_EXCHANGE],
    }
    robot = {**ROBOT, "client_secret": "a-secret", "grant_types": [JWT_BEARER]}
    async with running_provider(clients=[company], idJagClients={"company": "robot"}) as idp:
        options = {"clients": [robot], "trustedIssuer": idp.issuer}
        async with protected(options, place) as (provider, url):
            settings = OAuthSettings(
                grant="enterprise",
                client_id="robot",
                client_secret="a-secret",
                enterprise=EnterpriseLogin(
                    token_endpoint=f"{idp.issuer}/token",
                    client_id="company",
                    client_secret="company-secret",
                    id_token=await id_token(idp),
                ),
            )
            store = MemoryCredentialStore()
            first = OAuthAuthorizer(url, settings, store=store)
            assert await call(first, url, version) == "alice"
            expire(store)
            assert await call(OAuthAuthorizer(url, settings, store=store), url, version) == "alice"
            # Without a refresh token, a renewal is another exchange of the same ID token.
            assert (await idp.counts())[f"{TOKEN_EXCHANGE} 200"] == 2
            assert await provider.counts() == {f"{JWT_BEARER} 200": 2}


async def id_token(idp: Provider) -> str:
    """Log in at a provider, and return the user's ID token."""
    fetcher = GuardedFetcher(allow_loopback=True)
    attempt, _ = begin_attempt(
        await discover_issuer(fetcher, idp.issuer),
        client_id="company",
        redirect_uri=CALLBACK,
        scopes=["openid"],
        resource=None,
    )
    form = {
        "grant_type": "authorization_code",
        "code": code_of(attempt, await visit(attempt.url, CALLBACK, "alice")),
        "redirect_uri": CALLBACK,
        "code_verifier": attempt.verifier,
        "client_id": "company",
        "client_secret": "company-secret",
    }
    found = await fetcher.post_form(f"{idp.issuer}/token", form)
    return str((found.document or {})["id_token"])


@PROTECTED
@VERSIONS
@PLACES
async def test_a_workload_obtains_a_token_with_an_assertion_of_its_platform(
    version: str, place: str
) -> None:
    async with workload(place) as (provider, url, settings):
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(url, settings(), store=store)
        assert await call(first, url, version) == "a-workload"
        expire(store)
        # The provider accepts each assertion once, so a renewal reads a new one.
        second = OAuthAuthorizer(url, settings(), store=store)
        assert await call(second, url, version) == "a-workload"
        assert await provider.counts() == {f"{JWT_BEARER} 200": 2}


@PROTECTED
@pytest.mark.parametrize("change", [{"exp": 1}, {"aud": "https://another.example"}])
async def test_a_refused_assertion_of_a_platform_is_sent_only_once(change: dict[str, Any]) -> None:
    async with workload("server") as (provider, url, settings):
        authorizer = OAuthAuthorizer(url, settings(**change))
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="invalid_grant"):
                await call(authorizer, url, "2026-07-28")
        assert await provider.counts() == {f"{JWT_BEARER} 400": 1}


@asynccontextmanager
async def workload(
    place: str,
) -> AsyncIterator[tuple[Provider, str, Callable[..., OAuthSettings]]]:
    """Run a provider that trusts the platform of a workload; yield a function for settings."""
    client = {**ROBOT, "grant_types": [JWT_BEARER], "token_endpoint_auth_method": "none"}
    trusted = {"platform": {**KEY.as_dict(private=False), "alg": "ES256"}}
    options = {"clients": [client], "trusted": trusted, "workload": "robot"}
    async with protected(options, place) as (provider, url):

        def settings(**change: Any) -> OAuthSettings:
            def assertion() -> str:
                now = int(time.time())
                claims = {"sub": "a-workload", "aud": provider.issuer, "exp": now + 60}
                return jwt.encode(
                    {"alg": "ES256"}, {**claims, "jti": secrets.token_hex(8), **change}, KEY
                )

            return OAuthSettings(grant="jwt_bearer", assertion=assertion)

        yield provider, url, settings
