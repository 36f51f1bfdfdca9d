"""Tests of the error classes: attributes and messages."""

import json
from typing import Any

import pytest

from fairlead.errors import (
    CannotAsk,
    ChannelClosed,
    CircuitOpenError,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    InputNotGiven,
    LocalProtocolError,
    MCPErrorCode,
    MCPToolError,
    NoAnswer,
    OutputMismatch,
    RemoteProtocolError,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
    ServerBusy,
    TransportError,
    UrlElicitationRequired,
)

UNREADABLE = "x; the server wrote output that is not JSON-RPC:\n  | one"
HINT = "\n  hint: a server must write only messages to stdout, and other output to stderr"
LAST_WORDS = "x. Last lines on stderr:\n  | one\n  | two"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LocalProtocolError("x", code=-32600), "x"),
        (RpcError(-32602, "no"), "MCP error -32602: no"),
        (TransportError("x"), "x"),
        (ConnectFailed("x"), "x"),
        (ConnectFailed("x", stderr=["one", "two"]), LAST_WORDS),
        (ConnectFailed("x", output=["one"]), UNREADABLE + HINT),
        (
            ConnectFailed("x", output=["one"], stderr=["one", "two"]),
            UNREADABLE + LAST_WORDS.replace("x. ", "\n") + HINT,
        ),
        (ServerBusy("x", public="is busy"), "x"),
        (HttpError(500), "HTTP 500: "),
        (HttpError(404, "  gone\n"), "HTTP 404: gone"),
        (HttpError(500, "a" * 600), "HTTP 500: " + "a" * 500),
        (
            HttpError(401, "no", {"www-authenticate": "Bearer", "mcp-auth-server": "https://a"}),
            "HTTP 401: no [WWW-Authenticate: Bearer; Mcp-Auth-Server: https://a]",
        ),
        (RequestTimeout(1.5), "Request timeout after 1500ms"),
        (RequestTimeout(1.5, "ping"), "Request timeout after 1500ms (ping)"),
        (RequestTimeout(2, what="Handshake"), "Handshake timeout after 2000ms"),
        (NoAnswer(7), "No response received for request ID 7"),
        (ChannelClosed(), "Transport closed"),
        (ChannelClosed("it ended"), "Transport closed: it ended"),
        (ChannelClosed(stderr=["one"]), "Transport closed. Last lines on stderr:\n  | one"),
        (CannotAsk("x", capability="sampling"), "x"),
        (
            OutputMismatch("add", "no", {}),
            "The result of 'add' does not match its outputSchema: no",
        ),
        (ConfigError("x"), "x"),
        (ConfigError("x", path="a.json"), "a.json: x"),
        (ConfigError("x", path="a.json", line=0), "a.json:0: x"),
        (
            CircuitOpenError(0),
            "The operation failed too often; calls are suspended, try again soon",
        ),
        (
            CircuitOpenError(1.26, "notes"),
            "notes failed too often; calls are suspended, try again in 1.3 s",
        ),
        (MCPToolError("x"), "x"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_class_builds_its_message_from_its_attributes(
    error: FairleadError, text: str
) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("error", "delivered"),
    [
        (TransportError("x"), True),
        (TransportError("x", delivered=False), False),
        (ConnectFailed("x"), False),
        (RequestTimeout(1), True),
        (NoAnswer(1), True),
        (ChannelClosed(), True),
        (ChannelClosed(delivered=False), False),
        (RetriesExhausted("x"), True),
        *((HttpError(status), False) for status in (401, 403, 404, 405, 413, 415, 429, 503)),
        *((HttpError(status), True) for status in (200, 400, 402, 406, 412, 416, 428, 500, 502)),
    ],
    ids=str,
)
def test_the_delivered_attribute_is_false_only_if_the_request_was_not_processed(
    error: TransportError, delivered: bool
) -> None:
    assert error.delivered is delivered


def test_error_classes_store_their_details_in_attributes() -> None:
    unreadable = RemoteProtocolError("x", code=-32700)
    assert (unreadable.code, unreadable.request_id, unreadable.answers) == (-32700, None, None)
    assert (unreadable.excerpt, unreadable.size, unreadable.frame) == ("", 0, b"")
    assert RemoteProtocolError("x", code=1, request_id=7).request_id == 7
    closed = ChannelClosed("why", exit_code=3, stderr=["a"])
    assert (closed.reason, closed.exit_code, closed.stderr) == ("why", 3, ("a",))
    assert closed.summary == "Transport closed: why"
    failed = ConnectFailed("x", exit_code=-9, stderr=["a"])
    assert (failed.summary, failed.exit_code, failed.stderr) == ("x", -9, ("a",))
    assert (ChannelClosed().reason, ChannelClosed().exit_code) == ("", None)
    timeout = RequestTimeout(1.5, "ping")
    assert (timeout.seconds, timeout.method, RequestTimeout(1).method) == (1.5, "ping", "")
    assert (NoAnswer(7, (1,)).request_id, NoAnswer(7, (1,)).parts) == (7, [1])
    asked = InputNotGiven("x", method="roots/list")
    assert (asked.method, asked.capability) == ("roots/list", None)
    config = ConfigError("x", path="p", line=3)
    assert (config.path, config.line) == ("p", 3)
    circuit = CircuitOpenError(2.0)
    assert (circuit.remaining, circuit.name) == (2.0, "")
    mismatch = OutputMismatch("add", "no", {"a": 1})
    assert (mismatch.tool, mismatch.result) == ("add", {"a": 1})


