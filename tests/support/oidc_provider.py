"""A real authorization server (`oidc-provider` from npm), and a user who fills in its forms.

The tests are skipped if Node or npm is missing, except in CI.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest

from fairlead.auth.client.interactive_login import AuthorizationRequest

PROGRAM = Path(__file__).with_suffix(".mjs")
REPOSITORY = Path(__file__).parents[2]
HOME = Path(os.environ.get("FAIRLEAD_CACHE") or REPOSITORY / ".cache") / "oidc-provider"
PACKAGES = ("oidc-provider@9.13", "jose@6")
START = 30.0  # seconds


def install() -> Path:
    """Install the packages once for all test processes, and return their folder."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        if os.environ.get("CI") == "true":
            raise RuntimeError("Node and npm are required in CI")
        pytest.skip("needs Node and npm")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = HOME / "installed"
        if not done.exists() or done.read_text() != str(PACKAGES):
            (HOME / "package.json").write_text('{"private": true, "type": "module"}')
            command = [npm, "install", "--no-audit", "--no-fund", "--silent", *PACKAGES]
            subprocess.run(command, cwd=HOME, check=True, timeout=300)
            done.write_text(str(PACKAGES))
    return HOME


@contextlib.asynccontextmanager
async def running_provider(**options: Any) -> AsyncIterator["Provider"]:
    """Run the provider with command-line options such as `ttl` (seconds) or `cimd`."""
    home = await asyncio.to_thread(install)
    # The program must be next to `node_modules`, where Node looks for packages.
    program = home / PROGRAM.name
    if not program.exists() or program.read_bytes() != PROGRAM.read_bytes():
        fresh = program.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(PROGRAM.read_bytes())
        fresh.replace(program)
    process = await asyncio.create_subprocess_exec(
        *("node", str(program)),
        env={**os.environ, "OPTIONS": json.dumps(options), "NODE_NO_WARNINGS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            issuer = ""
            while not issuer:
                line = await process.stdout.readline()
                assert line, "the provider has ended"
                with contextlib.suppress(ValueError):
                    issuer = json.loads(line)["issuer"]
        yield Provider(issuer)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


class Provider:
    """A running provider and its users."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.visits: list[AuthorizationRequest] = []  # requests that scripted users received

    async def counts(self) -> dict[str, int]:
        """Return the number of requests for each grant, by `grant status`."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer}/count") as reply:
            return await reply.json()  # type: ignore[no-any-return]

    def user(self, name: str = "alice") -> Any:
        """Return an `authorize` callback: a user who logs in and consents."""

        async def authorize(request: AuthorizationRequest) -> str:
            self.visits.append(request)
            return await visit(request.url, request.redirect_uri, name)

        return authorize


async def confirm_code(url: str, name: str = "alice") -> None:
    """Log in and confirm a device code on its page, which has no form at the end."""
    with pytest.raises(AssertionError, match="Sign-in Success|200"):
        await visit(url, "nowhere:", name)


async def visit(url: str, redirect_uri: str, name: str) -> str:
    """Open a page as a browser does, fill in its forms, and return the final redirect."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        form: dict[str, str] | None = None
        for _ in range(20):
            method = "GET" if form is None else "POST"
            async with http.request(method, url, data=form, allow_redirects=False) as reply:
                text = await reply.text()
                location = reply.headers.get("Location")
            if location is not None:
                url, form = urljoin(url, location), None
                if url.startswith(redirect_uri):
                    return url
                continue
            assert reply.status == 200, (reply.status, text[:500])
            action = re.search(r'<form[^>]*action="([^"]*)"', text)
            assert action is not None, text[:500]
            hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text)
            # `action` is the button of the consent page of FastMCP.
            form = {**dict(hidden), "login": name, "password": "x", "action": "approve"}
            url = urljoin(url, action[1])
    raise AssertionError("too many pages")
