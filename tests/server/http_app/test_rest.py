"""Tests of the REST API: lists, tool calls, OpenAPI document and status page."""

import json
from typing import Any

import jsonschema_rs
import pytest

from fairlead import MCPServer, MCPToolError, RpcError
from fairlead.errors import MCPErrorCode
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.server.http_app import rest
from tests.server.http_app.test_app import Reply, ask
from tests.support.http_server import Web, make_server, serving


def at(web: Web, path: str) -> str:
    return web.url.removesuffix("/mcp") + path


async def call(web: Web, tool: str, arguments: Any, **headers: str) -> Any:
    return await web.post(arguments, headers, url=at(web, f"/tools/{tool}/call"))


@pytest.mark.covers("SRV-42")
async def test_a_rest_list_contains_the_entries_of_all_pages() -> None:
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
async def test_the_health_page_contains_the_name_of_the_server() -> None:
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
async def test_the_correlation_id_is_echoed_and_part_of_the_error() -> None:
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


async def test_the_openapi_document_has_one_operation_per_tool() -> None:
    async with serving(make_server()) as web:
        api = (await web.get(at(web, "/openapi.json"))).json
        assert api["openapi"].startswith("3.1")
        operation = api["paths"]["/tools/add/call"]["post"]
        assert operation["operationId"] == "add"
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema_rs.validate(schema, {"a": 1, "b": 2})
        assert not jsonschema_rs.is_valid(schema, {"a": 1})
        assert len(api["paths"]) == 6


async def test_tool_names_become_unique_operation_ids() -> None:
    server = MCPServer("odd", rate_limit_rate=0)
    for name in ("a.b", "a-b", "a_b"):
        server.tool(name=name)(lambda: "x")
    async with serving(server) as web:
        api = (await web.get(at(web, "/openapi.json"))).json
        ids = [path["post"]["operationId"] for path in api["paths"].values()]
        assert sorted(ids) == ["a_b", "a_b_2", "a_b_3"]


async def test_the_status_page_escapes_text_from_the_server() -> None:
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


async def test_the_error_for_an_unknown_path_names_the_mcp_endpoint() -> None:
    async with serving(make_server()) as web:
        lost = await web.get(at(web, "/nothing/here"))
        assert lost.status == 404
        assert b"/mcp" in lost.body
        async with web.http.put(at(web, "/tools")) as response:
            assert (response.status, response.headers["allow"]) == (405, "GET")


async def test_the_response_to_a_rejected_request_has_the_code_message_and_data() -> None:
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
def test_each_tool_error_code_has_an_http_status(code: str, status: int) -> None:
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
def test_the_error_message_is_read_from_the_error_result_of_a_tool(
    result: Any, message: str
) -> None:
    assert rest._tool_error(result).message == message


class Api:
    """The REST API of a server, without a socket."""

    def __init__(self, server: MCPServer, **settings: Any) -> None:
        self.app = server.create_http_app(**settings)

    async def get(self, path: str, method: str = "GET", **scope: Any) -> Reply:
        return await ask(self.app, path, method, **scope)

    async def call(self, path: str, body: bytes, *headers: tuple[bytes, bytes]) -> Reply:
        return await ask(self.app, path, "POST", *headers, body=body)


def small_server() -> MCPServer:
    server = MCPServer("small", title="Small", page_size=2)
    for name in ("a", "b", "c"):
        server.tool(name)(lambda text="x": text)
        server.register_resource(f"r://{name}", name, content_provider="x")
        server.register_resource_template(f"{name}://{{x}}", name, lambda x: x)
        server.register_prompt(name)
    return server


@pytest.mark.parametrize("path", ["/tools", "/resources", "/prompts", "/tools/"])
async def test_each_list_is_served_as_json(path: str) -> None:
    reply = await Api(small_server()).get(path)
    kind = path.strip("/")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert [one["name"] for one in json.loads(reply.body)[kind]] == ["a", "b", "c"]


async def test_the_ready_page_of_a_running_server_reports_ready() -> None:
    reply = await Api(small_server()).get("/ready")
    assert (reply.status, json.loads(reply.body)) == (200, {"ready": True})


async def test_the_health_page_contains_the_number_of_entries() -> None:
    reply = await Api(small_server()).get("/health")
    assert reply.status == 200
    assert json.loads(reply.body) == {
        "status": "ok",
        "server": {"name": "small", "version": "1.0.0"},
        "protocolVersions": [revision.value for revision in reversed(Revision)],
        "transport": "http",
        "counts": {"tools": 3, "resources": 3, "prompts": 3},
    }


async def test_each_tool_is_described_at_its_own_path() -> None:
    api = Api(small_server())
    found, missing = await api.get("/tools/b"), await api.get("/tools/unknown")
    assert (found.status, json.loads(found.body)["name"]) == (200, "b")
    assert missing.status == 404
    assert json.loads(missing.body) == {
        "error": {
            "code": "NOT_FOUND",
            "message": "Unknown tool: unknown; GET /tools returns the available tools",
        }
    }


