"""Refused requests: error responses and reports to the hook."""

import json
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import MalformedFrame
from fairlead.transport.http.server.asgi import AsgiCall
from fairlead.transport.http.server.refusals import (
    MessageRefusals,
    send_rejection,
    unknown_session,
)
from fairlead.transport.http.server.request_guard import RequestRefusal
from fairlead.wire import Message, Notification, Request


class Call(AsgiCall):
    def __init__(self) -> None:
        self.sent: list[Any] = []

        async def send(event: Any) -> None:
            self.sent.append(event)

        async def receive() -> Any:
            raise AssertionError

        super().__init__({"method": "POST", "path": "/mcp", "headers": []}, receive, send)

    @property
    def body(self) -> Any:  # type: ignore[override]
        return json.loads(self.sent[1]["body"])


@pytest.mark.parametrize(
    ("message", "answer", "reported"),
    [
        (Request(7, "x"), {"jsonrpc": "2.0", "id": 7}, True),
        (Notification("x"), {"jsonrpc": "2.0"}, True),
        (None, {"jsonrpc": "2.0"}, False),
    ],
)
async def test_a_refused_message_gets_an_error_and_is_reported(
    message: Message | None, answer: dict[str, Any], reported: bool
) -> None:
    heard: list[MalformedFrame] = []
    call = Call()
    why = RpcError(-32600, "no", {"a": 1})
    await MessageRefusals(heard.append).refuse(call, message, why, 404)
    error = {"code": -32600, "message": "no", "data": {"a": 1}}
    assert (call.sent[0]["status"], call.body) == (404, {**answer, "error": error})
    assert [(one.kind, one.why, one.transport.path) for one in heard] == (
        [("refused", "no", "/mcp")] if reported else []
    )
    assert all(one.size == len(one.frame) for one in heard)


async def test_a_message_is_refused_without_an_on_malformed_hook() -> None:
    call = Call()
    await MessageRefusals(None).refuse(call, Request(7, "x"), RpcError(-1, "no"), 400)
    assert call.body["id"] == 7


async def test_a_request_that_is_not_admitted_gets_its_status() -> None:
    call = Call()
    await send_rejection(call, RequestRefusal(401, "who?", ((b"www-authenticate", b"Bearer"),)))
    assert call.sent[0]["status"] == 401
    assert (b"www-authenticate", b"Bearer") in call.sent[0]["headers"]
    assert call.body == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "who?"}}


def test_the_error_for_an_unknown_session_names_the_remedy() -> None:
    error = unknown_session()
    assert (error.code, error.message) == (
        -32600,
        "Unknown session: send initialize to open a new one",
    )
