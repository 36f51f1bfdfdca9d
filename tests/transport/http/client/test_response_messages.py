"""Messages and session ids in HTTP responses."""

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.protocol.conversation.lifecycle_params import cancelled_id_of
from fairlead.transport.http.client.http1.response import HttpResponse
from fairlead.transport.http.client.response_messages import (
    cancelled_notification,
    failure_in,
    is_method_not_found,
    session_id_of,
    with_request_id,
)
from fairlead.wire import Notification, Request, encode, failure


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (UNSET, None),
        (Raw(b'{"requestId":7}'), 7),
        (Raw(b'{"requestId":"a","reason":"x"}'), "a"),
        (Raw(b"{}"), None),
        (Raw(b'{"requestId":[1]}'), None),
        (Raw(b"[]"), None),
    ],
)
def test_the_id_of_the_cancelled_request_is_read_from_the_notification(
    params: Any, expected: int | str | None
) -> None:
    assert cancelled_id_of(Notification("notifications/cancelled", params)) == expected


@pytest.mark.parametrize("request_id", [7, "a"])
def test_a_cancellation_contains_the_id_of_its_request(request_id: int | str) -> None:
    made = cancelled_notification(request_id)
    assert made.method == "notifications/cancelled"
    assert cancelled_id_of(made) == request_id


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"", None),
        (b"abc", "abc"),
        (b"!~", "!~"),
        (b"a b", None),
        (b"a\x7f", None),
        ("ü".encode(), None),
    ],
)
async def test_a_session_id_must_be_visible_ascii(
    value: bytes | None, expected: str | None
) -> None:
    line: Any = None
    reply = HttpResponse(line, asyncio.get_running_loop(), "http://h/")
    reply.begin(200, b"OK", {} if value is None else {b"mcp-session-id": value})
    assert session_id_of(reply) == expected


NOT_FOUND = failure(1, -32601, "no")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (encode(NOT_FOUND), True),
        (b" \n" + encode(NOT_FOUND), True),
        (b"no JSON", False),
        (b"[]", False),
        (b"{", False),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', False),
        (b"", False),
    ],
)
def test_a_json_rpc_error_is_found_in_an_http_body(body: bytes, found: bool) -> None:
    failed = failure_in(body)
    assert (failed is not None) is found
    if failed is not None:
        assert (failed.code, failed.message) == (-32601, "no")


def test_a_method_not_found_error_is_recognised() -> None:
    request = Request(1, "x")
    assert is_method_not_found(NOT_FOUND, request)
    assert not is_method_not_found(None, request)
    assert not is_method_not_found(failure(1, -32600, "no"), request)
    assert not is_method_not_found(failure(2, -32601, "no"), request)
    renamed = with_request_id(failure(None, -32601, "no", absent_id=True), 1)
    assert is_method_not_found(renamed, request)
    assert (renamed.message, renamed.absent_id) == ("no", False)
