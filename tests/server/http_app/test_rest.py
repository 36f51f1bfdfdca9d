"""The plain HTTP surface: lists, calls with statuses, an OpenAPI document, a page."""

from typing import Any

import jsonschema_rs
import pytest

from fairlead import MCPServer, MCPToolError, RpcError
from fairlead.errors import MCPErrorCode
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.server.http_app import rest
from tests.support.http_server import Web, make_server, serving


def at(web: Web, path: str) -> str:
    return web.url.removesuffix("/mcp") + path


async def call(web: Web, tool: str, arguments: Any, **headers: str) -> Any:
    return await web.post(arguments, headers, url=at(web, f"/tools/{tool}/call"))


@pytest.mark.covers("SRV-42")
async def test_lists_are_whole() -> None:
    server = MCPServer("many", page_size=10, rate_limit_rate=0)
    for n in range(25):
        server.tool(name=f"tool_{n}")(lambda: "x")
    async with serving(server) as web:
        assert len((await web.get(at(web, "/tools"))).json["tools"]) == 25
        assert (await web.get(at(web, "/resources"))).json == {"resources": []}
        assert (await web.get(at(web, "/prompts"))).json == {"prompts": []}
        assert (await web.get(at(web, "/tools/tool_7"))).json["name"] == "tool_7"
        assert (await web.get(at(web, "/tools/tool_77"))).status == 404


@pytest.mark.covers("SRV-42")
async def test_health_says_who_is_there() -> None:
    async with serving(make_server()) as web:
        health = (await web.get(at(web, "/health"))).json
        assert health["status"] == "ok"
        assert health["server"] == {"name": "web", "version": "1.0.0"}
        assert health["protocolVersions"][0] == "2026-07-28"
        assert health["counts"] == {"tools": 6, "resources": 1, "prompts": 0}


@pytest.mark.covers("SRV-42", "DEC-08")
async def test_a_tool_is_called_with_its_arguments_as_the_body() -> None:
    server = make_server()

    @server.tool()
    async def refuse(code: str) -> str:
        raise MCPToolError("no", code=code)

    async with serving(server) as web:
        good = await call(web, "add", {"a": 1, "b": 2})
        assert (good.status, good.json["content"][0]["text"]) == (200, "3")
        wrong = await call(web, "add", {"a": "x"})
        assert (wrong.status, wrong.json["error"]["code"]) == (400, "VALIDATION_ERROR")
        assert {e["field"] for e in wrong.json["error"]["field_errors"]} == {"a", "b"}
        assert (await call(web, "nobody", {})).status == 404
        assert (await call(web, "add", [1])).status == 400
        assert (await call(web, "add", b"{")).status == 400
        statuses = {
            code: (await call(web, "refuse", {"code": code})).status
            for code in ("TIMEOUT", "RATE_LIMITED", "ACCESS_DENIED", "EXECUTION_ERROR")
        }
        assert list(statuses.values()) == [504, 429, 403, 500]
        assert (await call(web, "fail", b"")).status == 500
        assert (await web.get(at(web, "/tools/add/call"))).status == 405


@pytest.mark.covers("SRV-43")
async def test_a_correlation_id_comes_back_and_names_the_failure() -> None:
    async with serving(make_server()) as web:
        answer = await call(web, "fail", {}, **{"X-Correlation-ID": "abc-1"})
        assert answer.headers["x-correlation-id"] == "abc-1"
        assert answer.json["error"]["correlation_id"] == "abc-1"
        session = await web.initialize()
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await session.post(body, {"X-Correlation-ID": "abc-2"})).headers[
            "x-correlation-id"
        ] == "abc-2"
        stateless = await web.stateless(
            "tools/call", {"name": "fail", "arguments": {}}, {"X-Correlation-ID": "abc-3"}
        )
        assert "abc-3" in stateless.text
        assert stateless.headers["x-correlation-id"] == "abc-3"


async def test_every_tool_is_an_operation() -> None:
    async with serving(make_server()) as web:
        api = (await web.get(at(web, "/openapi.json"))).json
        assert api["openapi"].startswith("3.1")
        operation = api["paths"]["/tools/add/call"]["post"]
        assert operation["operationId"] == "add"
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema_rs.validate(schema, {"a": 1, "b": 2})
        assert not jsonschema_rs.is_valid(schema, {"a": 1})
        assert len(api["paths"]) == 6


async def test_names_that_no_code_could_have_get_ids_of_their_own() -> None:
    server = MCPServer("odd", rate_limit_rate=0)
    for name in ("a.b", "a-b", "a_b"):
        server.tool(name=name)(lambda: "x")
    async with serving(server) as web:
        api = (await web.get(at(web, "/openapi.json"))).json
        ids = [path["post"]["operationId"] for path in api["paths"].values()]
        assert sorted(ids) == ["a_b", "a_b_2", "a_b_3"]


async def test_the_page_shows_what_is_offered_and_runs_nothing_of_it() -> None:
    server = make_server()

    @server.tool(description="<script>alert(1)</script>")
    async def evil(x: int) -> str:
        return ""

    async with serving(server) as web:
        page = await web.get(at(web, "/"))
        text = page.body.decode()
        assert page.kind == "text/html"
        assert "<script>" not in text
        assert "&lt;script&gt;" in text
        assert web.url in text
        assert "note://one" in text
        assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_other_paths_say_where_things_are() -> None:
    async with serving(make_server()) as web:
        lost = await web.get(at(web, "/nothing/here"))
        assert lost.status == 404
        assert b"/mcp" in lost.body
        async with web.http.put(at(web, "/tools")) as response:
            assert (response.status, response.headers["allow"]) == (405, "GET")


async def test_a_refused_request_has_the_code_message_and_data_of_the_refusal() -> None:
    async def refuse(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/list":
            raise RpcError(-32001, "not now", {"retry": 5})
        raise RpcError(-32001, "never")

    async with serving(MCPServer("closed", interceptors=[refuse])) as web:
        with_data = (await web.get(at(web, "/tools"))).json
        assert with_data == {"error": {"code": -32001, "message": "not now", "data": {"retry": 5}}}
        without = (await web.get(at(web, "/prompts"))).json
        assert without == {"error": {"code": -32001, "message": "never"}}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("VALIDATION_ERROR", 400),
        ("EXECUTION_ERROR", 500),
        ("TIMEOUT", 504),
        ("NOT_FOUND", 404),
        ("RATE_LIMITED", 429),
        ("CIRCUIT_OPEN", 503),
        ("DEPENDENCY_MISSING", 503),
        ("ACCESS_DENIED", 403),
        ("INTERNAL", 500),
    ],
)
def test_each_code_of_a_tool_error_has_a_status(code: str, status: int) -> None:
    assert rest._STATUS[MCPErrorCode(code)] == status


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (MCPToolError("x", code="TIMEOUT").to_mcp_response(), "x"),
        ({"isError": True, "content": [{"text": "a"}, {}, {"text": "b"}]}, "a\nb"),
        ({"isError": True, "content": []}, "The tool failed"),
        ({"isError": True}, "The tool failed"),
    ],
)
def test_a_result_that_says_it_failed_is_an_error(result: Any, message: str) -> None:
    assert rest._tool_error(result).message == message
