"""`fairlead login`, `logout` and `auth status` with a real authorization server."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from tests.support.certificates import self_signed
from tests.support.login_command import (
    Fairlead,
    ended,
    fetch,
    log_in,
    log_in_with_code,
    login_page,
)
from tests.support.oidc_provider import running_provider
from tests.support.protected_server import protected_server
from tests.support.scripted_provider import responding, scripted_provider

LIMIT = 60.0


async def test_a_stored_login_can_be_used_shown_and_deleted_by_commands(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        assert (await fairlead("auth", "status"))[1].startswith("No logins are stored")
        code, out = await log_in(fairlead, server.url, "--no-browser")
        assert code == 0
        assert f"Logged in to {server.url} at {provider.issuer}." in out

        code, out, err = await fairlead("call", "add", "a=1", "b=2", server.url)
        assert (code, out.strip()) == (0, "3"), err

        code, out, _ = await fairlead("auth", "status", "--json")
        [login] = json.loads(out)
        assert (login["server"], login["issuer"]) == (server.url, provider.issuer)
        assert login["renewable"] is True
        secrets = stored_secrets(tmp_path)
        assert not any(secret in out for secret in secrets)

        assert (await fairlead("logout", server.url))[1] == f"Logged out of {server.url}.\n"
        assert (await fairlead("auth", "status"))[1].startswith("No logins are stored")
        code, _, err = await fairlead("call", "add", "a=1", "b=2", server.url)
        assert code != 0
        assert "login" in err


def stored_secrets(home: Path) -> list[str]:
    from fairlead.auth.storage.file_store import FileCredentialStore

    [login] = FileCredentialStore(home / "data" / "auth").logins()
    tokens: Any = login.tokens
    return [tokens.access_token, tokens.refresh_token]


async def client_of(fairlead: Fairlead) -> str:
    """Return the client id of the only login, as the status command shows it."""
    _, out, _ = await fairlead("auth", "status", "--json")
    [login] = json.loads(out)
    client: str = login["client"]
    return client


@pytest.mark.covers("CMD-03")
@pytest.mark.slow
async def test_the_option_new_client_works_without_a_stored_login(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        clients = []
        for options in ([], [], ["--new-client"], []):
            arguments = (server.url, "--no-browser", *options)
            assert (await log_in(fairlead, *arguments, command="mcp reauth"))[0] == 0
            clients.append(await client_of(fairlead))
            assert (await fairlead("mcp", "unauth", server.url))[0] == 0
        first, second, third, fourth = clients
        assert first == second != third == fourth


@pytest.mark.slow
async def test_logins_by_browser_and_by_device_code_have_separate_registrations(
    tmp_path: Path,
) -> None:
    """A client that is registered for a browser may not use device codes."""
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        assert (await log_in(fairlead, server.url, "--no-browser"))[0] == 0
        browser = await client_of(fairlead)
        assert (await log_in_with_code(fairlead, server.url))[0] == 0
        device = await client_of(fairlead)
        code, out, err = await fairlead("call", "add", "a=1", "b=2", server.url)
        assert (code, out.strip()) == (0, "3"), err
        assert (await log_in(fairlead, server.url, "--no-browser"))[0] == 0
        assert await client_of(fairlead) == browser != device


async def test_a_local_program_needs_no_login(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    await fairlead("mcp", "add", "notes", "--", "python", "server.py")
    code, _, err = await fairlead("login", "notes")
    assert code == 2
    assert "notes is a local program, which needs no login" in err


async def test_a_pasted_redirect_completes_a_login(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        command = await fairlead.at_terminal("login", provider.url, "--no-browser")
        page = await command.shown(r"^  (http\S+/authorize\S*)$")
        assert await command.shown("paste the address of the page that it shows at the end:")
        query = parse_qs(urlsplit(page).query)
        [uri], [state] = query["redirect_uri"], query["state"]
        for wrong in ("hello", page, f"{uri}?code=c&state=of-another-login", "http://["):
            command.enter(wrong)
            await command.shown(
                "^login: this is not the page at the end of this login; paste the address that "
                f"begins with {uri}$"
            )
        command.enter(f"{uri}?code=c&state={state}&iss={provider.issuer}")
        await command.shown(f"^Logged in to {provider.url} at {provider.issuer}.$")
        assert await command.ended() == 0
        assert provider.steps["token"] == 1


async def test_logout_reports_that_tokens_could_not_be_revoked(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        store = FileCredentialStore(tmp_path / "data" / "auth")
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        provider.scripts["revoke"] = responding(503, "")
        assert await fairlead("logout", provider.url) == (
            0,
            f"Logged out of {provider.url}.\n",
            f"warning: {provider.issuer} refused the revocation of a login: HTTP 503\n",
        )


async def test_the_error_of_a_failed_logout_contains_the_reason(tmp_path: Path) -> None:
    fairlead, folder = Fairlead(tmp_path), tmp_path / "data" / "auth"
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        store = FileCredentialStore(folder)
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        (folder / "sealing.key").write_bytes(b"damaged")
        assert await fairlead("logout", provider.url) == (
            1,
            "",
            f"error: Logout failed: the credential store cannot be used: {folder}/sealing.key is "
            "damaged: delete it and log in again\n",
        )


async def test_a_login_at_a_server_with_its_own_certificate_says_what_to_set(
    tmp_path: Path,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path))

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with asyncio.timeout(LIMIT):
        server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        code, _, err = await Fairlead(tmp_path)("login", f"https://127.0.0.1:{port}/mcp")
        server.close()
    assert code == 1
    assert "hint: the certificate is self-signed or its issuer is unknown: set SSL_CERT" in err


async def test_a_login_prints_the_remaining_time_at_regular_intervals(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    program = "from fairlead.auth.client import interactive_login\n"
    program += "interactive_login.PROGRESS = 0.05\ninteractive_login.LOGIN_TIMEOUT = 100.0\n"
    program += "from fairlead.cli.main import main\nmain()\n"
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        process = await fairlead.python("-c", program, "login", provider.url, "--no-browser")
        page = await login_page(process)
        assert process.stderr is not None
        lines = [(await process.stderr.readline()).decode() for _ in range(4)]
        assert set(lines[1:]) == {"login: still waiting for the login; 2 minutes left\n"}
        query = parse_qs(urlsplit(page).query)
        [uri], [state] = query["redirect_uri"], query["state"]
        await fetch(f"{uri}?code=c&state={state}&iss={provider.issuer}")
        code, out = await ended(process)
        assert (code, out.splitlines()[0]) == (
            0,
            f"Logged in to {provider.url} at {provider.issuer}.",
        )
