"""Client secrets that contain a mark, which no output, log or file may contain."""

import asyncio
import json
import logging
import os
import sys
from base64 import b64decode
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec
import pytest
from joserfc.jwk import ECKey

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import EnterpriseLogin, OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.storage.sealing_key import SealingKey
from fairlead.errors import AuthorizationError
from tests.auth.storage.test_file_store import LOGIN
from tests.support.cli_process import talk
from tests.support.scripted_http_server import Call, stateless_server
from tests.support.scripted_provider import Script, ScriptedProvider, request, scripted_provider

MARK = "PLANTED"
LIMIT = 60.0


def marked(provider: ScriptedProvider) -> None:
    """Configure a provider so that every secret it issues contains the mark."""
    provider.token = {
        "access_token": f"access-{MARK}",
        "refresh_token": f"refresh-{MARK}",
        "id_token": f"id-{MARK}",
    }

    async def register(call: Call) -> None:
        secret = {"client_secret": f"dynamic-{MARK}", "registration_access_token": f"r-{MARK}"}
        await call.json({"client_id": "c", **secret}, 201)

    provider.scripts["register"] = register


async def echo(call: Call) -> None:
    """Refuse a request and quote it in the error, as some providers do."""
    quoted = f"{call.body.decode()} {call.headers}"
    await call.json(
        {"error": "invalid_request", "error_description": quoted, "message": quoted}, 400
    )


async def echo_as_code(call: Call) -> None:
    """Send a secret of the request as the error code, which messages contain."""
    form = dict(parse_qsl(call.body.decode()))
    if "Basic " in (header := call.headers.get("authorization", "")):
        form["basic"] = b64decode(header.partition(" ")[2]).decode().partition(":")[2]
    await call.json(
        {"error": next((form[name] for name in SECRET_FIELDS if name in form), "x")}, 400
    )


async def echo_as_status_line(call: Call) -> None:
    """Send the request back instead of an HTTP response."""
    await call.raw(b"HTTP/1.1 " + call.body + b"\r\n\r\n")


async def echo_as_redirect(call: Call) -> None:
    await call.answer(307, Location=f"https://{call.body.decode()}/?{call.body.decode()}")


SECRET_FIELDS = ("basic", "client_secret", "code", "refresh_token", "assertion", "subject_token")
ECHOES = [echo, echo_as_code, echo_as_status_line, echo_as_redirect]


def settings_of(kind: str) -> OAuthSettings:
    pem = ECKey.generate_key("P-256").as_pem(private=True).decode()
    match kind:
        case "secret":
            return OAuthSettings(client_id="c", client_secret=f"client-{MARK}")
        case "service":
            return OAuthSettings(
                grant="client_credentials", client_id="c", client_secret=f"client-{MARK}"
            )
        case "key":
            return OAuthSettings(grant="client_credentials", client_id="c", private_key=pem)
        case "workload":
            return OAuthSettings(grant="jwt_bearer", assertion=f"assertion-{MARK}")
        case "enterprise":
            company = EnterpriseLogin(
                token_endpoint="", client_id="c", id_token=f"id-{MARK}", client_secret=f"i-{MARK}"
            )
            return OAuthSettings(grant="enterprise", client_id="c", enterprise=company)
        case _:
            return OAuthSettings()


KINDS = ["dynamic", "secret", "service", "key", "workload", "enterprise"]


