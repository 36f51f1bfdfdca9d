"""Logins of one user at the same server in two terminals or programs at once."""

import asyncio
import json
from pathlib import Path

from tests.support.login_command import Fairlead, complete, ended, log_in, login_page
from tests.support.oidc_provider import running_provider
from tests.support.protected_server import protected_server

LIMIT = 60.0
# A program that opens a browser if no login is stored.
PROGRAM = """
import asyncio, sys
from fairlead import MCPClient

async def main():
    async with MCPClient.connect(sys.argv[1], auth="oauth") as client:
        print((await client.call("add", {"a": 1, "b": 2})).text)

asyncio.run(main())
"""
# The same program as if it ran at a terminal, so that it waits for the login.
AT_TERMINAL = f"""
import sys
from fairlead.auth.client import interactive_login
interactive_login._has_terminal = lambda: True
{PROGRAM}
"""


async def test_two_concurrent_login_commands_end_when_one_login_is_completed(
    tmp_path: Path,
) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        first = await fairlead.start("login", server.url, "--no-browser")
        pages = [await login_page(first)]
        second = await fairlead.start("login", server.url, "--no-browser")
        assert second.stderr is not None
        said = (await second.stderr.readline()).decode()
        assert said.startswith("login: another program waits for a login to 127.0.0.1:")
        pages.append(await login_page(second))
        await complete(pages[1])
        for process in (first, second):
            code, out = await ended(process)
            assert (code, out.splitlines()[0]) == (
                0,
                f"Logged in to {server.url} at {provider.issuer}.",
            )
        assert await provider.counts() == {"authorization_code 200": 1}
        code, out, err = await fairlead("call", "add", "a=1", "b=2", server.url)
        assert (code, out.strip()) == (0, "3"), err


async def test_the_login_that_is_completed_last_replaces_the_other_one(tmp_path: Path) -> None:
    """The other program wanted other scopes, so its user completes it as well."""
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        narrow = await fairlead.start("login", server.url, "--no-browser", "--scope", "mcp:basic")
        page = await login_page(narrow)
        assert (await log_in(fairlead, server.url, "--no-browser"))[0] == 0
        await complete(page)
        assert (await ended(narrow))[0] == 0
        [login] = json.loads((await fairlead("auth", "status", "--json"))[1])
        assert login["scopes"] == ["mcp:basic"]


async def test_a_waiting_program_uses_the_login_made_with_the_login_command(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        program = await fairlead.python("-c", AT_TERMINAL, server.url)
        await login_page(program)
        assert (await log_in(fairlead, server.url, "--no-browser"))[0] == 0
        assert await ended(program) == (0, "3\n")


async def test_a_program_without_browser_and_terminal_fails_with_the_login_command(
    tmp_path: Path,
) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        program = await fairlead.python("-c", PROGRAM, server.url)
        _, err = await program.communicate()
        assert program.returncode == 1
        last = err.decode().splitlines()[-1]
        assert "requires a login; no browser can be opened here, and there is no terminal" in last
        assert last.endswith(f": run `fairlead login {server.url}`")


async def test_a_login_command_without_a_browser_suggests_the_device_option(
    tmp_path: Path,
) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        process = await fairlead.start("login", server.url)
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        assert said.startswith("login: no browser could be opened; `")
        assert said.endswith(
            f"login --device {server.url}` logs in with a code on another device\n"
        )
        await complete(await login_page(process))
        assert (await ended(process))[0] == 0
