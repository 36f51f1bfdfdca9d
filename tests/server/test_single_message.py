"""Tests of messages that are handled outside of any connection."""

import json
import re
from typing import Any

import pytest

from fairlead import MCPServer, RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.server.single_message import answer_single_message
from tests.support.in_memory_client import META, ask


@pytest.mark.covers("SRV-07")
async def test_single_messages_are_handled_without_a_connection() -> None:
    server = MCPServer("s")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    answer = await ask(server, "tools/call", call)
    assert answer == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "content": [{"type": "text", "text": "3"}],
            "structuredContent": {"result": 3},
        },
    }
    assert await server.handle_request({"jsonrpc": "2.0", "method": "notifications/x"}) is None
    invalid = await server.handle_request({"jsonrpc": "2.0", "id": "q", "method": 1})
    assert invalid is not None
    assert (invalid["id"], invalid["error"]["code"]) == ("q", -32600)
    stateless = await ask(server, "tools/call", {**call, "_meta": META})
    assert stateless["result"]["resultType"] == "complete"
    assert (await ask(server, "ping"))["result"] == {}


@pytest.mark.parametrize(
    ("message", "request_id", "code", "text"),
    [
        (
            [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
            None,
            -32600,
            "Batches are not supported: send one message at a time",
        ),
        (
            {
                "jsonrpc": "2.0",
                "id": 7,
                "method": "tools/list",
                "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "1999"}},
            },
            7,
            -32602,
            "_meta must contain io.modelcontextprotocol/clientCapabilities (an object)",
        ),
        (
            {"jsonrpc": "2.0", "id": 7, "method": "no/such"},
            7,
            -32601,
            "Method not found: no/such",
        ),
    ],
    ids=["batch", "malformed", "unknown"],
)
async def test_a_rejected_single_message_is_answered_with_the_reason(
    message: Any, request_id: int | None, code: int, text: str
) -> None:
    answer = await MCPServer("s").handle_request(message)
    assert answer is not None
    assert answer["id"] == request_id
    assert (answer["error"]["code"], answer["error"]["message"]) == (code, text)


@pytest.mark.parametrize("given", [None, "", "own"], ids=["none", "empty", "given"])
async def test_a_rejected_single_message_is_logged_with_a_correlation_id(
    given: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await MCPServer("s").handle_request({"jsonrpc": "2.0", "id": 1, "method": 5}, given)
    (record,) = caplog.records
    name = record.correlation_id  # type: ignore[attr-defined]
    assert record.getMessage().startswith(f"[{name}]: ")
    if given:
        assert name == given
    else:
        assert re.fullmatch("[0-9a-f]{16}", name)


async def test_the_result_or_exception_of_the_handler_becomes_the_response() -> None:
    outcomes: list[Any] = [
        b'{"a":1}',
        None,
        KeyError("secret"),
        RpcError(-32001, "no", {"b": 2}),
    ]

    async def handler(exchange: Exchange) -> Answer:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    frame = b'{"jsonrpc":"2.0","id":"x","method":"ping"}'
    answers = [json.loads(await answer_single_message(handler, frame, None) or b"") for _ in "1234"]
    assert [answer.pop("id") for answer in answers] == ["x"] * 4
    assert len(answers[2]["error"].pop("data")["correlation_id"]) == 16
    assert answers == [
        {"jsonrpc": "2.0", "result": {"a": 1}},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "error": {"code": -32603, "message": "Internal error"}},
        {"jsonrpc": "2.0", "error": {"code": -32001, "message": "no", "data": {"b": 2}}},
    ]


async def test_a_malformed_single_message_is_answered_without_an_id() -> None:
    async def handler(exchange: Exchange) -> Answer:
        raise AssertionError("not reached")

    answer = json.loads(await answer_single_message(handler, b"{", None) or b"")
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    for silent in (
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
    ):
        assert await answer_single_message(handler, silent, None) is None
