"""Single requests to an endpoint, without a socket: status, headers and error messages."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.endpoint import HttpEndpoint
from fairlead.transport.http.server.http_settings import HttpSettings
from tests.support.asgi_requests import AsgiRequest
from tests.support.raw_server_client import META
from tests.support.virtual_time import VirtualTime

USUAL = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
STATELESS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
DESCRIBED = {**LIST, "params": {"_meta": META}}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}
NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {}}


class Reply:
    def __init__(self, events: list[Any]) -> None:
        self.status: int = events[0]["status"]
        self.headers = {name.decode(): text.decode() for name, text in events[0]["headers"]}
        self.body = b"".join(event.get("body", b"") for event in events[1:])

    @property
    def error(self) -> tuple[int, str]:
        error = json.loads(self.body)["error"]
        return error["code"], error["message"]


@contextlib.asynccontextmanager
async def endpoint(**settings: Any) -> AsyncIterator[HttpApp]:
    server = MCPServer("s")
    server.tool(name="t")(lambda: "x")
    app = HttpApp(server, HttpSettings(**settings))
    async with app.running():
        yield app


async def ask(
    app: HttpApp,
    message: Any = None,
    method: str = "POST",
    more: dict[str, str | None] | None = None,
    twice: tuple[bytes, bytes] | None = None,
) -> Reply:
    """Send a message or a body; a header that is None is omitted."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    events = [{"type": "http.request", "body": b"" if message is None else body}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not events:
            await asyncio.Event().wait()
        return events.pop()

    async def send(event: Any) -> None:
        sent.append(event)

    headers = {**USUAL, **(more or {})}
    fields = [(k.encode(), v.encode()) for k, v in headers.items() if v is not None]
    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "headers": [*fields, *([twice] if twice else [])],
        "client": ("127.0.0.1", 5),
    }
    async with asyncio.timeout(5):
        await app(scope, receive, send)
    return Reply(sent)


@pytest.mark.parametrize(
    ("message", "more", "status", "error"),
    [
        (DESCRIBED, STATELESS, 200, None),
        (LIST, {}, 200, None),
        (LIST, {"mcp-protocol-version": "2025-06-18"}, 200, None),
        (NOTE, {}, 202, None),
        (
            {**NOTE, "params": {"_meta": META}},
            {**STATELESS, "mcp-method": "notifications/x"},
            202,
            None,
        ),
        (ANSWER, {}, 400, (-32600, "Unexpected response: the client has no session")),
        (
            LIST,
            {"mcp-protocol-version": "2026-07-28"},
            400,
            (-32602, "_meta must contain io.modelcontextprotocol/protocolVersion"),
        ),
        (
            LIST,
            {"mcp-session-id": "x"},
            404,
            (-32600, "Unknown session: send initialize to open a new one"),
        ),
        ({**LIST, "method": "no/such"}, {}, 200, (-32601, "Method not found: no/such")),
        (
            {**DESCRIBED, "method": "no/such"},
            {**STATELESS, "mcp-method": "no/such"},
            404,
            (-32601, "Method not found: no/such"),
        ),
    ],
)
async def test_each_message_is_answered_with_its_status_and_error(
    message: Any, more: dict[str, str | None], status: int, error: tuple[int, str] | None
) -> None:
    async with endpoint() as app:
        reply = await ask(app, message, more=more)
        assert reply.status == status
        if error is not None:
            assert reply.error == error
        elif status == 200:
            assert json.loads(reply.body)["result"]["tools"][0]["name"] == "t"


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"content-type": None}, 415, "Content-Type must be application/json"),
        ({"content-type": "text/plain"}, 415, "Content-Type must be application/json"),
        ({"content-type": "Application/JSON; charset=utf-8"}, 200, None),
        ({"accept": "text/html"}, 406, "Accept: application/json, text/event-stream"),
        ({"accept": None}, 200, None),
        ({"accept": "*/*"}, 200, None),
        ({"content-length": "101"}, 413, "a message has at most 100 bytes"),
        ({"content-length": "100"}, 200, None),
        ({"content-encoding": "identity"}, 200, None),
    ],
)
async def test_the_headers_of_a_message_are_checked(
    more: dict[str, str | None], status: int, text: str | None
) -> None:
    async with endpoint(max_body=100) as app:
        reply = await ask(app, LIST, more=more)
        assert reply.status == status
        if text is not None:
            assert reply.body.decode().partition(": ")[2] == f"{text}\n"
            assert (reply.headers.get("connection") == "close") is (status == 413)


