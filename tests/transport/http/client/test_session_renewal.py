"""Renewal of a session that the server has lost, with its subscriptions and log level."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.errors import (
    HttpError,
    RpcError,
)
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.wire import Notification, Request
from tests.support.scripted_door import Asked, ScriptedChannel, reply, stream
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
)
from tests.support.virtual_time import VirtualTime

LIMIT = 10.0
NOTE = "note://one"


def make() -> MCPServer:
    server = MCPServer("notes", rate_limit_rate=0)

    @server.resource(NOTE)
    async def one() -> str:
        return "one"

    @server.tool()
    async def touch() -> str:
        server.resource_updated(NOTE)
        return "touched"

    @server.tool()
    async def speak(ctx: Context) -> str:
        await ctx.debug("too little")
        await ctx.warning("enough")
        return "spoken"

    return server


class Place:
    """A server that can be restarted on the same port and then has no sessions."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> str:
        await self.stop()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(
            make().run_http(port=self._port, started=ready.set_result)
        )
        await asyncio.wait({ready, self._running}, return_when=asyncio.FIRST_COMPLETED)
        return ready.result()

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))


@contextlib.asynccontextmanager
async def scene(**callbacks: Any) -> AsyncIterator[tuple[Place, MCPClient]]:
    place = Place()
    config = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT)
    try:
        url = await place.start()
        async with (
            asyncio.timeout(LIMIT * 2),
            MCPClient.connect_http(url, config, **callbacks) as client,
        ):
            yield place, client
    finally:
        await place.stop()


async def test_subscriptions_and_log_level_are_restored_in_a_new_session() -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()
    logged: list[Any] = []

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/resources/updated":
            told.put_nowait(params["uri"])

    async with scene(on_notification=hear, on_log=lambda *said: logged.append(said)) as (
        place,
        client,
    ):
        await client.subscribe(NOTE)
        await client.set_log_level("warning")
        for _ in range(3):
            await place.start()
            await client.call_tool("touch")
            assert await told.get() == NOTE
        await client.call_tool("speak")
        assert "enough" in str(logged)
        assert "too little" not in str(logged)


async def test_a_new_session_is_reported_as_a_change_of_watched_resources() -> None:
    async with scene() as (place, client), client.changes(uris=[NOTE]) as changes:
        await place.start()  # the client cannot know whether resources changed during the restart
        await client.call_tool("speak")
        change = await anext(aiter(changes))
        assert change.uri == NOTE


@pytest.mark.covers("HTT-08")
async def test_an_unknown_session_is_renewed_once_for_all_requests() -> None:
    sessions: list[str] = []

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.rpc == "GET":
            await call.answer(405)
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            error = {"code": -32600, "message": "Session not found"}
            await call.json({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        elif "id" in call.message:
            await call.result({"n": call.message["id"]})
        else:
            await call.accept()

    async with raw_server(handle) as server, connected(server.url) as (peer, channel):
        renewals: list[bool] = []
        channel.on_renewed = lambda: renewals.append(True)
        await peer.request("logging/setLevel", {"level": "info"})
        await peer.request("resources/subscribe", {"uri": "a:1"})
        await peer.request("resources/subscribe", {"uri": "a:2"})
        await peer.request("resources/unsubscribe", {"uri": "a:1"})
        before = len(server.calls)
        sessions.append("another")
        results = await asyncio.gather(*(peer.request("tools/list") for _ in range(5)))
        assert [json.loads(bytes(r))["n"] for r in results] == [6, 7, 8, 9, 10]
        assert renewals == [True]
        assert len(server.of("initialize")) == 2
        again = server.of("initialize")[1]
        assert "mcp-session-id" not in again.headers
        assert again.message["params"] == server.of("initialize")[0].message["params"]
        restored = [
            (call.rpc, call.message.get("params"))
            for call in server.calls[before:]
            if call.rpc not in ("tools/list", "initialize", "GET")
        ]
        assert restored == [
            ("notifications/initialized", None),
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "a:2"}),
        ]
        assert channel.session_id == "s2"


@pytest.mark.covers("HTT-08")
async def test_a_404_response_in_the_renewed_session_is_raised() -> None:
    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        # Assigning the same id would look like a session that another request has renewed.
        with pytest.raises(HttpError, match="HTTP 404: who\\?"):
            await peer.request("tools/list")
        assert len(server.of("tools/list")) == 2


async def test_a_404_response_with_a_json_rpc_error_does_not_renew_the_session() -> None:
    async def rest(call: Call) -> None:
        error = {"code": -32601, "message": "no such method"}
        await call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, 404)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError, match="no such method"):
            await peer.request("tools/list")
        assert len(server.of("initialize")) == 1


async def test_the_original_404_error_is_raised_if_the_renewal_fails() -> None:
    refuse = False

    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async def handle(call: Call) -> None:
        if call.rpc == "initialize" and refuse:
            await call.answer(503, "later")
        else:
            await handshake_server(rest)(call)

    async with raw_server(handle) as server, connected(server.url) as (peer, _):
        refuse = True
        with pytest.raises(HttpError, match="HTTP 404: who\\?") as lost:
            await peer.request("tools/list")
        assert isinstance(lost.value.__cause__, HttpError)
        assert lost.value.__cause__.status == 503


