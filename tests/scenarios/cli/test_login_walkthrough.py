"""The walkthroughs of README.md and docs/protecting.md: two examples, and a person who logs in."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.login_command import Fairlead, log_in

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples"
README = REPOSITORY / "README.md"
LIMIT = 60.0


@contextlib.asynccontextmanager
async def example(name: str, *arguments: str, **variables: str) -> AsyncIterator[str]:
    """Run an example on a free port and yield the URL that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), "0", *arguments),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )
    assert process.stderr is not None
    try:
        said = (await process.stderr.readline()).decode()
        assert said.startswith("serving: "), said
        yield next(word for word in said.split() if word.startswith("http://"))
    finally:
        process.terminate()
        await process.wait()


async def test_the_walkthrough_with_the_two_examples_works_as_described(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        example("authorization_server.py") as issuer,
        example("protected_server.py", ISSUER=issuer) as url,
    ):
        assert await fairlead("mcp", "add", "notes", url)
        code, _, err = await fairlead("call", "notes", "whoami")
        assert code != 0
        assert "requires OAuth authorization" in err
        assert f"{url.removesuffix('/mcp')}/.well-known/" in err
        assert re.search(r": run `.+ login notes`\n", err)
        code, out = await log_in(fairlead, "notes", "--no-browser")
        assert code == 0
        assert out.startswith(f"Logged in to notes at {issuer}.\nScopes: mcp:basic;")
        assert (await fairlead("call", "notes", "whoami"))[1] == f"alice of {issuer}\n"
        _, out, _ = await fairlead("auth", "status")
        assert out == (
            f"notes  {url}\n  issuer: {issuer}\n  scopes: mcp:basic\n"
            "  token:  expires in 5 minutes, renewed automatically\n"
            f"Logins are stored in {tmp_path}/data/auth.\n"
        )
        code, _, err = await fairlead("call", "notes", "note", "text=hello")
        assert code != 0
        scopes = ["--scope", "mcp:basic", "--scope", "mcp:write"]
        assert f" login {' '.join(scopes)} notes` logs in to the server\n" in err
        code, out = await log_in(fairlead, *scopes, "notes", "--no-browser")
        assert "Scopes: mcp:basic mcp:write;" in out
        assert (await fairlead("call", "notes", "note", "text=hello"))[1] == "1\n"
        assert (await fairlead("logout", "notes"))[1] == "Logged out of notes.\n"
        for command in (
            ("call", "notes", "whoami"),
            ("doctor", "notes"),
            ("list", "--connect"),
            ("call", "whoami", url),
        ):
            code, out, err = await fairlead(*command)
            assert (code == 0) == (command[0] == "list")
            assert (out + err).count("requires a login") == 1
            name = url if url in command else "notes"
            assert (out + err).count(f" login {name}` logs in to the server") == 1


async def test_the_commands_in_the_readme_succeed_in_the_given_order(tmp_path: Path) -> None:
    servers, commands = commands_of_readme()
    assert [line.split()[-2:] for line in servers] == [
        ["examples/authorization_server.py", "9000"],
        ["examples/protected_server.py", "8090"],
    ]
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        example("authorization_server.py") as issuer,
        example("protected_server.py", ISSUER=issuer) as url,
    ):
        output = []
        for command in commands:
            _, *arguments = command.replace("http://127.0.0.1:8090/mcp", url).split()
            if arguments[0] == "login":
                code, out = await log_in(fairlead, *arguments[1:])
            else:
                code, out, _ = await fairlead(*arguments)
            assert code == 0, command
            output.append(out.splitlines()[0])
    assert output == [
        f"Logged in to {url} at {issuer}.",
        f"alice of {issuer}",
        url,
        f"Logged out of {url}.",
    ]


def commands_of_readme() -> tuple[list[str], list[str]]:
    """Return the commands that start servers, and those of Fairlead, without their comments."""
    section = README.read_text().split("## Log in, and protect a server\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^    (.+)$", section, re.M)
    commands = [line.partition("#")[0].strip() for line in blocks]
    ours = [line for line in commands if line.startswith("fairlead ")]
    return [line for line in commands if line not in ours], ours


