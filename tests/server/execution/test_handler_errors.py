"""Tests that errors are logged with the correlation id that the caller receives."""

import json
import logging
from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPServer, MCPToolError, RpcError
from fairlead.errors import ChannelClosed, MCPErrorCode, RemoteProtocolError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.interceptor.direct_edge import direct_exchange
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST
from fairlead.server.execution.handler_errors import (
    error_for_caller,
    log_errors,
    sensitive_parts,
)
from fairlead.wire import Request
from tests.support.raw_server_client import META, wire_to
from tests.support.single_exchange import exchange


def server_of_failures() -> MCPServer:
    server = MCPServer("s")

    @server.tool()
    async def breaks() -> str:
        raise KeyError("secret detail")

    @server.tool()
    async def refuses(ctx: Context) -> str:
        raise RpcError(-32602, "not like this")

    @server.tool()
    async def names(ctx: Context) -> str:
        return ctx.correlation_id

    @server.resource("r://broken")
    async def broken() -> str:
        raise KeyError("secret detail")

    @server.resource("r://far")
    async def far() -> str:
        raise ChannelClosed("the upstream server is gone")

    @server.prompt()
    def prompt(word: str) -> str:
        raise KeyError("secret detail")

    @server.completion("prompt", "word")
    def words(typed: str) -> list[str]:
        raise KeyError("secret detail")

    return server


COMPLETE = {
    "ref": {"type": "ref/prompt", "name": "prompt"},
    "argument": {"name": "word", "value": ""},
}
REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("no/such", {}, -32601),
    ("tools/call", {"name": "nobody"}, -32602),
    ("tools/call", {}, -32602),
    ("tools/call", {"name": "breaks", "arguments": [1]}, -32602),
    ("tools/call", {"name": "refuses"}, -32602),
    ("tools/list", {"cursor": "zzz"}, -32602),
    ("resources/read", {"uri": "r://nothing"}, -32002),
    ("resources/read", {}, -32602),
    ("resources/subscribe", {"uri": "r://nothing"}, -32002),
    ("resources/read", {"uri": "r://broken"}, -32603),
    ("resources/read", {"uri": "r://far"}, -32603),
    ("prompts/get", {"name": "nobody"}, -32602),
    ("prompts/get", {"name": "prompt"}, -32602),
    ("prompts/get", {"name": "prompt", "arguments": {"word": "x"}}, -32603),
    ("completion/complete", {}, -32602),
    ("completion/complete", COMPLETE, -32603),
    ("logging/setLevel", {"level": "loud"}, -32602),
]


