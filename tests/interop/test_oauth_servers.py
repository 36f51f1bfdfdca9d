"""Our client logs in to servers of other projects.

A server of the official SDK with an authorization server of its own, and FastMCP with tokens of a
real provider: checked directly (`JWTVerifier`), or issued by its proxy (`OAuthProxy`).
"""

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import OAuthProxy, RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from key_value.aio.stores.memory import MemoryStore
from mcp.server import MCPServer as OfficialServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from fairlead import MCPClient, MCPClientConfig
from fairlead.auth import MemoryCredentialStore, OAuthAuthorizer
from fairlead.auth.client.interactive_login import AuthorizationRequest
from tests.support.interop.official_http_servers import on_uvicorn
from tests.support.oidc_provider import running_provider, visit

LIMIT = 60.0
LIFETIME = 3600
SCOPE = "mcp:basic"
VERSIONS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])


class OwnProvider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Authorization server inside of a server of the official SDK; every user consents."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()

    def _issue(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        about: dict[str, Any] = {
            "client_id": str(client.client_id),
            "scopes": scopes,
            "resource": resource,
        }
        expires = int(time.time()) + LIFETIME
        self.access[access] = AccessToken(token=access, expires_at=expires, **about)
        self.refresh[refresh] = RefreshToken(token=refresh, **about)
        return OAuthToken(
            access_token=access,
            expires_in=LIFETIME,
            refresh_token=refresh,
            scope=" ".join(scopes),
        )


class Person:
    """A user who logs in at every page that a client opens."""

    def __init__(self) -> None:
        self.visits: list[AuthorizationRequest] = []

    async def __call__(self, request: AuthorizationRequest) -> str:
        self.visits.append(request)
        return await visit(request.url, request.redirect_uri, "alice")


@contextlib.asynccontextmanager
async def reserved_port() -> AsyncIterator[tuple[socket.socket, str]]:
    """Listen on a free port, for a server whose settings must contain its own URL."""
    async with asyncio.timeout(LIMIT):
        listening = socket.create_server(("127.0.0.1", 0))
        yield listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


async def echo(text: str) -> str:
    return text


async def call(url: str, authorizer: OAuthAuthorizer, version: str) -> str:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_http(url, config, http={"authorizer": authorizer}) as client:
        assert client.protocol_version == version
        return (await client.call("echo", {"text": "hello"})).text


async def log_in_and_renew(url: str, version: str) -> MemoryCredentialStore:
    """Call a tool after a login, and again after the access token has expired."""
    person, store = Person(), MemoryCredentialStore()
    authorizer = OAuthAuthorizer(url, store=store, authorize=person)
    assert await call(url, authorizer, version) == "hello"
    [login] = store.logins()
    expired = msgspec.structs.replace(login.tokens, expires_at=1.0)
    store.save(msgspec.structs.replace(login, tokens=expired))
    assert await call(url, OAuthAuthorizer(url, store=store), version) == "hello"
    [renewed] = store.logins()
    assert renewed.generation == login.generation + 1
    assert renewed.tokens.access_token != login.tokens.access_token
    assert len(person.visits) == 1
    return store


@pytest.mark.covers("AUT-04")
@VERSIONS
async def test_fairlead_logs_in_to_an_official_server_with_its_own_authorization_server(
    version: str,
) -> None:
    async with reserved_port() as (listening, base):
        url, provider = f"{base}/mcp", OwnProvider()
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(url),
            validate_token_resource=True,
            required_scopes=[SCOPE],
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE]
            ),
            revocation_options=RevocationOptions(enabled=True),
        )
        server = OfficialServer(
            "official", auth=settings, auth_server_provider=provider, log_level="CRITICAL"
        )
        server.add_tool(echo)
        with on_uvicorn(server.streamable_http_app(), listening):
            store = await log_in_and_renew(url, version)
            # A token that the server no longer knows is renewed after a response 401.
            provider.access.clear()
            authorizer = OAuthAuthorizer(url, store=store)
            assert await call(url, authorizer, version) == "hello"
            assert await authorizer.log_out()
            assert provider.refresh == {}
        assert len(provider.clients) == 1


@pytest.mark.covers("AUT-04")
@VERSIONS
async def test_fairlead_logs_in_to_a_fastmcp_server_that_verifies_tokens_of_a_provider(
    version: str,
) -> None:
    async with reserved_port() as (listening, base), running_provider(ttl=LIFETIME) as provider:
        url = f"{base}/mcp"
        verifier = token_verifier(provider.issuer, url)
        # As text: `AnyHttpUrl` adds a slash to an issuer without a path, and the published issuer
        # then differs from that of the provider.
        issuers: list[Any] = [provider.issuer]
        auth = RemoteAuthProvider(verifier, issuers, base)
        with on_uvicorn(fastmcp_app(auth), listening):
            await log_in_and_renew(url, version)
        assert await provider.counts() == {"authorization_code 200": 1, "refresh_token 200": 1}


@pytest.mark.covers("AUT-04")
@VERSIONS
async def test_fairlead_logs_in_to_a_fastmcp_server_with_an_oauth_proxy(version: str) -> None:
    async with reserved_port() as (listening, base):
        client = {
            "client_id": "proxy",
            "client_secret": "proxy-secret",
            "redirect_uris": [f"{base}/auth/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
        }
        async with running_provider(ttl=LIFETIME, clients=[client]) as provider:
            url, issuer = f"{base}/mcp", provider.issuer
            auth = OAuthProxy(
                upstream_authorization_endpoint=f"{issuer}/auth",
                upstream_token_endpoint=f"{issuer}/token",
                upstream_client_id="proxy",
                upstream_client_secret="proxy-secret",
                token_verifier=token_verifier(issuer, url),
                base_url=base,
                client_storage=MemoryStore(),
                jwt_signing_key=b"k" * 32,
            )
            with on_uvicorn(fastmcp_app(auth), listening):
                await log_in_and_renew(url, version)


def token_verifier(issuer: str, url: str) -> JWTVerifier:
    return JWTVerifier(
        jwks_uri=f"{issuer}/jwks",
        issuer=issuer,
        audience=url,
        algorithm="ES256",
        required_scopes=[SCOPE],
    )


def fastmcp_app(auth: Any) -> Any:
    server = FastMCP("fastmcp", auth=auth)
    server.tool(echo)
    return server.http_app()
