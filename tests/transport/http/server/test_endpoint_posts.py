"""Checks of POSTs, and their routing to stateless or session handling."""

from typing import Any

import pytest

from tests.support.http_server import call, introduction, make_server, serving, stateless

Headers = dict[str, str]


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
async def test_invalid_messages_are_refused(
    body: bytes, status: int, code: int, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.post(body, {"MCP-Protocol-Version": "2026-07-28"})
        assert (answer.status, answer.error) == (status, code)
        assert answer.json.get("id") == (1 if b'"id": 1' in body else None)


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
async def test_unsupported_content_type_and_accept_headers_are_refused(
    headers: Headers, status: int, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        assert (await web.stateless("server/discover", headers=headers)).status == status


@pytest.mark.covers("SRV-41")
async def test_a_body_over_the_limit_is_not_read(options: dict[str, Any]) -> None:
    async with serving(make_server(), max_body=1000, **options) as web:
        assert (await web.post(b" " * 2000)).status == 413
        assert (await web.stateless("server/discover")).status == 200


@pytest.mark.covers("SRV-40")
@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "no/such/method"])
async def test_a_message_with_a_protocol_version_in_its_metadata_is_stateless(
    method: str, options: dict[str, Any]
) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.stateless(method)
        assert (answer.status, answer.error, answer.json["id"]) == (404, -32601, 5)
        assert "mcp-session-id" not in answer.headers


async def test_a_stateless_header_without_metadata_is_refused() -> None:
    async with serving(make_server()) as web:
        body, headers = stateless("tools/list")
        del body["params"]["_meta"]
        answer = await web.post(body, headers)
        assert (answer.status, answer.error, answer.json["id"]) == (400, -32602, 5)


@pytest.mark.covers("SRV-44")
async def test_a_post_with_an_unknown_session_gets_a_404() -> None:
    async with serving(make_server()) as web:
        answer = await web.post(call("add"), {"Mcp-Session-Id": "guessed"})
        assert (answer.status, answer.json["id"]) == (404, 7)
        assert (await web.get(headers={"Mcp-Session-Id": "guessed"})).status in (404, 406)


@pytest.mark.covers("DEC-18", "PRO-04")
async def test_requests_without_a_session_are_served_and_responses_are_refused() -> None:
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
async def test_require_session_refuses_handshake_messages_without_a_session() -> None:
    async with serving(make_server(), require_session=True) as web:
        answer = await web.post(call("add", {"a": 1, "b": 2}))
        assert (answer.status, answer.error) == (400, -32600)
        session = await web.initialize()
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert (await web.stateless("server/discover")).status == 200


async def test_a_handshake_client_is_served_if_sessions_are_disabled() -> None:
    async with serving(make_server(), sessions=False) as web:
        answer = await web.post(introduction())
        assert answer.result["protocolVersion"] == "2025-11-25"
        assert "mcp-session-id" not in answer.headers
        headers = {"MCP-Protocol-Version": "2025-11-25"}
        assert (await web.post(call("add", {"a": 1, "b": 2}), headers)).text == "3"
        assert (await web.get()).status == 405


async def test_a_repeated_routing_header_is_refused(options: dict[str, Any]) -> None:
    import multidict

    async with serving(make_server(), **options) as web:
        body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        sent = multidict.CIMultiDict({**headers, "Content-Type": "application/json"})
        sent.add("Mcp-Name", "sub")
        async with web.http.post(web.url, json=body, headers=sent) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == -32020