@pytest.mark.covers("SRV-07", "SRV-16", "OBS-03")
@pytest.mark.parametrize(("method", "params", "code"), REFUSED)
async def test_a_rejection_is_logged_once_with_the_correlation_id_of_the_client(
    method: str, params: dict[str, Any], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await server_of_failures().handle_request(message, "trace-7")
    assert answer is not None
    assert answer["error"]["code"] == code
    (record,) = caplog.records
    assert record.name == "fairlead.server"
    assert record.correlation_id == "trace-7"  # type: ignore[attr-defined]
    assert "[trace-7]" in record.getMessage()
    assert record.levelno == (logging.ERROR if code == -32603 else logging.WARNING)
    if code == -32603:
        data = {"correlation_id": "trace-7"}
        assert answer["error"] == {"code": -32603, "message": "Internal error", "data": data}
        assert record.exc_info is not None


@pytest.mark.covers("SRV-16", "OBS-03")
@pytest.mark.parametrize(("method", "params", "code"), REFUSED)
async def test_a_rejection_on_a_connection_is_logged_with_a_generated_id(
    method: str, params: dict[str, Any], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire_to(server_of_failures()) as wire:
        await wire.greet()
        answer = await wire.ask(method, params)
    assert answer["error"]["code"] == code
    assert "secret" not in json.dumps(answer)
    (record,) = [r for r in caplog.records if r.name == "fairlead.server"]
    assert f"[{record.correlation_id}]" in record.getMessage()  # type: ignore[attr-defined]
    assert [r for r in caplog.records if r.name == "fairlead.peer"] == []


@pytest.mark.covers("SRV-07", "SRV-20", "OBS-03")
@pytest.mark.parametrize("given", ["trace-7", None, "two\nlines", "x" * 1000])
async def test_context_result_and_log_entry_have_the_same_correlation_id(
    given: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_of_failures()

    async def call(name: str) -> str:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
        answer = await server.handle_request(message, given)
        assert answer is not None
        return str(answer["result"]["content"][0]["text"])

    error = json.loads(await call("breaks"))
    assert (error["code"], error["message"]) == ("EXECUTION_ERROR", "KeyError: 'secret detail'")
    (record,) = caplog.records
    assert record.correlation_id == error["correlation_id"]  # type: ignore[attr-defined]
    assert f"[{error['correlation_id']}]" in record.getMessage()
    assert record.exc_info is not None
    if given == "trace-7":
        assert error["correlation_id"] == await call("names") == given
    else:  # missing ids, and unsafe ids that could forge log lines
        assert len(error["correlation_id"]) == 16


@pytest.mark.covers("SRV-07")
async def test_a_malformed_message_is_rejected_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = await MCPServer("s").handle_request({"jsonrpc": "2.0", "id": 1, "method": 5}, "t")
    assert answer is not None
    assert answer["error"]["code"] == -32600
    (record,) = caplog.records
    assert record.correlation_id == "t"  # type: ignore[attr-defined]


@pytest.mark.covers("SRV-16")
async def test_errors_of_requests_with_interceptors_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def guard(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target == "denied":
            raise RpcError(-32602, "not for you")
        if exchange.target == "crash":
            raise ZeroDivisionError
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[guard])
    codes = []
    async with wire_to(server) as wire:
        await wire.greet()
        for name in ("denied", "crash", "unknown"):
            codes.append((await wire.ask("tools/call", {"name": name}))["error"]["code"])
    assert codes == [-32602, -32603, -32602]
    assert [r.name for r in caplog.records] == ["fairlead.server"] * 3


async def test_an_exception_object_raised_again_by_another_request_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = RpcError(-32000, "closed on Sundays")
    server = MCPServer("s")

    @server.tool()
    async def shop() -> str:
        raise closed

    async with wire_to(server) as wire:
        for number in (1, 2):
            call = {"name": "shop", "_meta": META}
            assert (await wire.ask("tools/call", call, id=number))["error"]["code"] == -32000
    assert len(caplog.records) == 2


@pytest.mark.covers("SRV-26")
def test_a_tool_error_can_be_encoded_and_decoded() -> None:
    error = MCPToolError(
        "no seat „left“",
        code=MCPErrorCode.VALIDATION_ERROR,
        correlation_id="c",
        tool_name="book",
        module="m",
        field_errors=[{"field": "seat", "constraint": "is taken", "value": 3}],
        suggestion="take another",
    )
    facts = error.to_dict()
    assert MCPToolError.from_dict(facts).to_dict() == facts
    assert MCPToolError.from_json(error.to_json()).to_dict() == facts
    response = error.to_mcp_response()
    assert (response["isError"], json.loads(response["content"][0]["text"])) == (True, facts)
    assert MCPToolError.from_mcp_response(response).to_dict() == facts
    short = MCPToolError("only words")
    assert short.to_dict() == {"code": "EXECUTION_ERROR", "message": "only words"}
    assert MCPToolError.from_json(short.to_json()).to_dict() == short.to_dict()


@pytest.mark.covers("SRV-26")
async def test_the_result_of_a_failing_tool_is_decoded_as_a_tool_error() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "breaks"}}
    answer = await server_of_failures().handle_request(call, "trace-7")
    assert answer is not None
    error = MCPToolError.from_mcp_response(answer["result"])
    assert (error.code, error.tool_name, error.correlation_id) == (
        MCPErrorCode.EXECUTION_ERROR,
        "breaks",
        "trace-7",
    )


@pytest.mark.covers("SRV-26")
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"isError": True, "content": []},
        {"isError": True, "content": [{"type": "text", "text": "just words"}]},
        {"isError": True, "content": [{"type": "text", "text": "5"}]},
        {"isError": True, "content": [{"type": "text", "text": '{"code":"X","message":"m"}'}]},
        {"content": [{"type": "text", "text": '{"code":"TIMEOUT","message":"m"}'}]},
        {"isError": True, "content": "text"},
        None,
    ],
)
def test_a_result_without_a_tool_error_cannot_be_decoded_as_a_tool_error(result: Any) -> None:
    with pytest.raises(ValueError, match="not|Expecting"):
        MCPToolError.from_mcp_response(result)


@pytest.mark.parametrize(
    ("error", "level", "text", "code", "message"),
    [
        (RpcError(-32001, "no"), logging.WARNING, ": MCP error -32001: no", -32001, "no"),
        (
            RemoteProtocolError("odd", code=-32600),
            logging.WARNING,
            ": odd",
            -32600,
            "odd",
        ),
        (KeyError("secret"), logging.ERROR, " failed", -32603, "Internal error"),
    ],
    ids=["refusal", "protocol", "failure"],
)
@pytest.mark.parametrize("params", [None, {"name": "t"}], ids=["no target", "target"])
def test_an_error_is_logged_once_per_request_with_its_method_and_target(
    error: Exception,
    level: int,
    text: str,
    code: int,
    message: str,
    params: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = exchange("tools/call", params)
    found = error_for_caller(error, given)
    assert (found.code, found.message) == (code, message)
    (record,) = caplog.records
    about = "tools/call" if params is None else "tools/call t"
    assert record.getMessage() == f"{about} [{record.correlation_id}]{text}"  # type: ignore[attr-defined]
    assert record.levelno == level
    assert error_for_caller(found, given) is found
    assert len(caplog.records) == 1
    error_for_caller(found, exchange("tools/call", params))
    assert len(caplog.records) == 2


def test_sensitive_parts_of_a_request_are_its_params_and_headers() -> None:
    caller = Caller(NEWEST, True, ANONYMOUS)
    given = direct_exchange(Request(1, "x", Raw(b"{}")), caller, headers={"a": "b"})
    assert sensitive_parts(given) == (Raw(b"{}"), {"a": "b"})


async def test_logging_a_handler_error_does_not_change_its_result() -> None:
    given = exchange()

    async def answer(exchange: Exchange) -> Answer:
        return b"{}"

    async def fail(exchange: Exchange) -> Answer:
        raise KeyError("secret")

    assert await log_errors(given, answer) == b"{}"
    with pytest.raises(RpcError, match="Internal error"):
        await log_errors(given, fail)
