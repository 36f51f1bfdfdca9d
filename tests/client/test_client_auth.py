"""The `auth` argument of `MCPClient`, and timeouts while a user logs in."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.auth import (
    ApiKeyAuthorizer,
    AuthorizationRequest,
    AuthorizerBase,
    FileCredentialStore,
    MemoryCredentialStore,
    OAuthAuthorizer,
    OAuthSettings,
)
from fairlead.auth.server.server_auth import ServerAuth
from fairlead.errors import AuthorizationError, HttpError, LoginRequired
from tests.client.mcp_transport.test_network import serving
from tests.support.oidc_provider import Provider, running_provider
from tests.support.protected_server import ProtectedServer, protected_server

LIMIT = 60.0
SERVICE = {
    "client_id": "service",
    "client_secret": "a-secret",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}


@asynccontextmanager
async def protected(**options: Any) -> AsyncIterator[tuple[Provider, ProtectedServer]]:
    async with (
        asyncio.timeout(LIMIT),
        running_provider(**options) as provider,
        protected_server(provider.issuer) as server,
    ):
        yield provider, server


async def add(attempt: Any) -> str:
    async with attempt as client:
        text: str = (await client.call("add", {"a": 1, "b": 2})).text
        return text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path / "data" / "auth"


@pytest.mark.covers("AUT-04")
async def test_the_auth_callback_gets_the_login_page_to_open() -> None:
    async with protected() as (provider, server):
        assert await add(MCPClient.connect(server.url, auth=provider.user())) == "3"
        assert len(provider.visits) == 1


@pytest.mark.covers("AUT-02")
async def test_a_stored_login_is_used_without_user_interaction(home: Path) -> None:
    async with protected() as (provider, server):
        store = FileCredentialStore(home)
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        server.tokens.clear()
        assert await add(MCPClient.connect(server.url, auth="oauth")) == "3"
        assert await add(MCPClient.connect_http(server.url, auth="oauth")) == "3"
        entry = {"type": "http", "url": server.url, "auth": {"type": "oauth"}}
        assert await add(MCPClient.connect(entry)) == "3"
        assert None not in server.tokens


async def test_oauth_settings_obtain_a_token_without_user_interaction(home: Path) -> None:
    async with protected(clients=[SERVICE]) as (_, server):
        settings = OAuthSettings(
            grant="client_credentials", client_id="service", client_secret="a-secret"
        )
        assert await add(MCPClient.connect(server.url, auth=settings)) == "3"


async def test_an_auth_string_other_than_oauth_is_used_as_a_bearer_token() -> None:
    async with protected() as (provider, server):
        login = await OAuthAuthorizer(server.url, authorize=provider.user()).log_in()
        assert await add(MCPClient.connect(server.url, auth=login.tokens.access_token)) == "3"
        with pytest.raises(HttpError, match="401") as wrong:
            await add(MCPClient.connect(server.url, auth="wrong"))
        hint = "the server rejected the token; check `auth` or the `Authorization` header"
        assert wrong.value.hint == hint


async def test_the_error_without_a_login_says_how_to_log_in() -> None:
    async with protected() as (_, server):
        hint = (
            'the server requires a login: pass auth="oauth", which uses the login that '
            f"`fairlead login {server.url}` has stored, or opens the browser"
        )
        for attempt in (MCPClient.connect(server.url), MCPClient.connect_http(server.url)):
            with pytest.raises(HttpError, match="HTTP 401") as refused:
                await add(attempt)
            assert refused.value.hint == hint
            assert str(refused.value).endswith(f"\n  hint: {hint}")
            assert "hint" not in refused.value.summary


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_the_error_without_a_token_says_how_to_pass_it(scheme: str) -> None:
    async with serving(MCPServer("s"), auth_token="secret") as url:
        target = url if scheme == "http" else url.replace("http:", "ws:").replace("/mcp", "/ws")
        with pytest.raises(HttpError, match="HTTP 401") as refused:
            await MCPClient.connect(target)
        assert refused.value.hint == (
            'the server requires a token; pass auth="TOKEN", or '
            'headers={"Authorization": "Bearer TOKEN"}'
        )
        async with MCPClient.connect(target, auth="secret") as client:
            await client.ping()


async def test_an_auth_object_supplies_the_request_headers() -> None:
    async with protected() as (provider, server):
        login = await OAuthAuthorizer(server.url, authorize=provider.user()).log_in()

        class Fixed(AuthorizerBase):
            def current(self, method: str, url: str) -> Mapping[str, str]:
                return {"Authorization": f"Bearer {login.tokens.access_token}"}

            async def prepare(self, method: str, url: str) -> Mapping[str, str]:
                return self.current(method, url)

            async def challenged(self, *_: Any) -> bool:
                return False

        assert await add(MCPClient.connect(server.url, auth=Fixed())) == "3"


@pytest.mark.parametrize("auth", [3, ["oauth"]])
def test_an_auth_value_of_the_wrong_type_is_a_type_error(auth: Any) -> None:
    with pytest.raises(TypeError, match="expected 'oauth', a bearer token"):
        MCPClient.connect_http("http://127.0.0.1:1/mcp", auth=auth)


def test_auth_is_refused_for_local_programs() -> None:
    with pytest.raises(TypeError, match="auth applies to URLs only"):
        MCPClient.connect(["python", "server.py"], auth="oauth")


@pytest.mark.covers("AUT-02")
async def test_a_configured_header_is_used_instead_of_a_login(home: Path) -> None:
    async with protected() as (provider, server):
        store = FileCredentialStore(home)
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        server.tokens.clear()
        mine = {"authorization": "Bearer mine"}
        with pytest.raises(HttpError, match="401"):
            await add(MCPClient.connect(server.url, headers=mine, auth="oauth"))
        assert set(server.tokens) == {"mine"}


class FixedToken(AuthorizerBase):
    """A credential source with one token."""

    def current(self, method: str, url: str) -> Mapping[str, str]:
        return {"Authorization": "Bearer login"}

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        return self.current(method, url)

    async def challenged(self, *_: Any) -> bool:
        return False


@asynccontextmanager
async def recording_server() -> AsyncIterator[tuple[str, list[list[str]]]]:
    """Run a server that refuses all requests, and record their `Authorization` headers."""
    received: list[list[str]] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = [line.partition(": ") for line in head.split("\r\n")]
        received.append([value for name, _, value in fields if name.lower() == "authorization"])
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with asyncio.timeout(LIMIT), await asyncio.start_server(refuse, "127.0.0.1", 0) as site:
        yield f"://127.0.0.1:{site.sockets[0].getsockname()[1]}/mcp", received


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
@pytest.mark.parametrize("auth", [FixedToken(), OAuthSettings(), lambda _: "", "oauth"])
async def test_a_configured_header_in_any_spelling_is_used_instead_of_other_credentials(
    auth: Any, name: str, scheme: str
) -> None:
    async with recording_server() as (address, received):
        with pytest.raises(HttpError, match="401"):
            attempt = MCPClient.connect(scheme + address, headers={name: "Bearer mine"}, auth=auth)
            await add(attempt)
    assert received
    assert all(values == ["Bearer mine"] for values in received)


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_credentials_in_the_url_are_used_instead_of_other_credentials(scheme: str) -> None:
    async with recording_server() as (address, received):
        url = scheme + address.replace("//", "//me:pw@")
        with pytest.raises(HttpError, match="401"):
            await add(MCPClient.connect(url, auth=FixedToken()))
    assert received
    assert all(values == ["Basic bWU6cHc="] for values in received)


async def test_an_authorizer_among_the_http_options_replaces_a_configured_header() -> None:
    async with recording_server() as (address, received):
        options: Any = {"authorizer": FixedToken()}
        headers = {"authorization": "Bearer mine"}
        with pytest.raises(HttpError, match="401"):
            await add(MCPClient.connect_http("http" + address, headers=headers, http=options))
    assert received
    assert all(values == ["Bearer login"] for values in received)


# WebSocket


async def test_a_websocket_is_opened_with_a_token_that_is_renewed_after_a_401() -> None:
    async with protected() as (provider, server):
        url = server.url.replace("http:", "ws:").replace("/mcp", "/ws")
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        assert await add(MCPClient.connect_websocket(url, auth=authorizer)) == "3"
        for _ in range(2):
            server.revoked.add(str(server.tokens[-1]))
            assert await add(MCPClient.connect(url, auth=authorizer)) == "3"
        assert await provider.counts() == {"authorization_code 200": 1, "refresh_token 200": 2}


@pytest.mark.covers("AUT-02")
async def test_a_stored_login_is_used_over_http_with_sse(home: Path) -> None:
    async with asyncio.timeout(LIMIT), running_provider() as provider:
        program = MCPServer("sums", auth=ServerAuth(issuer=provider.issuer, scopes=["mcp:basic"]))
        program.tool(name="add")(_add)
        async with serving(program) as url:
            store = FileCredentialStore(home)
            place = url.replace("/mcp", "/sse")
            await OAuthAuthorizer(place, store=store, authorize=provider.user()).log_in()
            entry = {"type": "sse", "url": place}
            assert await add(MCPClient.connect(entry, auth="oauth")) == "3"
            assert await provider.counts() == {"authorization_code 200": 1}


async def _add(a: int, b: int) -> int:
    return a + b


# Time limits


class SlowPerson:
    """A user who logs in only after the time limits of the calls have passed."""

    def __init__(self, provider: Provider) -> None:
        self._log_in = provider.user()
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.arrives = asyncio.Event()
        self.visits = 0

    async def __call__(self, request: AuthorizationRequest) -> str:
        self.visits += 1
        self.asked.set()
        try:
            await self.arrives.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        redirect: str = await self._log_in(request)
        return redirect


@pytest.mark.parametrize("version", ["auto", "2025-06-18"])
async def test_connecting_does_not_time_out_while_the_user_logs_in(version: str) -> None:
    async with protected() as (provider, server):
        person = SlowPerson(provider)
        config = MCPClientConfig(timeout_seconds=1.5, protocol_version=version)
        opening = asyncio.ensure_future(add(MCPClient.connect(server.url, config, auth=person)))
        await person.asked.wait()
        # Wait longer than the timeout, because no event shows that it did not expire.
        await asyncio.wait((opening,), timeout=2.5)
        assert not opening.done()
        person.arrives.set()
        assert await opening == "3"


@pytest.mark.parametrize("version", ["auto", "2025-06-18"])
async def test_calls_do_not_time_out_while_the_user_logs_in(version: str) -> None:
    async with protected() as (provider, server):
        person = SlowPerson(provider)
        person.arrives.set()
        config = MCPClientConfig(timeout_seconds=1.5, protocol_version=version)
        async with MCPClient.connect(server.url, config, auth=person) as client:
            person.arrives.clear()
            person.asked.clear()
            server.required = {"mcp:write"}
            calls = [
                asyncio.ensure_future(client.call("add", {"a": number, "b": 1}))
                for number in range(3)
            ]
            await person.asked.wait()
            await asyncio.wait(calls, timeout=2.5)
            assert not any(call.done() for call in calls)
            person.arrives.set()
            assert [(await call).text for call in calls] == ["1", "2", "3"]
            assert person.visits == 2


async def test_a_login_is_cancelled_with_the_last_call_that_waits_for_it() -> None:
    async with protected() as (provider, server):
        person = SlowPerson(provider)
        authorizer = OAuthAuthorizer(server.url, authorize=person)
        attempts = [
            asyncio.ensure_future(add(MCPClient.connect(server.url, auth=authorizer)))
            for _ in range(2)
        ]
        await person.asked.wait()
        attempts[0].cancel()
        await asyncio.wait(attempts[:1])
        assert not person.cancelled.is_set()
        attempts[1].cancel()
        await person.cancelled.wait()
        assert person.visits == 1
        # A later call starts a new login.
        person.arrives.set()
        assert await add(MCPClient.connect(server.url, auth=authorizer)) == "3"


# API keys


@pytest.mark.covers("AUT-01")
async def test_a_stored_api_key_is_sent_and_its_refusal_does_not_start_a_login() -> None:
    async with protected() as (provider, server):
        token = (await OAuthAuthorizer(server.url, authorize=provider.user()).log_in()).tokens
        store = MemoryCredentialStore()
        key = ApiKeyAuthorizer(server.url, store=store, remedy="run `fairlead login notes`")
        with pytest.raises(LoginRequired, match="requires an API key: run `fairlead login notes`"):
            await add(MCPClient.connect(server.url, auth=key))
        await key.log_in(token.access_token)
        assert await add(MCPClient.connect(server.url, auth=key)) == "3"
        await key.log_in("wrong")
        with pytest.raises(AuthorizationError, match="rejected the stored API key"):
            await add(MCPClient.connect(server.url, auth=key))
        assert len(provider.visits) == 1