@pytest.mark.parametrize("stateless", [True, False])
async def test_an_invalid_message_is_refused_with_its_id_if_the_id_can_be_read(
    stateless: bool,
) -> None:
    more: Any = STATELESS if stateless else {}
    async with endpoint() as app:
        reply = await ask(app, b"{", more=more)
        assert (reply.status, reply.error[0]) == (400, -32700)
        assert ("id" in json.loads(reply.body)) is not stateless
        reply = await ask(app, {"jsonrpc": "2.0", "id": 7, "method": 5}, more=more)
        assert (reply.status, json.loads(reply.body)["id"]) == (400, 7)


async def test_the_error_for_an_unknown_protocol_version_truncates_the_value() -> None:
    async with endpoint() as app:
        session = (await ask(app, HELLO)).headers["mcp-session-id"]
        for more in ({}, {"mcp-session-id": session}):
            reply = await ask(app, LIST, more={**more, "mcp-protocol-version": "9" * 60})
            assert reply.status == 400
            code, text = reply.error
            assert code == -32600
            assert text.startswith(f"MCP-Protocol-Version '{'9' * 50}' is not one of 2024-11-05, ")
        good = await ask(app, LIST, more={"mcp-session-id": session})
        assert good.status == 200


async def test_a_header_that_occurs_twice_is_refused() -> None:
    async with endpoint() as app:
        twice = (b"mcp-method", b"tools/list")
        reply = await ask(app, DESCRIBED, more={**STATELESS}, twice=twice)
        assert (reply.status, reply.error) == (
            400,
            (-32020, "The header mcp-method must occur once"),
        )
        reply = await ask(
            app, method="GET", more={"mcp-session-id": "a"}, twice=(b"mcp-session-id", b"b")
        )
        assert reply.status == 400
        assert reply.body == b"400 Bad Request: the header mcp-session-id must occur once\n"


async def test_sessions_can_be_required_or_disabled() -> None:
    async with endpoint(require_session=True) as app:
        reply = await ask(app, LIST)
        assert (reply.status, reply.error) == (
            400,
            (-32600, "Mcp-Session-Id is missing: send initialize first"),
        )
        assert (await ask(app, DESCRIBED, more={**STATELESS})).status == 200
        assert "mcp-session-id" in (await ask(app, HELLO)).headers
    async with endpoint(sessions=False) as app:
        reply = await ask(app, HELLO)
        assert reply.status == 200
        assert "mcp-session-id" not in reply.headers


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
async def test_unsupported_methods_get_a_405_with_the_allowed_methods(method: str) -> None:
    async with endpoint() as app:
        reply = await ask(app, method=method)
        assert reply.status == 405
        assert {"POST", "GET", "DELETE"} <= set(reply.headers["allow"].split(", "))


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://page.example", 204), ("https://evil.example", 403), (None, 403)],
)
async def test_only_cors_preflights_of_allowed_origins_are_accepted(
    origin: str | None, status: int
) -> None:
    async with endpoint(allowed_origins=("https://page.example",)) as app:
        for wanted in ("x-a, x-b", None):
            more = {"origin": origin, "access-control-request-headers": wanted}
            reply = await ask(app, method="OPTIONS", more=more)
            assert reply.status == status
            if status == 204:
                assert reply.headers["access-control-allow-origin"] == origin
                assert reply.headers["access-control-max-age"] == "600"
                assert reply.headers["access-control-allow-headers"] == (
                    wanted or "content-type, accept, authorization"
                )


async def test_the_ending_attribute_is_true_after_close() -> None:
    async with endpoint() as app:
        assert app.edge.ending is False
        await app.edge.close()
        assert app.edge.ending is True


# Hooks


