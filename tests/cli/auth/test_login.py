"""`fairlead login`, `logout` and `auth status` with a real authorization server."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.oidc_provider import running_provider, visit
from tests.support.protected_server import protected_server

LIMIT = 60.0


class Fairlead:
    """The command with a home folder of its own."""

    def __init__(self, home: Path) -> None:
        self._env = {**os.environ, "FAIRLEAD_HOME": str(home), "BROWSER": "false"}
        self._env.pop("DISPLAY", None)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead", *arguments),
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = await self.start(*arguments)
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


async def log_in(fairlead: Fairlead, *arguments: str) -> tuple[int, str]:
    """Run `fairlead login` and visit the page that it prints."""
    process = await fairlead.start("login", *arguments)
    assert process.stdout is not None
    assert process.stderr is not None
    shown = ""
    while (found := re.search(r"^  (http\S+authorize\S*|http\S+/auth\?\S+)$", shown, re.M)) is None:
        line = await process.stderr.readline()
        assert line, shown
        shown += line.decode()
    [redirect_uri] = parse_qs(urlsplit(found[1]).query)["redirect_uri"]
    await fetch(await visit(found[1], redirect_uri, "alice"))
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def fetch(url: str) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as http, http.get(url) as reply:
        assert reply.status == 200


async def test_a_login_is_used_shown_and_ended_by_other_commands(tmp_path: Path) -> None:
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


async def test_a_local_program_needs_no_login(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    await fairlead("mcp", "add", "notes", "--", "python", "server.py")
    code, _, err = await fairlead("login", "notes")
    assert code == 2
    assert "notes is a local program, which needs no login" in err
