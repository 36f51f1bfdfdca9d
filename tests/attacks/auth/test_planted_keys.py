"""API keys, logins and headers printed by helper programs, which a gateway uses for its servers.

Each secret contains a mark, which is searched for in the journal, metrics, audit log, output and
files of the gateway.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.auth.client.api_key import ApiKeyAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.storage.sealing_key import SealingKey
from tests.attacks.auth.test_planted_secrets import MARK, assert_no_mark, log_in, run
from tests.support.scripted_http_server import Call, raw_server, stateless_server
from tests.support.scripted_provider import scripted_provider

LIMIT = 60.0
ADMIN = {"X-Admin-Token": "root"}
GATEWAY = """
admin_token = "root"
journal = true
metrics = true
rules = "{rules}"
[servers.login]
url = "{login}"
[servers.key]
url = "{key}"
auth = {{ type = "apikey" }}
[servers.helper]
url = "{helper}"
headersHelper = "{command}"
"""
RULES = """
[[rules]]
name = "log everything"
do = {{ audit = {{ path = "{audit}", payloads = "always" }} }}
"""
# Prints another token each time.
HELPER = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = len(count.read_text()) + 1 if count.exists() else 1
count.write_text("x" * number)
print(json.dumps({"Authorization": f"Bearer helper-PLANTED-{number}"}))
"""