@pytest.mark.attack(
    "an authorization server that quotes the request, with its secrets, in its error",
    "only the HTTP status or an error code without spaces is shown",
    "no secret in logs, errors, output, tapes and files",
)
@pytest.mark.parametrize("step", ["nothing", "token", "register", "metadata", "resource"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("echo", ECHOES)
async def test_logs_and_errors_of_a_login_contain_no_secrets(
    kind: str, step: str, echo: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """At one step, the authorization server quotes the request and its secrets in its error."""
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    async with scripted_provider() as provider:
        marked(provider)
        provider.scripts[step] = echo
        settings = settings_of(kind)
        if settings.enterprise is not None:
            company = msgspec.structs.replace(
                settings.enterprise, token_endpoint=f"{provider.issuer}/token"
            )
            settings = msgspec.structs.replace(settings, enterprise=company)
        user = provider.user(code=f"code-{MARK}")
        for _ in range(2):
            authorizer = OAuthAuthorizer(provider.url, settings, authorize=user)
            try:
                await request(provider, authorizer)
            except AuthorizationError as exc:
                texts += [str(exc), repr(exc), str(vars(exc)), *causes(exc)]
    written = "\n".join([caplog.text, *texts])
    assert MARK not in written
    for form in provider.forms():
        for name in ("code_verifier", "client_assertion", "refresh_token"):
            assert form.get(name, MARK) not in written
    assert "PRIVATE KEY" not in written


def causes(exc: BaseException) -> list[str]:
    cause = exc.__cause__ or exc.__context__
    return [] if cause is None else [repr(cause), *causes(cause)]


@pytest.mark.parametrize("echo", ECHOES)
async def test_logs_and_errors_of_a_failed_renewal_contain_no_secrets(
    echo: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted_provider() as provider:
        marked(provider)
        provider.token["expires_in"] = 0
        store = MemoryCredentialStore()
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        provider.refused.add(f"access-{MARK}")
        provider.scripts["token"] = echo
        with pytest.raises(AuthorizationError) as caught:
            await request(provider, OAuthAuthorizer(provider.url, store=store))
    assert MARK not in caplog.text + str(caught.value) + "".join(causes(caught.value))


@pytest.mark.parametrize("text", [f"the secret client-{MARK} is wrong", f"a\nb {MARK}", "x" * 5000])
async def test_an_error_code_with_spaces_or_of_excessive_length_is_not_shown(text: str) -> None:
    """Some servers send a sentence with request values where a code without spaces is expected."""

    async def refuse(call: Call) -> None:
        await call.json({"error": text}, 400)

    async with scripted_provider() as provider:
        provider.scripts["token"] = refuse
        with pytest.raises(AuthorizationError) as caught:
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert MARK not in str(caught.value)
        assert "HTTP 400" in str(caught.value)
        assert len(str(caught.value)) < 300


def test_the_repr_of_login_records_contains_no_secrets() -> None:
    """Tracebacks and assertions print the `repr` of values."""
    settings = OAuthSettings(client_secret="a-secret", private_key="b-secret", assertion="c-secret")
    company = EnterpriseLogin(
        token_endpoint="x", client_id="c", id_token="d-secret", client_secret="e-secret"
    )
    for value in (LOGIN, LOGIN.tokens, LOGIN.client, settings, company):
        assert "secret-" not in repr(value)
        assert "-secret" not in repr(value)


async def run(home: Path, *arguments: str, messages: str = "") -> str:
    """Run a command and return all of its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlead", *arguments),
        env={**os.environ, "FAIRLEAD_HOME": str(home), "BROWSER": "false"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(messages.encode())
    return out.decode()


async def serve_tools(call: Call) -> None:
    """Serve one tool without sessions to requests with the marked token, and refuse all others."""

    async def tools(call: Call) -> None:
        tool = {"name": "marked_tool", "inputSchema": {"type": "object"}}
        await call.result(
            {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}
        )

    if call.headers.get("authorization") == f"Bearer access-{MARK}":
        await stateless_server(tools)(call)
    else:
        await call.answer(401, WWW_Authenticate="Bearer")


def assert_no_mark(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert MARK.encode() not in path.read_bytes(), path


async def log_in(home: Path, provider: ScriptedProvider) -> None:
    folder = home / "data" / "auth"
    store = FileCredentialStore(folder, SealingKey(folder, use_keyring=False))
    marked(provider)
    provider.scripts["mcp"] = serve_tools
    user = provider.user(code=f"code-{MARK}")
    await OAuthAuthorizer(provider.url, store=store, authorize=user).log_in()


@pytest.mark.covers("AUT-05")
async def test_command_output_and_files_contain_no_secrets_of_a_login(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        await log_in(tmp_path, provider)
        output = [
            await run(tmp_path, "auth", "status"),
            await run(tmp_path, "auth", "status", "--json"),
            await run(tmp_path, "tools", provider.url, "--verbose"),
            await run(tmp_path, "tools", provider.url, "--json"),
            await run(tmp_path, "logout", provider.url),
        ]
        [revocation] = provider.forms("revoke")
        assert revocation["token"] == f"refresh-{MARK}"
    assert json.loads(output[1])[0]["server"] == provider.url
    # This output shows that the stored token was used.
    assert "marked_tool" in output[2]
    assert MARK not in "\n".join(output)
    assert_no_mark(tmp_path)


async def test_a_tape_of_a_protected_server_contains_no_token(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        await log_in(tmp_path, provider)
        messages = talk({"id": 1, "method": "tools/list"})
        output = await run(tmp_path, "record", "monday", provider.url, messages=messages)
    assert any(MARK in call.headers.get("authorization", "") for call in provider.of("mcp")), output
    assert MARK not in output
    tapes = [path for path in tmp_path.rglob("*") if "monday" in path.name]
    assert tapes
    assert_no_mark(tmp_path)


async def test_local_servers_do_not_receive_tokens_of_other_servers(tmp_path: Path) -> None:
    """A local server can read its arguments and its environment."""
    report = tmp_path / "report.json"
    program = tmp_path / "server.py"
    program.write_text(
        "import json, os, sys\n"
        f"json.dump([sys.argv, dict(os.environ)], open({str(report)!r}, 'w'))\n"
    )
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        await log_in(tmp_path, provider)
        await run(tmp_path, "tools", "--", sys.executable, str(program))
    assert "PATH" in report.read_text()
    assert_no_mark(tmp_path)
