"""Authorization servers that fail, beside servers that work."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.tool_session import create_tool_session
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from tests.manager.test_discover_tools import write
from tests.support.scripted_http_server import Call, stateless_server
from tests.support.scripted_provider import (
    ScriptedProvider,
    hang,
    request,
    responding,
    scripted_provider,
)

LIMIT = 30.0


def serve_tool(provider: ScriptedProvider) -> None:
    """Serve one tool to clients with an accepted token."""

    async def tools(call: Call) -> None:
        if call.rpc == "tools/call":
            content = [{"type": "text", "text": "done"}]
            await call.result({"resultType": "complete", "content": content})
        else:
            tool = {"name": "work", "inputSchema": {"type": "object"}}
            page = {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
            await call.result({"resultType": "complete", **page})

    async def serve(call: Call) -> None:
        token = call.headers.get("authorization", "").partition(" ")[2]
        if token in provider.accepted - provider.refused:
            await stateless_server(tools)(call)
        else:
            await provider._mcp(call)

    provider.scripts["mcp"] = serve


async def log_in(provider: ScriptedProvider, store: MemoryCredentialStore) -> None:
    await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


BROKEN = {
    "hangs": hang,
    "is down": responding(503, "<h1>Unavailable</h1>", "text/html"),
    "sends garbage": responding(200, b"\xff\x00{" * 100),
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
async def test_an_authorization_server_that_fails_during_a_renewal_affects_no_other_server(
    script: Any,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("fairlead.auth.guarded_fetch.DOCUMENT_TIMEOUT", 2.0)
    store = MemoryCredentialStore()
    async with asyncio.timeout(LIMIT), scripted_provider() as good, scripted_provider() as bad:
        serve_tool(good)
        serve_tool(bad)
        bad.token = {"expires_in": 0}
        await log_in(good, store)
        await log_in(bad, store)
        before = store.load("", bad.url)
        bad.scripts["token"] = script
        servers = {"good": {"url": good.url}, "bad": {"url": bad.url}}
        write(home / ".cursor" / "mcp.json", {"mcpServers": servers})
        session = await create_tool_session(
            tmp_path,
            auth_storage=store,
            cache=MCPToolCache(MemoryStore()),
            startup="background",
            enable_project_config=False,
        )
        async with session:
            await until(lambda: session.mcp_tools)
            [tool] = session.mcp_tools
            assert tool.mcp_server_name == "good"
            manager = session.mcp_manager
            assert isinstance(manager, MCPManager)
            if script is hang:
                await until(lambda: bad.steps["token"] == 2)
                assert manager.get_connection_status("bad") == "connecting"
            assert (await tool.execute({})).text == "done"
            # The renewal ends in an error, in time.
            await until(lambda: "127.0.0.1" in caplog.text and "bad" in caplog.text)
    assert store.load("", bad.url) == before
    assert (good.steps["token"], len(good.visits), len(bad.visits)) == (1, 1, 1)


async def test_a_renewal_without_a_response_times_out_and_keeps_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.auth.guarded_fetch.DOCUMENT_TIMEOUT", 0.5)
    store = MemoryCredentialStore()
    async with scripted_provider() as provider:
        provider.token = {"expires_in": 0}
        await log_in(provider, store)
        provider.token = {}
        before = store.logins()
        provider.scripts["token"] = hang
        with pytest.raises(AuthorizationError, match=r"127\.0\.0\.1:\d+: no response") as caught:
            await request(provider, OAuthAuthorizer(provider.url, store=store))
        assert (caught.value.step, caught.value.temporary) == ("renewal", True)
        assert store.logins() == before
        del provider.scripts["token"]
        renewed = await request(provider, OAuthAuthorizer(provider.url, store=store))
        assert renewed == (200, {"token": "access-2"})


# Two authorization servers, one of which publishes false metadata.


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ("authorization_endpoint", "authorize"),
        ("token_endpoint", "token"),
        ("registration_endpoint", "register"),
        ("revocation_endpoint", "revoke"),
    ],
)
async def test_a_server_gets_no_codes_or_tokens_by_publishing_endpoints_of_another_server(
    member: str, path: str
) -> None:
    """The user sees the page of the honest server, whose code must not reach the other one."""
    async with scripted_provider() as honest, scripted_provider() as evil:
        evil.metadata = {member: f"{honest.issuer}/{path}"}
        evil.token = {"access_token": "evil-access", "refresh_token": "evil-refresh"}
        store = MemoryCredentialStore()
        await log_in(honest, store)

        def visit(login: Any) -> str:
            # The page that is shown belongs to the server that its URL leads to.
            own = honest if login.url.startswith(honest.origin) else evil
            return own.redirect(login, code=f"code-of-{own.origin}")

        authorizer = OAuthAuthorizer(evil.url, store=store, authorize=visit)
        if path == "authorize":
            with pytest.raises(AuthorizationError, match="another authorization server"):
                await authorizer.log_in()
            assert evil.steps["token"] == 0
        else:
            await authorizer.log_in()
            await authorizer.log_out()
        for _, call in evil.calls:
            sent = f"{call.path} {call.body.decode()} {call.headers}"
            for secret in (f"code-of-{honest.origin}", "access-1", "refresh-1"):
                assert secret not in sent
        [login] = [login for login in store.logins() if login.url == honest.url]
        assert login.issuer == honest.issuer