async def test_two_terminals_share_a_login_and_its_renewals(
    tmp_path: Path,
) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        example("authorization_server.py", "--lifetime", "4") as issuer,
        example("protected_server.py", ISSUER=issuer) as url,
    ):
        code, out = await log_in(fairlead, url, "--no-browser")
        assert code == 0
        assert re.search(r"token expires in [34] seconds, renewed automatically\.", out)
        [before] = json.loads((await fairlead("auth", "status", "--json"))[1])
        assert before["expiresIn"] <= 4

        async def terminal() -> None:
            # Each call takes some time, so the loop ends after a few calls.
            while time.time() < before["expiresAt"]:
                code, out, err = await fairlead("call", "whoami", url)
                assert (code, out) == (0, f"alice of {issuer}\n"), err
            assert (await fairlead("call", "whoami", url))[1] == f"alice of {issuer}\n"

        await asyncio.gather(terminal(), terminal())
        [after] = json.loads((await fairlead("auth", "status", "--json"))[1])
        assert after["expiresAt"] > before["expiresAt"]
        assert Path(after["file"]).is_file()
        assert (await fairlead("logout", url))[1] == f"Logged out of {url}.\n"


async def test_the_example_authorization_server_refuses_foreign_redirects_and_unknown_codes() -> (
    None
):
    challenge = {"code_challenge": "x", "code_challenge_method": "S256"}
    query = {"response_type": "code", "client_id": "c", "resource": "r", **challenge}
    form = {
        "grant_type": "authorization_code",
        "client_id": "c",
        "code": "made up",
        "code_verifier": "v",
        "redirect_uri": "http://127.0.0.1:1/callback",
    }
    async with (
        asyncio.timeout(LIMIT),
        example("authorization_server.py") as issuer,
        aiohttp.ClientSession() as http,
    ):
        elsewhere = {**query, "redirect_uri": "https://evil.example/"}
        async with http.get(f"{issuer}/authorize", params=elsewhere) as reply:
            assert (reply.status, await reply.json()) == (400, {"error": "invalid_redirect_uri"})
        async with http.post(f"{issuer}/token", data=form) as reply:
            assert (reply.status, await reply.json()) == (400, {"error": "invalid_grant"})
        async with http.post(f"{issuer}/token", data={}) as reply:
            assert (reply.status, await reply.json()) == (400, {"error": "invalid_request"})


def test_the_protected_server_example_reports_the_missing_variable() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "protected_server.py")],
        env={name: value for name, value in os.environ.items() if name != "ISSUER"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "ISSUER is not set: give the URL of your authorization server, see docs/protecting.md\n"
    )


@pytest.mark.parametrize("issuer", ["https://login.invalid"])
async def test_the_error_for_a_login_at_an_unknown_issuer_contains_the_issuer(
    tmp_path: Path, issuer: str
) -> None:
    fairlead = Fairlead(tmp_path)
    async with asyncio.timeout(LIMIT), example("protected_server.py", ISSUER=issuer) as url:
        code, _, err = await fairlead("login", url)
    assert code == 1
    assert "Login failed: cannot fetch from login.invalid" in err
    assert f"hint: check the issuer that the server names: {issuer}\n" in err


async def test_a_gateway_reports_which_server_requires_a_login(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        example("protected_server.py", ISSUER="https://login.invalid") as url,
    ):
        file = tmp_path / "gateway.toml"
        file.write_text(
            f'[servers.notes]\nurl = "{url}"\n[servers.ten]\ncommand = "{sys.executable}"\n'
        )
        with file.open("a") as more:
            more.write(f'args = ["{EXAMPLES / "ten_line_server.py"}"]\n')
        gateway = await fairlead.start("gateway", str(file), "--port", "0")
        assert gateway.stdout is not None
        try:
            said = ""
            while "failed" not in said or "connected" not in said:
                said += (await gateway.stdout.readline()).decode()
            place = next(word for word in said.split() if word.startswith("http://"))
            code, _, err = await fairlead("call", "notes_whoami", place)
        finally:
            gateway.terminate()
            await gateway.communicate()
    assert code == 1
    assert "Unknown tool 'notes_whoami': notes requires a login\n" in err