class Owner:
    """Recorder for calls of an endpoint's hooks."""

    def __init__(self, **settings: Any) -> None:
        self.malformed: list[Any] = []
        self.told: list[Any] = []
        self.endpoint = HttpEndpoint(
            self._handle,
            self._accept,
            HttpSettings(**settings),
            on_malformed=self.malformed.append,
            on_stateless_notification=lambda *about: self.told.append(about),
        )

    async def _handle(self, exchange: Exchange) -> Answer:
        return b"{}"

    def _accept(self, channel: Any, principal: Any) -> Any:
        raise AssertionError("no session is opened here")


async def test_malformed_bodies_are_reported_to_the_hook() -> None:
    owner = Owner()
    asked = await AsgiRequest(owner.endpoint, b'{"jsonrpc":')
    assert asked.status == 400
    (frame,) = owner.malformed
    assert (frame.kind, frame.frame, frame.size) == ("not a message", b'{"jsonrpc":', 11)
    assert (frame.why, frame.transport.peer_address) == (asked.error[1], "127.0.0.1")


async def test_refused_messages_are_reported_to_the_hook() -> None:
    owner = Owner()
    asked = await AsgiRequest(owner.endpoint, LIST, {"mcp-session-id": "x"})
    assert asked.status == 404
    (frame,) = owner.malformed
    assert (frame.kind, frame.why) == ("refused", asked.error[1])
    assert json.loads(frame.frame) == LIST
    assert frame.size == len(frame.frame)
    await AsgiRequest(owner.endpoint, [LIST], {"mcp-session-id": "x"})
    await AsgiRequest(owner.endpoint, headers={"mcp-session-id": "x"}, method="GET")
    assert len(owner.malformed) == 1, "refused batches and GETs are not reported"


async def test_a_stateless_notification_is_passed_to_the_notification_hook() -> None:
    owner = Owner()
    note = {**NOTE, "params": {"_meta": META}}
    fields: Any = {**STATELESS, "mcp-method": "notifications/x"}
    asked = await AsgiRequest(owner.endpoint, note, fields)
    assert (asked.status, asked.body) == (202, b"")
    ((message, caller, context),) = owner.told
    assert (message.method, caller.stateless, context.path) == ("notifications/x", True, "/mcp")
    await AsgiRequest(owner.endpoint, NOTE)
    assert len(owner.told) == 1


@pytest.mark.parametrize(
    ("encoding", "token", "status"),
    [
        ("gzip", "right", 415),
        ("gzip", "wrong", 401),
        ("identity", "right", 200),
        ("Identity", "right", 200),
        (None, "right", 200),
        (None, "wrong", 401),
    ],
)
async def test_compressed_bodies_are_refused_after_authentication(
    encoding: str | None, token: str, status: int
) -> None:
    owner = Owner(auth_token="right")
    fields = {"content-encoding": encoding, "authorization": f"Bearer {token}"}
    asked = await AsgiRequest(owner.endpoint, LIST, fields)
    assert asked.status == status
    assert ("accept-encoding" in asked.headers) == (status == 415)


async def test_a_disconnect_during_the_body_gets_no_response() -> None:
    owner = Owner()
    asked = AsgiRequest(owner.endpoint, LIST, more_body=True)
    asked.disconnect()
    await asked
    assert asked.sent == []


async def test_a_body_that_does_not_arrive_in_time_is_refused(virtual_time: VirtualTime) -> None:
    owner = Owner(body_timeout=3.0)
    begun = virtual_time.now
    asked = AsgiRequest(owner.endpoint, LIST, more_body=True)
    await asyncio.sleep(2.9)
    assert asked.sent == []
    await asked
    assert asked.body == b"408 Request Timeout: the body did not arrive in time\n"
    assert asked.headers["connection"] == "close"
    assert virtual_time.now - begun == pytest.approx(3.0, abs=0.1)


async def test_an_invalid_initialize_is_refused_without_sessions() -> None:
    async with endpoint(sessions=False) as app:
        asked = await AsgiRequest(app, {**HELLO, "params": {"protocolVersion": 5}})
        assert (asked.status, asked.json["id"]) == (200, 1)
        assert asked.error[0] == -32602
