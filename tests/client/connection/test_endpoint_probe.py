"""Hints with the right URL, if the URL of a server has the wrong path."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.client.connection.endpoint_probe import find_endpoint
from tests.support.http_server import make_server, serving
from tests.support.login_command import Fairlead
from tests.support.protected_server import protected_server
from tests.support.scripted_http_server import Call, raw_server
from tests.support.token_issuer import running_issuer

LIMIT = 60.0


def site(
    at_mcp: Callable[[Call], Awaitable[None]] | None = None,
) -> Callable[[Call], Awaitable[None]]:
    """Return the handler of a web site with an endpoint at /mcp or none."""

    async def handle(call: Call) -> None:
        if call.path == "/mcp" and at_mcp is not None:
            await at_mcp(call)
        else:
            status = 404 if call.path.startswith("/missing") else 200
            await call.answer(status, "<html>Welcome</html>", Content_Type="text/html")

    return handle


async def demand_token(call: Call) -> None:
    await call.answer(401, "{}", WWW_Authenticate="Bearer")


async def demand_session(call: Call) -> None:
    error = {"code": -32600, "message": "no session"}
    await call.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)


async def welcome(call: Call) -> None:
    await call.json({"message": "this is an API, but not MCP"})


async def test_the_endpoint_of_a_server_is_found_from_a_url_with_the_wrong_path() -> None:
    async with asyncio.timeout(LIMIT), serving(make_server()) as web:
        origin = web.url.removesuffix("/mcp")
        assert await find_endpoint(f"{origin}/wrong?key=secret") == web.url
        assert await find_endpoint(web.url) is None


@pytest.mark.parametrize("answer", [demand_token, demand_session])
async def test_an_endpoint_that_requires_a_token_or_session_is_found(
    answer: Callable[[Call], Awaitable[None]],
) -> None:
    async with asyncio.timeout(LIMIT), raw_server(site(answer)) as served:
        origin = f"http://127.0.0.1:{served.port}"
        assert await find_endpoint(f"{origin}/") == f"{origin}/mcp"


@pytest.mark.parametrize("answer", [None, welcome])
async def test_a_web_site_that_serves_no_mcp_has_no_endpoint(
    answer: Callable[[Call], Awaitable[None]] | None,
) -> None:
    async with asyncio.timeout(LIMIT), raw_server(site(answer)) as served:
        assert await find_endpoint(f"http://127.0.0.1:{served.port}/x") is None


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1/x", "http://[", "http://127.0.0.1:1/x"])
async def test_no_endpoint_is_searched_for_unsupported_or_unreachable_urls(url: str) -> None:
    assert await find_endpoint(url) is None


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/team/mcp"])
async def test_the_path_mcp_is_not_appended_to_a_url_that_ends_with_it(path: str) -> None:
    seen: list[str] = []

    async def demand(call: Call) -> None:
        seen.append(call.path)
        await demand_token(call)

    async with asyncio.timeout(LIMIT), raw_server(demand) as served:
        origin = f"http://127.0.0.1:{served.port}"
        found = await find_endpoint(origin + path)
    assert (found, seen) == ((f"{origin}/mcp", ["/mcp"]) if path == "/team/mcp" else (None, []))


async def test_a_path_whose_challenge_names_another_endpoint_is_skipped() -> None:
    async def demand(call: Call) -> None:
        place = f"http://{call.headers['host']}/.well-known/oauth-protected-resource/mcp"
        await call.answer(401, "{}", WWW_Authenticate=f'Bearer resource_metadata="{place}"')

    async with asyncio.timeout(LIMIT), raw_server(demand) as served:
        origin = f"http://127.0.0.1:{served.port}"
        assert await find_endpoint(f"{origin}/wrong") == f"{origin}/mcp"


@pytest.mark.parametrize("guarded", [("/",), ("/team/",)], ids=["every path", "one folder"])
async def test_the_root_is_preferred_if_the_server_demands_a_token_for_every_path(
    guarded: tuple[str],
) -> None:
    async def demand(call: Call) -> None:
        await (demand_token if call.path.startswith(guarded) else site())(call)

    async with asyncio.timeout(LIMIT), raw_server(demand) as served:
        origin = f"http://127.0.0.1:{served.port}"
        expected = "/mcp" if guarded == ("/",) else "/team/mcp"
        assert await find_endpoint(f"{origin}/team") == f"{origin}{expected}"


async def test_the_search_for_an_endpoint_sends_no_credentials() -> None:
    seen: list[Call] = []

    async def record(call: Call) -> None:
        seen.append(call)
        await demand_token(call)

    async with asyncio.timeout(LIMIT), raw_server(site(record)) as served:
        place = f"127.0.0.1:{served.port}"
        assert await find_endpoint(f"http://ann:pw@{place}/x?key=1") == f"http://{place}/mcp"
    [call] = seen
    assert (call.path, "authorization" in call.headers) == ("/mcp", False)


@pytest.mark.parametrize("path", ["/page", "/missing"])
async def test_commands_suggest_the_right_url_of_an_unprotected_server(
    tmp_path: Path, path: str
) -> None:
    fairlead = Fairlead(tmp_path)
    async with asyncio.timeout(LIMIT), raw_server(site(demand_session)) as served:
        origin = f"http://127.0.0.1:{served.port}"
        code, _, err = await fairlead("tools", f"{origin}{path}")
        assert code != 0
        assert f"hint: MCP is served at {origin}/mcp; use this URL\n" in err
        await fairlead("mcp", "add", "site", f"{origin}{path}")
        for command in (("tools", "site"), ("mcp", "test", "site")):
            code, out, err = await fairlead(*command)
            assert f"MCP is served at {origin}/mcp; correct its URL: {tmp_path}" in out + err
        code, _, err = await fairlead("login", f"{origin}{path}")
        assert (code, f"login {origin}/mcp`" in err) == (1, True)


async def test_a_login_at_the_wrong_host_suggests_the_url_in_the_metadata(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_issuer() as issuer,
        protected_server(issuer.issuer) as server,
    ):
        other = server.url.replace("127.0.0.1", "localhost")
        code, _, err = await fairlead("login", other)
        hint = f"use the URL {server.url}, or correct `public_url` of the server"
        assert (code, f"hint: {hint}: `" in err, f"login {server.url}`" in err) == (1, True, True)
        await fairlead("mcp", "add", "notes", other)
        code, _, err = await fairlead("login", "notes")
        hint = f"use the URL {server.url} in its entry, or correct `public_url` of the server"
        assert (code, err.splitlines()[1:]) == (1, [f"hint: {hint}"])


async def test_commands_suggest_the_right_url_of_a_protected_server(tmp_path: Path) -> None:
    fairlead = Fairlead(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        running_issuer() as issuer,
        protected_server(issuer.issuer) as server,
    ):
        wrong = server.url.removesuffix("/mcp") + "/wrong"
        for command in ("tools", "login"):
            code, _, err = await fairlead(command, wrong)
            assert code != 0
            assert f"login {server.url}`" in err
        await fairlead("mcp", "add", "notes", wrong)
        # The hints are the same before and after the folder of logins is created.
        for _ in range(2):
            _, out, err = await fairlead("doctor", "--json")
            assert f"correct its URL to {server.url}" in json.dumps(json.loads(out))
            (tmp_path / "data" / "auth").mkdir(parents=True, exist_ok=True)
