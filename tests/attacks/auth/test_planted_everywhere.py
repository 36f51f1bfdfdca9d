"""Secrets in every input of a gateway, which are searched for in everything that it writes.

Every server repeats the secrets that it received, as a faulty or hostile server would.
"""

import asyncio
import os
import re
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from tests.attacks.auth.test_planted_keys import call_all, own_store, running_gateway, shown
from tests.attacks.auth.test_planted_secrets import MARK, assert_no_mark, marked
from tests.support.scripted_http_server import Call, raw_server, stateless_server
from tests.support.scripted_provider import ScriptedProvider, scripted_provider

LIMIT = 60.0
FILE = """
admin_token = "root"
journal = true
metrics = true
record = "monday"
rules = "{rules}"
[servers.login]
url = "{login}"
[servers.service]
url = "{service}"
[servers.service.auth]
type = "oauth"
grant = "client_credentials"
tokenUrl = "{token_url}"
clientId = "c"
clientSecret = "service-PLANTED"
[servers.workload]
url = "{workload}"
auth = {{ type = "oauth", tokenUrl = "{token_url}", assertionFile = "{assertion}" }}
[servers.configured]
url = "{configured}"
headers = {{ X-Api-Key = "header-PLANTED" }}
[servers.intended]
command = "{python}"
args = ["{program}"]
auth = {{ resource = "{login}" }}
[servers.other]
command = "{python}"
args = ["{program}"]
"""
RULES = """
[[rules]]
name = "log everything"
do = {{ audit = {{ path = "{audit}", payloads = "always" }} }}
"""
# A local server that shows its arguments and its environment.
PROGRAM = """
import os, sys
from fairlead import MCPServer
server = MCPServer("local")

@server.tool()
async def show() -> str:
    print("on stderr:", dict(os.environ), file=sys.stderr, flush=True)
    return f"hello {sys.argv} {list(os.environ.values())}"

server.run()
"""


class QuotingServer:
    """A server with one tool that quotes the headers of its requests, and other secrets."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = secrets
        self.credentials: set[str] = set()

    async def __call__(self, call: Call) -> None:
        async def serve(call: Call) -> None:
            if call.rpc != "tools/call":
                tool = {"name": "quote", "inputSchema": {"type": "object"}}
                page = {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
                await call.result({"resultType": "complete", **page})
                return
            headers = {"authorization", "dpop", "x-api-key"} & set(call.headers)
            sent = [call.headers[name].rpartition(" ")[2] for name in sorted(headers)]
            self.credentials.update(sent)
            text = " and ".join(["hello", *sent, *self.secrets])
            content = [{"type": "text", "text": text}]
            await call.result({"resultType": "complete", "content": content})

        if {"authorization", "x-api-key"} & set(call.headers):
            await stateless_server(serve)(call)
        else:
            await call.answer(401, WWW_Authenticate="Bearer")


async def bound_login(home: Path, provider: ScriptedProvider) -> str:
    """Store a login with a DPoP key, and return the private part of the key."""
    marked(provider)
    provider.token["token_type"] = "DPoP"
    user = provider.user(code=f"code-{MARK}")
    settings = OAuthSettings(dpop=True)
    store = own_store(home)
    login = await OAuthAuthorizer(provider.url, settings, store=store, authorize=user).log_in()
    assert login.dpop_key is not None
    del provider.token["token_type"]
    return str(login.dpop_key["d"])


def command_lines() -> str:
    """Return the arguments of all processes, which every user of a machine can read."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue  # the process has ended
    return "\n".join(found)


@pytest.mark.covers("AUT-05")
@pytest.mark.slow
async def test_output_and_files_of_a_gateway_contain_no_secret_of_any_kind(tmp_path: Path) -> None:
    home, audit = tmp_path / "home", tmp_path / "audit.jsonl"
    program, assertion = tmp_path / "program.py", tmp_path / "assertion"
    program.write_text(PROGRAM)
    assertion.write_text(f"assertion-{MARK}")
    service = QuotingServer(f"service-{MARK}")
    workload = QuotingServer(f"assertion-{MARK}")
    configured = QuotingServer()
    async with (
        asyncio.timeout(LIMIT),
        scripted_provider() as provider,
        raw_server(service) as one,
        raw_server(workload) as two,
        raw_server(configured) as three,
    ):
        key = await bound_login(home, provider)
        quoting = QuotingServer(key, f"refresh-{MARK}", f"dynamic-{MARK}")
        provider.scripts["mcp"] = quoting
        rules, file = tmp_path / "rules.toml", tmp_path / "gateway.toml"
        rules.write_text(RULES.format(audit=audit))
        file.write_text(
            FILE.format(
                rules=rules,
                login=provider.url,
                service=one.url,
                workload=two.url,
                configured=three.url,
                token_url=f"{provider.issuer}/token",
                assertion=assertion,
                python=sys.executable,
                program=program,
            )
        )
        async with running_gateway(home, file) as (url, output):
            results = await call_all(url)
            pages = await shown(
                url.removesuffix("/mcp"),
                *("/admin/journal", "/admin/metrics", "/metrics", "/admin/servers", "/status"),
            )
            lines = command_lines()
    # Every server got its own credentials.
    assert {f"access-{MARK}"} < quoting.credentials
    assert service.credentials == workload.credentials == {f"access-{MARK}"}
    assert configured.credentials == {f"header-{MARK}"}
    assert f"access-{MARK}" in str(results["intended_show"])
    # The environment of this process has no secrets, so neither has that of another server.
    assert "hello" in str(results["other_show"])
    assert MARK not in str(results["other_show"])
    [tape] = [path for path in home.rglob("*.tape.jsonl") if "monday" in path.name]
    written = [*pages, *output, audit.read_text(), tape.read_text(), lines]
    assert "hello" in pages[0]
    assert "hello" in tape.read_text()
    assert "login_quote" in audit.read_text()
    for text in written:
        assert MARK not in text
        assert key not in text
    assert_no_mark(home)


@pytest.mark.parametrize("device", [False, True])
async def test_output_and_files_of_a_login_command_contain_no_secret(
    tmp_path: Path, device: bool
) -> None:
    async def codes(call: Call) -> None:
        await call.json(
            {
                "device_code": f"device-{MARK}",
                "user_code": "ABCD-EFGH",
                "verification_uri": f"{provider.issuer}/device",
                "interval": 1,
            }
        )

    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        marked(provider)
        provider.scripts["device"] = codes
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead", "login", provider.url, "--no-browser"),
            *(["--device"] if device else []),
            env={**os.environ, "FAIRLEAD_HOME": str(tmp_path), "BROWSER": "false"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        output = ""
        if not device:
            while (found := re.search(r"http\S+/authorize\?\S+", output)) is None:
                line = await process.stdout.readline()
                assert line, output
                output += line.decode()
            query = parse_qs(urlsplit(found[0]).query)
            redirect = f"{query['redirect_uri'][0]}?code=code-{MARK}&state={query['state'][0]}"
            async with aiohttp.ClientSession() as http:
                async with http.get(f"{redirect}&iss={provider.issuer}") as page:
                    output += await page.text()
        output += command_lines()
        output += (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    [form] = provider.forms()
    sent = {"device_code": f"device-{MARK}"} if device else {"code": f"code-{MARK}"}
    assert sent.items() <= form.items()
    assert MARK not in output
    assert form.get("code_verifier", MARK) not in output
    assert_no_mark(tmp_path)
