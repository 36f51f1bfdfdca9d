"""Requests with curl commands such as a README shows, and with variants of them."""

import asyncio
import json
import shutil
from typing import Any

import pytest

from fairlead import Context
from tests.support.http_server import Desk, Web, introduction, make_server, serving, stateless
from tests.support.interop.node_packages import unavailable

JSON = ("-H", "Content-Type: application/json")
LIMIT = 10.0


@pytest.fixture(autouse=True, scope="module")
def _curl() -> None:
    if shutil.which("curl") is None:
        unavailable("curl is not installed")


async def begin(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "curl", "-sS", "--noproxy", "*", *arguments, stdout=asyncio.subprocess.PIPE
    )


async def curl(*arguments: str) -> str:
    process = await begin(*arguments)
    async with asyncio.timeout(LIMIT):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


def fields(headers: dict[str, str]) -> list[str]:
    return [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]


def sent(method: str, params: dict[str, Any], **meta: Any) -> list[str]:
    """Return the arguments for a stateless request."""
    body, headers = stateless(method, params, **meta)
    return [*JSON, *fields(headers), "-d", json.dumps(body)]


def root(web: Web) -> str:
    return web.url.removesuffix("/mcp")


async def test_curl_uses_the_rest_paths_of_tools_and_health() -> None:
    async with serving(make_server()) as web:
        said = await curl(f"{root(web)}/tools/add/call", *JSON, "-d", '{"a": 1, "b": 2}')
        assert json.loads(said)["content"] == [{"type": "text", "text": "3"}]
        # By default curl declares a form, which any web page could send.
        said = await curl(f"{root(web)}/tools/add/call", "-d", '{"a": 1, "b": 2}')
        assert said.startswith("415")
        assert "Content-Type must be application/json" in said
        assert "add" in [t["name"] for t in json.loads(await curl(f"{root(web)}/tools"))["tools"]]
        assert json.loads(await curl(f"{root(web)}/health"))["status"] == "ok"
        assert (await curl("-I", f"{root(web)}/health")).startswith("HTTP/1.1 200")
        refused = await curl("-w", "%{http_code}", f"{root(web)}/tools/add/call", *JSON, "-d", "{")
        assert refused.endswith("400")


@pytest.mark.parametrize("how", [(), ("--http2",), ("--http1.0",), ("--compressed",)])
async def test_a_stateless_call_with_curl_works_with_every_http_option(
    how: tuple[str, ...],
) -> None:
    """`--http2` offers an upgrade, which the server ignores."""
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    async with serving(make_server()) as web:
        for accept in ((), ("-H", "Accept: application/json, text/event-stream")):
            said = await curl(*how, web.url, *accept, *sent("tools/call", params))
            assert json.loads(said)["result"]["content"][0]["text"] == "3"


async def test_a_large_body_is_sent_after_the_response_100_continue() -> None:
    """With more than a megabyte, curl waits for `100 Continue` before it sends the body."""
    server = make_server()

    @server.tool()
    async def size(text: str) -> int:
        return len(text)

    async with serving(server) as web:
        body, headers = stateless(
            "tools/call", {"name": "size", "arguments": {"text": "x" * 2**21}}
        )
        process = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--noproxy", "*", web.url, *JSON, *fields(headers)),
            *("-H", "Expect: 100-continue", "--data-binary", "@-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LIMIT):
            out, _ = await process.communicate(json.dumps(body).encode())
        assert json.loads(out)["result"]["content"][0]["text"] == str(2**21)


async def test_a_session_can_be_opened_used_and_terminated_with_curl() -> None:
    async with serving(make_server()) as web:
        said = await curl("-i", web.url, *JSON, "-d", json.dumps(introduction()))
        head, _, body = said.partition("\r\n\r\n")
        (session,) = [line for line in head.split("\r\n") if line.startswith("mcp-session-id")]
        assert json.loads(body)["result"]["protocolVersion"] == "2025-11-25"
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        known = [*JSON, "-H", session]
        said = await curl("-w", "%{http_code}", web.url, *known, "-d", json.dumps(ready))
        assert said == "202"
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
        }
        said = await curl(web.url, *known, "-d", json.dumps(call))
        assert json.loads(said)["result"]["content"][0]["text"] == "3"
        assert await curl("-w", "%{http_code}", "-X", "DELETE", web.url, "-H", session) == "200"


async def test_curl_receives_events_as_soon_as_they_are_sent() -> None:
    desk = Desk()
    server = make_server(desk)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await desk.go_on.wait()
        return "said"

    async with serving(server) as web:
        params = {"name": "talk", "arguments": {}}
        process = await begin("-N", web.url, *sent("tools/call", params, progressToken=1))
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT):
            assert "notifications/progress" in (await process.stdout.readline()).decode()
            desk.go_on.set()
            assert "said" in (await process.stdout.read()).decode()
            assert await process.wait() == 0
