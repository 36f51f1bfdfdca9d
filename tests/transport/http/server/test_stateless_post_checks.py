"""Checks of a stateless request, and which error takes precedence."""

from typing import Annotated, Any

import pytest

from fairlead import MCPServer
from fairlead.server import Header
from tests.support.http_server import META, Web, make_server, serving, stateless

Headers = dict[str, str]


async def discover_with(web: Web, version: str, header: str, **more: Any) -> tuple[int, int]:
    body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, more)
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
    answer = await web.post(body, {**headers, "MCP-Protocol-Version": header})
    return answer.status, answer.error


async def test_incomplete_metadata_is_refused(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        for meta in (
            {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
            {"io.modelcontextprotocol/clientCapabilities": {}},
        ):
            body, headers = stateless("tools/list")
            body["params"]["_meta"] = meta
            answer = await web.post(body, headers)
            assert (answer.status, answer.error) == (400, -32602)


async def test_a_wrong_header_takes_precedence_over_an_unknown_version(
    options: dict[str, Any],
) -> None:
    async with serving(make_server(), **options) as web:
        assert await discover_with(web, "v999", "2026-07-28") == (400, -32020)
        assert await discover_with(web, "v999", "v999") == (400, -32022)
        assert await discover_with(web, "2025-11-25", "2025-11-25") == (400, -32022)


async def test_missing_metadata_takes_precedence_over_a_wrong_header(
    options: dict[str, Any],
) -> None:
    async with serving(make_server(), **options) as web:
        body, headers = stateless("tools/list", headers={"Mcp-Method": "wrong"})
        del body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert (await web.post(body, headers)).error == -32602


@pytest.mark.parametrize(
    "wrong",
    [
        {"Mcp-Method": ""},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": ""},
        {"Mcp-Name": "sub"},
        {"Mcp-Name": "=?base64?!!?="},
        {"MCP-Protocol-Version": ""},
        {"MCP-Protocol-Version": "2025-11-25"},
    ],
    ids=str,
)
async def test_headers_must_match_the_body(wrong: Headers, options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.stateless("tools/call", {"name": "add", "arguments": {}}, wrong)
        assert (answer.status, answer.error, answer.json["id"]) == (400, -32020, 5)


async def test_headers_may_be_base64_encoded_and_in_any_case(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        arguments = {"name": "add", "arguments": {"a": 1, "b": 2}}
        for headers in ({"Mcp-Name": "=?base64?YWRk?="}, {"mcp-NAME": "add"}):
            assert (await web.stateless("tools/call", arguments, headers)).text == "3"


async def test_mirrored_arguments_must_match_their_headers(options: dict[str, Any]) -> None:
    server = MCPServer("web", rate_limit_rate=0)

    @server.tool()
    async def find(region: Annotated[str | None, Header("Region")] = None, n: int = 1) -> str:
        return f"{region}"

    async def find_with(web: Web, arguments: dict[str, Any], header: str) -> tuple[int, Any]:
        headers = {"Mcp-Param-Region": header}
        params = {"name": "find", "arguments": arguments}
        answer = await web.stateless("tools/call", params, headers)
        return answer.status, answer.text if answer.status == 200 else answer.error

    async with serving(server, **options) as web:
        assert await find_with(web, {"region": "eu"}, "eu") == (200, "eu")
        assert await find_with(web, {"region": "Hello"}, "=?base64?SGVsbG8=?=") == (200, "Hello")
        assert await find_with(web, {}, "") == (200, "None")
        assert await find_with(web, {"region": None}, "") == (200, "None")
        assert await find_with(web, {"region": "eu"}, "us") == (400, -32020)
        assert await find_with(web, {"region": "eu"}, "") == (400, -32020)
        assert await find_with(web, {}, "eu") == (400, -32020)
        assert await find_with(web, {"region": "Hello"}, "=?base64?SGVsbG8?=") == (400, -32020)
        # The handshake era does not compare headers with arguments.
        session = await web.initialize()
        assert (await session.call("find", {"region": "eu"})).text == "eu"


async def test_a_notification_is_accepted_with_an_empty_response(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        body = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": META}}
        answer = await web.post(body, {"MCP-Protocol-Version": "2026-07-28"})
        assert (answer.status, answer.body) == (202, b"")