@pytest.mark.covers("HTT-08", "HTT-13")
@pytest.mark.parametrize("who", ["request", "listener"])
async def test_the_listening_stream_opens_in_the_renewed_session(who: str) -> None:
    """Either a request or the listening stream discovers first that the old session is lost."""
    sessions: list[str] = []
    forget = asyncio.Event()

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            await call.answer(404)
        elif call.rpc == "GET":
            await call.begin_events()
            await call.event(progress(len(sessions)), id=f"g{len(sessions)}", retry="1")
            if who == "listener" and len(sessions) == 1:
                await forget.wait()
                await call.end()
            else:
                await call.gone()
        elif "id" in call.message:
            await call.result({})
        else:
            await call.accept()

    host = Host()
    async with (
        raw_server(handle) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        await host.told.get()
        sessions.append("another")
        forget.set()
        if who == "request":
            await peer.request("tools/list")
        told = await host.told.get()
        assert json.loads(bytes(told.params))["data"] == 3  # type: ignore[arg-type]
        assert channel.session_id == "s2"
        assert "last-event-id" not in server.of("GET")[-1].headers
        assert len(server.of("initialize")) == 2
        await peer.request("tools/list")


# Without a network


HELLO = Raw(b'{"protocolVersion":"2025-11-25","capabilities":{}}')


class Forgetful:
    """A server that drops its sessions on request."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.introduce: list[Any] = []  # responses to the first `initialize` requests
        self.restore: Any = None  # the response to requests that restore session state

    async def __call__(self, asked: Asked) -> HttpResponse:
        if asked.rpc == "initialize":
            if self.introduce:
                given = self.introduce.pop(0)
                return await given(asked) if callable(given) else given
            return self.introduced(asked)
        if asked.method == "DELETE":
            return reply(200)
        if asked.method == "GET":
            return reply(405)
        if asked.headers.get("mcp-session-id") != self.sessions[-1]:
            return reply(404, b"who?")
        if asked.rpc in ("logging/setLevel", "resources/subscribe") and self.restore is not None:
            return self.restore(asked)
        if "id" not in asked.message:
            return reply(202)
        return result(asked, {})

    def introduced(self, asked: Asked) -> HttpResponse:
        self.sessions.append(f"s{len(self.sessions)}")
        return result(asked, {"protocolVersion": "2025-06-18"}, Mcp_Session_Id=self.sessions[-1])

    def forget(self) -> None:
        self.sessions.append("another")


def result(asked: Asked, value: Any, **headers: str) -> HttpResponse:
    return reply(200, {"jsonrpc": "2.0", "id": asked.message["id"], "result": value}, **headers)


@contextlib.asynccontextmanager
async def in_session(server: Forgetful) -> AsyncIterator[ScriptedChannel]:
    async with ScriptedChannel.over(server, listen=False) as one:
        one.channel.send(Request(0, "initialize", HELLO))
        await one.got()
        one.channel.send(Notification("notifications/initialized"))
        await one.asked("notifications/initialized")
        one.delivered.clear()
        yield one


async def test_the_handshake_is_repeated_in_the_new_session() -> None:
    server = Forgetful()
    async with in_session(server) as one:
        renewed: list[int] = []
        one.channel.on_renewed = lambda: renewed.append(1)
        one.channel.send(Request(1, "logging/setLevel", Raw(b'{"level":"info"}')))
        await one.got()
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        assert (await one.got(2)).id == 2
        assert one.channel.session_id == "s2"
        rpcs = [asked.rpc for asked in one.door.asked]
        assert rpcs == [
            *("initialize", "notifications/initialized", "logging/setLevel", "tools/list"),
            *("initialize", "notifications/initialized", "logging/setLevel", "tools/list"),
        ]
        again, ready, level = one.door.asked[4:7]
        assert (again.message["id"], again.message["params"]) == (
            *("renewal-1", json.loads(bytes(HELLO))),
        )
        assert "mcp-session-id" not in again.headers
        assert (ready.headers["mcp-session-id"], level.message["id"]) == ("s2", "renewal-2")
        assert level.headers["mcp-protocol-version"] == "2025-06-18"
        assert (renewed, one.errors) == ([1], [])


@pytest.mark.parametrize("how", ["stream", "no stream"])
async def test_other_messages_received_during_the_renewal_are_delivered(how: str) -> None:
    made = stream()

    async def introduce(asked: Asked) -> HttpResponse:
        made.event({"jsonrpc": "2.0", "method": "notifications/x"})
        made.event("", event="other")
        made.event({"jsonrpc": "2.0", "id": 77, "result": {}})
        value = {"protocolVersion": "2025-06-18"}
        made.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": value})
        server.sessions.append("")
        return made

    server = Forgetful()
    async with in_session(server) as one:
        if how == "stream":
            server.introduce = [introduce]
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        item = await one.got()
        if how == "stream":
            assert item == Notification("notifications/x")
            assert (await one.got(2)).id == 77
            for _ in range(20):
                await asyncio.sleep(0)
            assert "renewal-1" not in [getattr(item, "id", None) for item in one.delivered]
            assert made.dropped, "the stream is closed after the response"
        else:
            assert item.id == 2


@pytest.mark.parametrize(
    ("introduced", "ended"),
    [
        (lambda: reply(503, b"later"), []),
        (lambda: reply(503, b"later", Mcp_Session_Id="bad"), ["bad"]),
        (
            lambda: reply(
                200,
                {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
                Mcp_Session_Id="bad",
            ),
            ["bad"],
        ),
        (lambda: reply(200, b"no json", Mcp_Session_Id="bad"), ["bad"]),
        (lambda: reply(200, {"jsonrpc": "2.0", "method": "x"}, Mcp_Session_Id="bad"), ["bad"]),
    ],
    ids=["refused", "refused with an id", "error", "noise", "no response"],
)
async def test_a_session_whose_handshake_failed_is_terminated(
    introduced: Any, ended: list[str]
) -> None:
    server = Forgetful()
    async with in_session(server) as one:
        server.introduce = [introduced()]
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        lost = await one.got()
        assert (lost.request_id, str(lost.error)) == (2, "HTTP 404: who?")
        assert lost.error.__cause__ is not None
        assert one.errors == [lost.error.__cause__]
        if ended:
            await one.asked("DELETE")
        deleted = [asked.headers["mcp-session-id"] for asked in one.door.of("DELETE")]
        assert deleted == ended


async def test_a_renewal_times_out_after_30_seconds(virtual_time: VirtualTime) -> None:
    async def never(asked: Asked) -> HttpResponse:
        await asyncio.sleep(1000)
        return reply(500)

    server = Forgetful()
    async with in_session(server) as one:
        server.introduce = [never]
        server.forget()
        begun = virtual_time.now
        one.channel.send(Request(2, "tools/list"))
        await asyncio.sleep(29.9)
        assert one.delivered == []
        await asyncio.sleep(0.2)
        assert isinstance(one.delivered[0].error.__cause__, TimeoutError)
        assert virtual_time.now - begun == pytest.approx(30.1)


@pytest.mark.parametrize(
    "restore",
    [lambda asked: reply(500), lambda asked: reply(200, b"no json")],
    ids=["refused", "noise"],
)
async def test_the_renewal_fails_if_state_cannot_be_restored(restore: Any) -> None:
    server = Forgetful()
    async with in_session(server) as one:
        one.channel.send(Request(1, "logging/setLevel", Raw(b'{"level":"info"}')))
        await one.got()
        server.restore = restore
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        lost = await one.got(2)
        assert (lost.request_id, lost.error.status) == (2, 404)


async def test_closing_during_a_renewal_reports_no_error() -> None:
    async def never(asked: Asked) -> HttpResponse:
        await asyncio.Event().wait()
        return reply(500)

    server = Forgetful()
    async with in_session(server) as one:
        server.introduce = [never]
        server.forget()
        one.door.reached = False
        one.channel.send(Request(2, "tools/list"))
        await one.asked("initialize", 2)
        await one.channel.close()
        assert one.errors == []
        assert one.door.closed


async def test_an_exception_in_the_on_renewed_hook_does_not_affect_the_request() -> None:
    def boom() -> None:
        raise ValueError("boom")

    server = Forgetful()
    async with in_session(server) as one:
        one.channel.on_renewed = boom
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        assert (await one.got()).id == 2


async def test_a_request_uses_a_session_that_was_renewed_in_the_meantime() -> None:
    server, both, late = Forgetful(), asyncio.Event(), asyncio.Event()

    async def answer(asked: Asked) -> HttpResponse:
        if asked.message.get("id") == 2 and not late.is_set():
            both.set()
            await late.wait()
            return reply(404)
        if asked.message.get("id") == 1:
            await both.wait()
        return await server(asked)

    async with ScriptedChannel.over(answer, listen=False) as one:
        one.channel.send(Request(0, "initialize", HELLO))
        await one.got()
        server.forget()
        for number in (1, 2):
            one.channel.send(Request(number, "tools/list"))
        assert (await one.got(2)).id == 1
        late.set()
        assert (await one.got(3)).id == 2
        assert len(one.door.of("initialize")) == 2
        assert len(one.door.of("tools/list")) == 4


async def test_an_event_that_is_too_long_is_reported_and_skipped() -> None:
    made = stream()

    async def introduce(asked: Asked) -> HttpResponse:
        made.event("x" * 2000)
        value = {"protocolVersion": "2025-06-18"}
        made.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": value})
        server.sessions.append("")
        return made

    server = Forgetful()
    async with ScriptedChannel.over(server, listen=False, limit=1000) as one:
        one.channel.send(Request(0, "initialize", HELLO))
        await one.got()
        server.introduce = [introduce]
        server.forget()
        one.channel.send(Request(2, "tools/list"))
        assert "over the limit of 1000" in str(await one.got(2))