@pytest.mark.parametrize(
    ("path", "method", "status", "allowed"),
    [
        ("/tools", "HEAD", 200, None),
        ("/tools/a", "HEAD", 200, None),
        ("/tools", "PUT", 405, "GET"),
        ("/tools/a", "PUT", 405, "GET"),
        ("/health", "DELETE", 405, "GET"),
        ("/tools/a/call", "GET", 405, "POST"),
        ("/tools/a/call", "HEAD", 405, "POST"),
        ("/nothing", "GET", 404, None),
        ("/", "GET", 200, None),
    ],
)
async def test_unsupported_methods_of_a_path_are_rejected_with_405(
    path: str, method: str, status: int, allowed: str | None
) -> None:
    reply = await Api(small_server()).get(path, method)
    assert (reply.status, reply.headers.get("allow")) == (status, allowed)
    if status == 405:
        assert reply.body.endswith(f"the method must be {allowed}\n".encode())
    if status == 404:
        assert reply.body == b"404 Not Found: MCP is served at /mcp; / lists the other paths\n"


@pytest.mark.parametrize(
    ("tool", "body", "status", "answer"),
    [
        ("a", b'{"text":"hello"}', 200, {"content": [{"type": "text", "text": "hello"}]}),
        ("a", b"", 200, {"content": [{"type": "text", "text": "x"}]}),
        ("unknown", b"{}", 404, "Unknown tool: unknown"),
        ("a", b"[1]", 400, "The body must be a JSON object with the arguments of the tool: "),
        ("a", b"{", 400, "The body must be a JSON object with the arguments of the tool: "),
        (
            "a",
            b'{"text":"\xff"}',
            400,
            "The body must be a JSON object with the arguments of the tool: ",
        ),
        ("a", b'{"text":' + b"[" * 100_000, 400, "The body must be a JSON object"),
        ("a", b'{"other":1}', 400, "Invalid arguments for tool 'a': "),
    ],
    ids=["call", "empty", "unknown", "list", "broken", "not UTF-8", "deep", "wrong"],
)
async def test_a_tool_is_called_by_its_path(
    tool: str, body: bytes, status: int, answer: Any
) -> None:
    reply = await Api(small_server()).call(f"/tools/{tool}/call", body)
    assert reply.status == status
    found = json.loads(reply.body)
    if status == 200:
        assert found == answer
    else:
        assert found["error"]["message"].startswith(answer)
        code = "NOT_FOUND" if status == 404 else "VALIDATION_ERROR"
        assert found["error"]["code"] == code


async def test_the_size_of_a_rest_request_body_is_limited() -> None:
    api = Api(small_server(), max_body=20)
    fits = await api.call("/tools/a/call", b'{"text":"12345678"}  '[:20])
    assert fits.status == 200
    large = await api.call("/tools/a/call", b'{"text":"1234567890"}')
    assert large.status == 413
    assert large.body.endswith(b"the body must have at most 20 bytes\n")


async def test_a_tool_call_requires_the_json_content_type() -> None:
    app, sent = small_server().create_http_app(), list[Any]()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(event: Any) -> None:
        sent.append(event)

    fields = [(b"host", b"localhost"), (b"content-type", b"text/plain")]
    scope = {"type": "http", "method": "POST", "path": "/tools/a/call", "headers": fields}
    await app({**scope, "client": ("127.0.0.1", 5)}, receive, send)
    assert sent[0]["status"] == 415
    assert sent[1]["body"].endswith(b"Content-Type must be application/json\n")


@pytest.mark.parametrize(
    ("scope", "url"),
    [
        ({}, "http://localhost/mcp"),
        ({"scheme": "https"}, "https://localhost/mcp"),
        ({"root_path": "/api", "path": "/api/"}, "http://localhost/api/mcp"),
    ],
    ids=["plain", "TLS", "mounted"],
)
async def test_the_status_page_has_the_url_of_the_endpoint(scope: Any, url: str) -> None:
    reply = await Api(small_server()).get(scope.pop("path", "/"), **scope)
    page = reply.body.decode()
    assert f"<code>{url}</code>" in page
    assert all(f"<code>{name}://{{x}}</code>" in page for name in ("a", "b", "c"))
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


async def test_the_openapi_document_has_the_mount_path() -> None:
    api = Api(small_server())
    mounted = json.loads((await api.get("/api/openapi.json", root_path="/api")).body)
    assert mounted["servers"] == [{"url": "/api"}]
    assert "servers" not in json.loads((await api.get("/openapi.json")).body)


async def test_interceptors_receive_the_principal_and_transport_of_rest_calls() -> None:
    seen: list[Exchange] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange)
        return await proceed(exchange)

    await Api(MCPServer("s", interceptors=[watch])).get("/tools")
    (given,) = seen
    assert (given.method, given.request_id, given.caller.stateless) == ("tools/list", "rest", False)
    assert given.caller.revision is NEWEST_HANDSHAKE
    assert given.transport.peer_address == "127.0.0.1"