class TokenServer:
    """A server with one tool that accepts some tokens and shows the credentials that it got."""

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self.accepts = accepts
        self.tokens: list[str] = []
        self.paths: set[str] = set()

    async def __call__(self, call: Call) -> None:
        self.paths.add(call.path)
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens.append(token)
        if not self.accepts(token):
            place = "http://127.0.0.1:1/.well-known/oauth-protected-resource"
            await call.answer(401, WWW_Authenticate=f'Bearer resource_metadata="{place}"')
            return

        async def tools(call: Call) -> None:
            if call.rpc == "tools/call":
                # Some servers quote the credentials that they got in texts of their results.
                text = f"hello {token}, not refresh-{MARK} or dynamic-{MARK}"
                await call.result(
                    {"resultType": "complete", "content": [{"type": "text", "text": text}]}
                )
            else:
                tool = {"name": "quote", "inputSchema": {"type": "object"}}
                page = {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
                await call.result({"resultType": "complete", **page})

        await stateless_server(tools)(call)


def own_store(home: Path) -> FileCredentialStore:
    folder = home / "data" / "auth"
    return FileCredentialStore(folder, SealingKey(folder, use_keyring=False))


def helper_command(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / "helper.py"
    program.write_text(HELPER)
    return f"{sys.executable} {program} {folder / 'count'}"


@contextlib.asynccontextmanager
async def running_gateway(home: Path, file: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """Run a gateway; yield its URL and, at the end, its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlead", "gateway", str(file), "--port", "0", "--json"),
        env={**os.environ, "FAIRLEAD_HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    output: list[str] = []
    try:
        output.append((await process.stdout.readuntil(b"\n}\n")).decode())
        yield json.loads(output[0][output[0].index("{") :])["url"], output
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        output.append((await process.communicate())[0].decode())


async def shown(base: str, *paths: str) -> list[str]:
    async with aiohttp.ClientSession(headers=ADMIN) as http:
        texts = []
        for path in paths:
            async with http.get(f"{base}{path}") as reply:
                assert reply.status == 200, path
                texts.append(await reply.text())
        return texts


@pytest.mark.covers("AUT-05")
@pytest.mark.attack(
    "servers behind a gateway that quote the credentials of their requests",
    "secrets of logins, keys and printed headers are removed by value",
    "no secret in the journal, metrics, audit log, admin API, output and files",
)
@pytest.mark.slow
async def test_output_and_files_of_a_gateway_contain_no_credential_for_its_servers(
    tmp_path: Path,
) -> None:
    home, audit = tmp_path / "home", tmp_path / "audit.jsonl"
    keyed = TokenServer(lambda token: token == f"key-{MARK}")
    helped = TokenServer(lambda token: token == f"helper-{MARK}-2")
    async with (
        asyncio.timeout(LIMIT),
        scripted_provider() as provider,
        raw_server(keyed) as key,
        raw_server(helped) as helper,
    ):
        await log_in(home, provider)
        logged_in = TokenServer(lambda token: token == f"access-{MARK}")
        provider.scripts["mcp"] = logged_in
        await ApiKeyAuthorizer(key.url, store=own_store(home)).log_in(f"key-{MARK}")
        file = tmp_path / "gateway.toml"
        command = helper_command(tmp_path / "programs")
        places = {"login": provider.url, "key": key.url, "helper": helper.url}
        rules = tmp_path / "rules.toml"
        rules.write_text(RULES.format(audit=audit))
        file.write_text(GATEWAY.format(**places, command=command, rules=rules))
        async with running_gateway(home, file) as (url, output):
            results = await call_all(url)
            base = url.removesuffix("/mcp")
            pages = await shown(
                base, "/admin/journal", "/admin/metrics", "/metrics", "/admin/servers", "/status"
            )
    assert set(results) == {"login_quote", "key_quote", "helper_quote"}, output
    assert f"access-{MARK}" in logged_in.tokens
    # The helper was run again after the 401, and no metadata of a login were requested.
    assert f"helper-{MARK}-2" in helped.tokens
    assert helped.paths == keyed.paths == {"/mcp"}
    assert "tools/call" in pages[0]
    assert "helper_quote" in audit.read_text()
    assert MARK not in "\n".join([*pages, *output, audit.read_text()])
    assert_no_mark(home)


async def call_all(url: str) -> dict[str, Any]:
    async with MCPClient.connect_http(url) as client:
        return {tool.name: await client.call(tool.name) for tool in await client.tools()}


async def test_a_tape_contains_no_token_that_its_server_repeats(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        await log_in(tmp_path, provider)
        provider.scripts["mcp"] = TokenServer(lambda token: token == f"access-{MARK}")
        command = [sys.executable, "-m", "fairlead", "record", "monday", provider.url]
        environment = {"FAIRLEAD_HOME": str(tmp_path)}
        # With a fixed version, the client does not start the command twice if it begins slowly.
        config = MCPClientConfig(protocol_version="2026-07-28")
        async with MCPClient.connect_stdio(command, config, env=environment) as client:
            result = await client.call("quote")
    assert f"hello access-{MARK}" in str(result)  # the client gets the text unchanged
    [tape] = [path for path in tmp_path.rglob("*.tape.jsonl") if "monday" in path.name]
    assert "hello [REDACTED]" in tape.read_text()
    assert_no_mark(tmp_path)


async def test_commands_run_a_header_helper_again_after_a_401_and_do_not_print_keys(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    keyed = TokenServer(lambda token: token == f"key-{MARK}")
    helped = TokenServer(lambda token: token == f"helper-{MARK}-2")
    async with asyncio.timeout(LIMIT), raw_server(keyed) as key, raw_server(helped) as helper:
        servers = {
            "key": {"url": key.url, "auth": {"type": "apikey"}},
            "helper": {
                "url": helper.url,
                "headersHelper": helper_command(tmp_path / "programs"),
            },
        }
        home.mkdir()
        (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        output = [
            await run(home, "login", "key", messages=f"key-{MARK}\n"),
            await run(home, "tools", "key"),
            await run(home, "tools", "helper"),
            await run(home, "auth", "status", "--json"),
            await run(home, "mcp", "test", "key"),
            await run(home, "mcp", "list", "--json"),
        ]
        keyed.accepts = lambda token: False
        output.append(await run(home, "tools", "key"))
    assert "Stored the API key for key." in output[0]
    assert "quote" in output[1]
    assert "quote" in output[2]
    assert "rejected the stored API key" in output[-1]
    assert helped.paths == keyed.paths == {"/mcp"}
    assert MARK not in "\n".join(output)
    assert_no_mark(home)