@pytest.mark.parametrize("make", [TransportError, ConnectFailed, ChannelClosed])
def test_the_public_phrase_of_an_error_is_empty_by_default(make: Any) -> None:
    assert make("x").public == ""
    assert make("x", public="is away").public == "is away"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": " 3 "}, 3.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_is_none_unless_the_header_is_a_number_of_seconds(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert HttpError(429, headers=headers).retry_after == seconds


def test_authentication_challenges_are_read_from_headers() -> None:
    error = HttpError(401, headers={"www-authenticate": "Bearer", "mcp-auth-server": "a"})
    assert (error.www_authenticate, error.mcp_auth_server) == ("Bearer", "a")
    assert (error.status, error.body) == (401, "")
    bare = HttpError(401)
    assert (bare.www_authenticate, bare.mcp_auth_server, bare.headers) == (None, None, {})


def test_the_data_of_an_rpc_error_is_decoded_on_access() -> None:
    assert RpcError(1, "x").data is None
    assert RpcError(1, "x", {"a": 1}).data == {"a": 1}
    raw = b'{"code":1,"message":"x","data":[1]}'
    assert RpcError(1, "x", raw=raw).data == [1]
    assert RpcError(1, "x", "own", raw=raw).data == "own"
    assert RpcError(1, "x", raw=b'{"code":1,"message":"x"}').data is None


@pytest.mark.parametrize(
    ("data", "pages", "text"),
    [
        (None, [], "MCP error -32042: visit"),
        ({"elicitations": "no list"}, [], "MCP error -32042: visit"),
        (
            {"elicitations": [{"url": "https://a"}, {"url": 1}, "x", {}, {"url": "https://b"}]},
            ["https://a", "https://b"],
            "MCP error -32042: visit (visit https://a, https://b)",
        ),
    ],
)
def test_malformed_elicitations_in_an_error_are_ignored(
    data: Any, pages: list[str], text: str
) -> None:
    refusal = RpcError(-32042, "visit", data)
    error = UrlElicitationRequired(refusal)
    assert [page["url"] for page in error.pages] == pages
    assert str(error) == text
    assert str(UrlElicitationRequired(refusal, "the user declined")) == f"{text}: the user declined"
    assert (error.method, error.capability, error.why) == ("elicitation/create", None, "")


# Errors of tools

FULL: dict[str, Any] = {
    "code": "NOT_FOUND",
    "message": "no such täg",
    "correlation_id": "c",
    "tool_name": "t",
    "module": "m",
    "field_errors": [{"field": "a"}],
    "suggestion": "s",
}


@pytest.mark.parametrize("facts", [FULL, {"code": "EXECUTION_ERROR", "message": "x"}])
def test_a_tool_error_can_be_encoded_and_decoded(facts: dict[str, Any]) -> None:
    error = MCPToolError.from_dict({**facts, "unknown": 1})
    assert error.to_dict() == facts
    assert json.loads(error.to_json()) == facts
    assert facts["message"] in error.to_json(), "not escaped"
    response = error.to_mcp_response()
    assert response["isError"] is True
    assert MCPToolError.from_mcp_response(response).to_dict() == facts


def test_the_default_code_of_a_tool_error_is_execution_error() -> None:
    error = MCPToolError("x")
    assert (error.code, error.field_errors) == (MCPErrorCode.EXECUTION_ERROR, None)
    assert MCPToolError("x", field_errors=[]).field_errors is None
    with pytest.raises(ValueError, match="ODD"):
        MCPToolError("x", code="ODD")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({}, "not the result of a tool that failed"),
        (None, "not the result of a tool that failed"),
        ({"isError": True, "content": []}, "not the result of a tool that failed"),
        ({"isError": True, "content": [{"text": 1}]}, "not the result of a tool that failed"),
        ({"isError": False, "content": [{"text": "{}"}]}, "not the result of a tool that failed"),
        ({"isError": 1, "content": [{"text": "{}"}]}, "not the result of a tool that failed"),
        ({"isError": True, "content": [{"text": "{}"}]}, "not a tool error: 'message'"),
    ],
)
def test_a_tool_error_cannot_be_built_from_results_that_are_not_tool_errors(
    result: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        MCPToolError.from_mcp_response(result)
