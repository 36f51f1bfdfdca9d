"""Server URLs with secrets, which reach the server only: no error, log, file or other server."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from fairlead.auth.client.api_key import ApiKeyAuthorizer
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.storage.sealing_key import SealingKey
from fairlead.errors import AuthorizationError
from tests.attacks.auth.test_planted_secrets import MARK, assert_no_mark, causes, run, serve_tools
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import ScriptedProvider, responding, scripted_provider

LIMIT = 60.0
QUERY = f"?api_key=key-{MARK}&k={MARK}"


def own_store(home: Path) -> FileCredentialStore:
    folder = home / "data" / "auth"
    return FileCredentialStore(folder, SealingKey(folder, use_keyring=False))


def marked_url(provider: ScriptedProvider, place: str) -> str:
    if place == "user":
        return provider.url.replace("http://", f"http://me:{MARK}@")
    return provider.url + QUERY


async def default_endpoints(call: Call) -> None:
    if call.path == "/register":
        await call.json({"client_id": "c"}, 201)
    else:
        await call.answer(404)


CASES: dict[str, dict[str, Any]] = {
    "success": {},
    "another resource": {"protected": {"resource": f"https://h/mcp{QUERY}"}},
    "older revision": {"scripts": {"resource": responding(404, ""), "none": default_endpoints}},
    "refused token": {"scripts": {"token": responding(400, '{"error": "invalid_request"}')}},
}


@pytest.mark.attack(
    "a server URL with a secret in its query or user name",
    "logins, resource parameters and messages use the URL without credentials and query",
    "no secret in requests to the authorization server, logs, errors, output and files",
)
@pytest.mark.parametrize("place", ["query", "user"])
@pytest.mark.parametrize("case", CASES)
async def test_a_login_sends_no_secret_of_the_server_url_and_does_not_log_it(
    case: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    async with scripted_provider() as provider:
        for name, value in CASES[case].items():
            getattr(provider, name).update(value)
        url = marked_url(provider, place)
        authorizer = OAuthAuthorizer(url, store=own_store(tmp_path), authorize=provider.user())
        try:
            texts += [repr(await authorizer.log_in())]
        except AuthorizationError as exc:
            texts += [str(exc), repr(exc), str(vars(exc)), *causes(exc)]
        texts += [repr(visit) for visit in provider.visits]
        texts += [f"{call.path} {call.headers} {call.body!r}" for _, call in provider.calls]
    assert MARK not in unquote(caplog.text + "".join(texts))
    assert_no_mark(tmp_path)


async def test_the_file_of_an_api_key_contains_no_secret_of_the_server_url(tmp_path: Path) -> None:
    await ApiKeyAuthorizer(f"https://h/mcp{QUERY}", store=own_store(tmp_path)).log_in("key-1")
    other = ApiKeyAuthorizer(f"https://h/mcp{QUERY}", store=own_store(tmp_path))
    assert await other.access_token() == "key-1"
    assert_no_mark(tmp_path)


async def test_commands_use_the_login_of_a_url_with_secrets_and_do_not_print_them(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        provider.token = {"access_token": f"access-{MARK}"}
        provider.scripts["mcp"] = serve_tools
        url = provider.url + QUERY
        store = own_store(tmp_path)
        await OAuthAuthorizer(url, store=store, authorize=provider.user()).log_in()
        provider.metadata = {"authorization_endpoint": "ftp://h"}
        output = [
            await run(tmp_path, "auth", "status"),
            await run(tmp_path, "auth", "status", "--json"),
            await run(tmp_path, "tools", url),
            await run(tmp_path, "logout", url),
        ]
        del provider.scripts["mcp"]
        output += [await run(tmp_path, "tools", url), await run(tmp_path, "login", url)]
    assert "marked_tool" in output[2]
    assert json.loads(output[1])[0]["server"] == provider.url
    assert "Logged out" in output[3]
    assert f"fairlead login {provider.url}" in output[4]
    assert "Login failed" in output[5]
    assert MARK not in "\n".join(output)
    assert_no_mark(tmp_path)


async def test_a_configured_server_with_secrets_in_its_url_is_listed_without_them(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        entry = {"url": provider.url + QUERY}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
        user = provider.user()
        output = [await run(tmp_path, "call", "notes", "x")]
        store = own_store(tmp_path)
        await OAuthAuthorizer(str(entry["url"]), store=store, authorize=user).log_in()
        output += [await run(tmp_path, *words.split()) for words in ("auth status", "list")]
    assert "fairlead login notes" in output[0]
    assert "notes" in output[1]
    assert f"key-{MARK}" not in "\n".join(output)
