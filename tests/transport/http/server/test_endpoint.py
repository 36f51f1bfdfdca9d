"""Which era a POST belongs to, and which refusal wins when several things are wrong."""

from typing import Annotated, Any

import pytest

from fairlead import MCPServer
from fairlead.server import Header
from tests.support.http_server import META, Web, call, introduction, make_server, serving, stateless

Headers = dict[str, str]


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Both ways in: through ASGI, and past it."""
    return {"fast_lane": request.param}


# Who may come in


@pytest.mark.covers("SRV-46")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:80"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Origin": "https://app.example"}, 200),
    ],
)
async def test_pages_and_names_from_elsewhere_are_refused(
    headers: Headers, status: int, options: dict[str, Any]
) -> None:
    server = make_server()
    async with serving(server, allowed_origins=("https://app.example",), **options) as web:
        answer = await web.stateless("server/discover", headers=headers)
        assert answer.status == status
        if status == 403:
            assert "allowed_" in answer.json["error"]["message"]


async def test_a_name_that_was_allowed_is_served() -> None:
    async with serving(make_server(), allowed_hosts=("mcp.example",)) as web:
        answer = await web.stateless("server/discover", headers={"Host": "mcp.example"})
        assert answer.status == 200
        assert (await web.get(headers={"Host": "other.example"})).status == 403


@pytest.mark.covers("SRV-46")
async def test_a_listed_page_may_read_answers_and_no_other() -> None:
    async with serving(make_server(), allowed_origins=("https://app.example",)) as web:
        asks = {"Origin": "https://app.example", "Access-Control-Request-Headers": "mcp-method"}
        async with web.http.options(web.url, headers=asks) as response:
            assert response.status == 204
            assert response.headers["access-control-allow-origin"] == "https://app.example"
            assert response.headers["access-control-allow-headers"] == "mcp-method"
        answer = await web.stateless("server/discover", headers={"Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        local = await web.stateless("server/discover", headers={"Origin": "http://localhost:1"})
        assert "access-control-allow-origin" not in local.headers


@pytest.mark.covers("SRV-47")
async def test_a_token_protects_everything(options: dict[str, Any]) -> None:
    async with serving(make_server(), auth_token="s3cret", **options) as web:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
            answer = await web.stateless("server/discover", headers=headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert (await web.get(headers=headers)).status == 401
            assert (await web.get(web.url.replace("/mcp", "/"), headers)).status == 401
        good = {"Authorization": "Bearer s3cret"}
        assert (await web.stateless("server/discover", headers=good)).status == 200


# What it is


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (b"", 400, -32700),
        (b"17", 400, -32600),
        (b'{"id": 1, "method": "ping"}', 400, -32600),
        (b"[" * 100_000, 400, -32700),
        (b"[]", 400, -32600),
    ],
)
async def test_what_is_no_message_is_answered_so(
    body: bytes, status: int, code: int, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.post(body, {"MCP-Protocol-Version": "2026-07-28"})
        assert (answer.status, answer.error) == (status, code)
        assert answer.json.get("id") == (1 if b'"id": 1' in body else None)


@pytest.mark.covers("RPC-13", "PRO-04")
async def test_a_batch_is_for_the_revision_that_has_it() -> None:
    batch = [call("add", {"a": 1, "b": 2}, 1), call("add", {"a": 3, "b": 4}, 2)]
    async with serving(make_server()) as web:
        old = await web.initialize("2025-03-26")
        both = (await old.post(batch)).json
        assert sorted(answer["id"] for answer in both) == [1, 2]
        new = await web.initialize("2025-06-18")
        refused = await new.post(batch)
        assert (refused.status, refused.error) == (400, -32600)
        alone = await web.post(batch)  # no session, no header: the revision that has them
        assert [answer["id"] for answer in sorted(alone.json, key=lambda a: a["id"])] == [1, 2]
        assert (await web.post(batch, {"MCP-Protocol-Version": "2026-07-28"})).error == -32600
        only_told = [{"jsonrpc": "2.0", "method": "notifications/x"}]
        assert (await old.post(only_told)).status == 202


@pytest.mark.covers("SRV-41")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "*/*"}, 200),
        ({"Accept": "application/json"}, 200),
    ],
)
async def test_the_kind_of_body_and_answer_must_fit(
    headers: Headers, status: int, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        assert (await web.stateless("server/discover", headers=headers)).status == status


@pytest.mark.covers("SRV-41")
async def test_a_body_over_the_limit_is_not_read(options: dict[str, Any]) -> None:
    async with serving(make_server(), max_body=1000, **options) as web:
        assert (await web.post(b" " * 2000)).status == 413
        assert (await web.stateless("server/discover")).status == 200


@pytest.mark.covers("SRV-41")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
async def test_other_methods_are_told_what_there_is(method: str) -> None:
    async with serving(make_server()) as web, web.http.request(method, web.url) as response:
        assert response.status == 405
        assert "POST" in response.headers["allow"]


# Which era


@pytest.mark.covers("SRV-40")
@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "no/such/method"])
async def test_what_describes_itself_is_stateless_whatever_it_asks(
    method: str, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.stateless(method)
        assert (answer.status, answer.error, answer.json["id"]) == (404, -32601, 5)
        assert "mcp-session-id" not in answer.headers


async def test_half_a_description_is_refused_as_such(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        for meta in (
            {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
            {"io.modelcontextprotocol/clientCapabilities": {}},
        ):
            body, headers = stateless("tools/list")
            body["params"]["_meta"] = meta
            answer = await web.post(body, headers)
            assert (answer.status, answer.error) == (400, -32602)


async def test_a_stateless_header_without_a_description_is_refused() -> None:
    async with serving(make_server()) as web:
        body, headers = stateless("tools/list")
        del body["params"]["_meta"]
        answer = await web.post(body, headers)
        assert (answer.status, answer.error, answer.json["id"]) == (400, -32602, 5)


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25")],
)
async def test_a_handshake_never_agrees_on_a_stateless_revision(asked: str, agreed: str) -> None:
    async with serving(make_server()) as web:
        answer = await web.post(introduction(asked))
        assert answer.result["protocolVersion"] == agreed
        assert answer.headers["mcp-session-id"].isascii()


@pytest.mark.covers("SRV-44")
async def test_a_session_that_is_not_ours_is_not_found() -> None:
    async with serving(make_server()) as web:
        answer = await web.post(call("add"), {"Mcp-Session-Id": "guessed"})
        assert (answer.status, answer.json["id"]) == (404, 7)
        assert (await web.get(headers={"Mcp-Session-Id": "guessed"})).status in (404, 406)


@pytest.mark.covers("DEC-18", "PRO-04")
async def test_a_message_without_a_session_stands_alone() -> None:
    async with serving(make_server()) as web:
        assert (await web.post(call("add", {"a": 1, "b": 2}))).text == "3"
        headers = {"MCP-Protocol-Version": "2025-06-18"}
        assert (await web.post(call("add", {"a": 1, "b": 2}), headers)).text == "3"
        wrong = {"MCP-Protocol-Version": "1999-01-01"}
        assert (await web.post(call("add"), wrong)).status == 400
        session = await web.initialize()
        assert (await session.post(call("add", {"a": 1, "b": 2}), wrong)).status == 400
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await web.post(told)).status == 202
        assert (await web.post({"jsonrpc": "2.0", "id": 1, "result": {}})).status == 400


@pytest.mark.covers("DEC-18")
async def test_a_server_may_insist_on_sessions() -> None:
    async with serving(make_server(), require_session=True) as web:
        answer = await web.post(call("add", {"a": 1, "b": 2}))
        assert (answer.status, answer.error) == (400, -32600)
        session = await web.initialize()
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert (await web.stateless("server/discover")).status == 200


async def test_without_sessions_a_handshake_client_is_served_all_the_same() -> None:
    async with serving(make_server(), sessions=False) as web:
        answer = await web.post(introduction())
        assert answer.result["protocolVersion"] == "2025-11-25"
        assert "mcp-session-id" not in answer.headers
        headers = {"MCP-Protocol-Version": "2025-11-25"}
        assert (await web.post(call("add", {"a": 1, "b": 2}), headers)).text == "3"
        assert (await web.get()).status == 405


# In which order a stateless request is checked


async def discover_with(web: Web, version: str, header: str, **more: Any) -> tuple[int, int]:
    body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, more)
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
    answer = await web.post(body, {**headers, "MCP-Protocol-Version": header})
    return answer.status, answer.error


async def test_a_wrong_header_comes_before_an_unknown_version(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        assert await discover_with(web, "v999", "2026-07-28") == (400, -32020)
        assert await discover_with(web, "v999", "v999") == (400, -32022)
        assert await discover_with(web, "2025-11-25", "2025-11-25") == (400, -32022)


@pytest.mark.covers("SRV-31")
async def test_what_is_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="fairlead")
    async with serving(make_server()) as web:
        await web.stateless("tools/list", headers={"Mcp-Method": "wrong"})
        await web.stateless("tools/list", headers={"Origin": "https://evil.example"})
        await web.stateless("tools/call", {"name": "nobody", "arguments": {}})
    assert "Mcp-Method says 'wrong'" in caplog.text
    assert "evil.example" in caplog.text
    assert "nobody" in caplog.text


async def test_a_missing_description_comes_before_a_wrong_header(options: dict[str, Any]) -> None:
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
async def test_headers_must_say_what_the_body_says(wrong: Headers, options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.stateless("tools/call", {"name": "add", "arguments": {}}, wrong)
        assert (answer.status, answer.error, answer.json["id"]) == (400, -32020, 5)


async def test_headers_may_say_it_in_base64_and_in_any_case(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        arguments = {"name": "add", "arguments": {"a": 1, "b": 2}}
        for headers in ({"Mcp-Name": "=?base64?YWRk?="}, {"mcp-NAME": "add"}):
            assert (await web.stateless("tools/call", arguments, headers)).text == "3"


async def test_a_routing_header_that_is_there_twice_is_refused(options: dict[str, Any]) -> None:
    import multidict

    async with serving(make_server(), **options) as web:
        body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        sent = multidict.CIMultiDict({**headers, "Content-Type": "application/json"})
        sent.add("Mcp-Name", "sub")
        async with web.http.post(web.url, json=body, headers=sent) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == -32020


async def test_arguments_with_a_header_are_held_against_it(options: dict[str, Any]) -> None:
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
        session = await web.initialize()  # no such rule in the handshake era
        assert (await session.call("find", {"region": "eu"})).text == "eu"


# Statuses


@pytest.mark.covers("DEC-08")
async def test_errors_have_the_status_of_their_era(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        unknown = {"name": "nobody", "arguments": {}}
        assert (await web.stateless("tools/call", unknown)).status == 400
        session = await web.initialize()
        answer = await session.call("nobody")
        assert (answer.status, answer.error) == (200, -32602)
        mapped = await session.post(call("nobody"), {"Prefer": "status=mapped"})
        assert (mapped.status, mapped.error) == (400, -32602)
        alone = await web.post(call("nobody"), {"Prefer": "status=mapped"})
        assert alone.status == 400
        failed = await web.stateless("tools/call", {"name": "fail", "arguments": {}})
        assert failed.status == 200
        assert failed.result["isError"]


@pytest.mark.covers("DEC-08")
async def test_a_server_may_map_every_error_to_a_status() -> None:
    async with serving(make_server(), error_status="mapped") as web:
        session = await web.initialize()
        assert (await session.call("nobody")).status == 400
        assert (await session.call("add", {"a": 1, "b": 2})).status == 200


async def test_a_notification_is_accepted_and_nothing_more(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        body = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": META}}
        answer = await web.post(body, {"MCP-Protocol-Version": "2026-07-28"})
        assert (answer.status, answer.body) == (202, b"")
