"""Credentials of the clients of a server or gateway, and the secret of its introspection client.

Each contains a mark, which is searched for in everything that the server writes, shows and answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest

from fairlead import Context, MCPServer
from fairlead.auth.server.server_auth import Introspection, ServerAuth
from tests.attacks.auth.test_planted_secrets import MARK, assert_no_mark
from tests.support.gateway_servers import free_port, make
from tests.support.gateway_servers import serving as serving_at
from tests.support.http_server import BOTH, serving, stateless
from tests.support.login_command import Fairlead
from tests.support.scripted_http_server import Call, raw_server

LIMIT = 60.0
SECRET, STATIC = f"client-{MARK}", f"static-{MARK}"
FILE = """
listen = "127.0.0.1:{port}"
admin_token = "root"
journal = true
metrics = true
rules = "{rules}"
[servers.red]
url = "{upstream}"
[clients.static]
token_env = "STATIC"
[auth]
issuer = "{issuer}"
public_url = "http://127.0.0.1:{port}"
audience = "here"
dpop = "allowed"
[auth.introspection]
url = "{introspection}"
client_id = "gateway"
client_secret_env = "SECRET"
[[auth.rules]]
scopes = "use"
client = "users"
"""
RULES = """
[[rules]]
name = "log everything"
do = {{ audit = {{ path = "{audit}", payloads = "always" }} }}
"""
PAGES = ["/admin/journal", "/admin/metrics", "/metrics", "/admin/sessions", "/status", "/"]


async def introspect(call: Call) -> None:
    """Accept the tokens of Ann; quote the request in the responses for all others."""
    kind = parse_qs(call.body.decode())["token"][0].partition("-")[0]
    quoted = f"{call.headers} {call.body.decode()}"
    known = {"active": True, "aud": "here", "scope": "use", "exp": 9_999_999_999}
    match kind:
        case "good":
            await call.json({**known, "sub": "ann", "client_id": "app", "jti": MARK})
        case "unscoped":
            await call.json({**known, "sub": "ann", "client_id": "app", "scope": "none"})
        case "bound":
            await call.json({**known, "sub": "ann", "client_id": "app", "cnf": {"jkt": MARK}})
        case "foreign":
            await call.json({**known, "sub": "ann", "iss": quoted, "aud": quoted})
        case "broken":
            await call.json({"error": quoted}, 500)
        case _:
            await call.json({"active": False, "reason": quoted})


KINDS = ["good", "unscoped", "bound", "foreign", "broken", "revoked"]
AUTHORIZATIONS = [
    *(f"Bearer {kind}-{MARK}" for kind in KINDS),
    f"Bearer {STATIC}",
    f"Bearer {MARK} {MARK}",
    f"Bearer {MARK}é",
    f"Bearer {MARK * 3000}",
    f"DPoP bound-{MARK}",
    f"DPoP good-{MARK}",
    f"Basic {MARK}",
    MARK,
]


async def use(http: aiohttp.ClientSession, base: str, prefix: str) -> list[str]:
    """Send requests with all credentials to all entry points; return the responses."""
    found: list[str] = []
    for authorization in AUTHORIZATIONS:
        sent = {"Authorization": authorization, "DPoP": f"{MARK}.{MARK}.{MARK}", "Accept": BOTH}
        for tool in ("who", "missing"):
            body, more = stateless("tools/call", {"name": prefix + tool, "arguments": {}})
            found.append(await text_of(http.post(f"{base}/mcp", json=body, headers=more | sent)))
        for path in ("/sse", "/ws", "/tools", "/", "/status", "/messages?session_id=1"):
            async with http.get(base + path, headers=sent) as reply:
                text = "" if reply.content_type == "text/event-stream" else await reply.text()
                found.append(f"{reply.status} {reply.headers} {text}")
    return found


async def shown(http: aiohttp.ClientSession, base: str) -> list[str]:
    headers = {"Authorization": f"Bearer {STATIC}", "X-Admin-Token": "root"}
    pages = [await text_of(http.get(base + path, headers=headers)) for path in PAGES]
    assert {page.partition(" ")[0] for page in pages} == {"200"}
    return pages


async def text_of(sending: Any) -> str:
    async with sending as reply:
        return f"{reply.status} {reply.headers} {await reply.text()}"


@contextlib.asynccontextmanager
async def running_gateway(folder: Path, audit: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """Run a gateway; yield its origin and, at the end, its output."""
    rules, file, port = folder / "rules.toml", folder / "gateway.toml", free_port()
    rules.write_text(RULES.format(audit=audit))
    output: list[str] = []
    async with serving_at(make("red")) as upstream, raw_server(introspect) as asked:
        places = {"upstream": upstream, "introspection": asked.url}
        issuer = f"http://127.0.0.1:{port}/issuer"
        file.write_text(FILE.format(port=port, rules=rules, issuer=issuer, **places))
        fairlead = Fairlead(folder / "home", STATIC=STATIC, SECRET=SECRET)
        gateway = await fairlead.start("gateway", str(file), "--json", "--verbose")
        try:
            assert gateway.stdout is not None
            output.append((await gateway.stdout.readuntil(b"\n}\n")).decode())
            yield f"http://127.0.0.1:{port}", output
        finally:
            gateway.terminate()
            output += [text.decode() for text in await gateway.communicate()]


@pytest.mark.attack(
    "tokens and proofs in every state, and an introspection endpoint that quotes its requests",
    "texts never quote tokens; secrets of the settings are removed by value",
    "no credential in metrics, journal, audit log, pages, output, files and responses",
)
@pytest.mark.covers("AUT-06")
@pytest.mark.slow
async def test_output_and_files_of_a_gateway_contain_no_credential_of_its_clients(
    tmp_path: Path,
) -> None:
    audit = tmp_path / "audit.jsonl"
    async with (
        asyncio.timeout(LIMIT),
        running_gateway(tmp_path, audit) as (base, output),
        aiohttp.ClientSession() as http,
    ):
        answers = await use(http, base, "red_")
        pages = await shown(http, base)
    statuses = {answer.partition(" ")[0] for answer in answers}
    assert {"200", "400", "401", "403", "503"} <= statuses
    assert any("red " in answer for answer in answers)
    assert "red_who" in audit.read_text()
    assert "ann" in audit.read_text()
    assert MARK not in "\n".join([*answers, *pages, *output, audit.read_text()])
    assert_no_mark(tmp_path)


@pytest.mark.covers("AUT-06")
async def test_output_and_responses_of_a_server_contain_no_credential_of_its_clients(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asyncio.timeout(LIMIT), raw_server(introspect) as asked:
        auth = ServerAuth(
            introspection=Introspection(url=asked.url, client_id="s", client_secret=SECRET),
            tokens={STATIC: "static"},
            audience="here",
            dpop="allowed",
        )
        server = MCPServer("red", auth=auth, rate_limit_rate=0)

        @server.tool(scopes="use")
        async def who(ctx: Context) -> str:
            return f"red {ctx.principal} {ctx.scopes}"

        async with serving(server) as web:
            answers = await use(web.http, web.url.removesuffix("/mcp"), "")
    assert any("red oauth:" in answer for answer in answers)
    written = "\n".join([*answers, caplog.text, *capfd.readouterr(), repr(auth)])
    assert MARK not in written
