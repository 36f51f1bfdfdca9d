"""Conversion of server errors for a client of the other era."""

import json
from typing import Any

import pytest

from fairlead.errors import (
    ConnectFailed,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from fairlead.protocol.own_errors import own_error, unreachable_error
from fairlead.relay.bridge.era_errors import for_handshake_client, for_stateless_client


def body(error: RpcError) -> Any:
    """Return the error object as it is sent."""
    assert error.raw is not None
    return json.loads(bytes(error.raw))


def foreign(code: int, data: Any = None) -> RpcError:
    raw = {"code": code, "message": "no", "data": data, "more": 1}
    return RpcError(code, "no", raw=json.dumps(raw).encode())


def test_the_error_code_for_a_missing_resource_matches_the_era_of_the_client() -> None:
    told = for_handshake_client("resources/read", foreign(-32602, {"uri": "a://b"}))
    assert (told.code, told.message) == (-32002, "no")
    assert body(told) == {"code": -32002, "message": "no", "data": {"uri": "a://b"}, "more": 1}
    back = for_stateless_client(foreign(-32002, {"uri": "a://b"}))
    assert body(back) == {"code": -32602, "message": "no", "data": {"uri": "a://b"}, "more": 1}
    plain = for_stateless_client(RpcError(-32002, "no", {"uri": "a://b"}))
    assert (plain.code, plain.message, plain.data) == (-32602, "no", {"uri": "a://b"})


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("tools/call", foreign(-32602, {"uri": "a://b"})),
        ("resources/read", foreign(-32602, {"name": "x"})),
        ("resources/read", foreign(-32602)),
        ("resources/read", RpcError(-32602, "no")),
        ("resources/read", foreign(-32021)),
        ("resources/read", foreign(1)),
    ],
)
def test_errors_that_need_no_conversion_are_sent_to_a_handshake_client_unchanged(
    method: str, error: RpcError
) -> None:
    assert for_handshake_client(method, error) is error


@pytest.mark.parametrize("code", [-32020, -32022])
def test_stateless_error_codes_are_wrapped_for_a_handshake_client(code: int) -> None:
    told = for_handshake_client("tools/call", foreign(code, 7))
    assert told.code == -32603
    original = {"code": code, "message": "no", "data": 7, "more": 1}
    data = {"source": "proxy", "original": original}
    assert body(told) == {"code": -32603, "message": "no", "data": data}


@pytest.mark.parametrize(("code", "wrapped"), [(-32099, 1), (-32000, 1), (-32100, 0), (-31999, 0)])
def test_error_codes_in_the_server_range_are_wrapped_for_a_stateless_client(
    code: int, wrapped: bool
) -> None:
    error = RpcError(code, "no", [1])
    told = for_stateless_client(error)
    if wrapped:
        original = {"code": code, "message": "no", "data": [1]}
        assert body(told)["data"] == {"source": "proxy", "original": original}
    else:
        assert told is error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RequestTimeout(2.0, "tools/call"), "server 's' did not answer within 2 s"),
        (HttpError(503, "busy"), "server 's' answered with HTTP 503"),
        (NoAnswer(1), "server 's' ended its response without a result"),
        (RemoteProtocolError("odd", code=-32600), "server 's' sent a message that is not valid"),
        (ConnectFailed("gone"), "server 's' could not be reached"),
    ],
)
def test_the_error_names_the_reason_why_a_server_cannot_be_reached(error: Any, words: str) -> None:
    told = unreachable_error("s", error)
    assert told.code == -32603
    assert told.message.startswith(words)
    assert told.data["source"] == "proxy"
    assert told.data["server"] == "s"
    assert told.data.get("status") == (503 if isinstance(error, HttpError) else None)


def test_errors_of_a_relay_name_it_as_their_source() -> None:
    assert own_error(-32602, "no", name="x").data == {"source": "proxy", "name": "x"}
