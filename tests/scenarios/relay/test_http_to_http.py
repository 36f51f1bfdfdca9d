"""A relay with HTTP on both sides: sessions, headers, broken streams."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fairlead import Context, MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    Interceptor,
    Outcome,
    Proceed,
    SyncInterceptor,
)
from tests.support.http_server import (
    LIMIT,
    META,
    Desk,
    call,
    introduction,
    make_server,
    next_event,
    serving,
)
from tests.support.raw_relay import ASKED, SERVER_CAPABILITIES, scene
from tests.support.scripted_http_server import Call, raw_server

FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}


class Behind:
    """A plain HTTP server that supports the handshake era and records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.sessions: set[str] = set()
        self.ended: list[str] = []
        self._count = 0

    def methods(self) -> list[str]:
        return [body["method"] for kind, _, body in self.requests if kind == "POST"]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, dict(request.headers), body))
        session = request.headers.get("Mcp-Session-Id", "")
        if request.method == "DELETE":
            self.ended.append(session)
            self.sessions.discard(session)
            return web.Response()
        if request.method == "GET":
            return web.Response(status=405)
        if body["method"] == "initialize":
            self._count += 1
            self.sessions.add(f"s{self._count}")
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": SERVER_CAPABILITIES,
                "serverInfo": {"name": "behind", "version": "1"},
            }
            headers = {"Mcp-Session-Id": f"s{self._count}"}
            answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
            return web.json_response(answer, headers=headers)
        if session not in self.sessions:
            return web.Response(status=404)
        if "id" not in body:
            return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"s": session}})


@contextlib.asynccontextmanager
async def behind() -> AsyncIterator[tuple[Behind, dict[str, Any]]]:
    server = Behind()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield server, {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        await runner.cleanup()


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("status", "refused"), [(200, True), (400, False)])
@pytest.mark.parametrize("code", [-32600, -32602])
async def test_initialize_errors_reach_the_client_with_status_200_but_not_with_400(
    code: int, status: int, refused: bool
) -> None:
    async def answer(call: Call) -> None:
        if call.rpc == "initialize":
            error = {"code": code, "message": "not this client"}
            await call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, status)
        elif call.rpc == "server/discover":
            await call.result(
                {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {},
                }
            )
        elif "id" in call.message:
            await call.result({"resultType": "complete"})
        else:
            await call.answer(405 if call.rpc == "GET" else 202)

    async with raw_server(answer) as server, Gateway() as gateway:
        entry = {"type": "http", "url": server.url}
        await gateway.connect({"s": entry})
        for host, path in ((gateway, "/s"), (Relay(entry), "")):
            async with serving(host) as edge:  # type: ignore[arg-type]
                opened = (await edge.post(introduction(), url=edge.url + path)).json
                error = {"code": code, "message": "not this client"} if refused else None
                assert opened.get("error") == error


@pytest.mark.covers("GTW-05")
async def test_each_client_session_has_an_upstream_session_and_both_end_together() -> None:
    async with behind() as (server, entry), serving(Relay(entry, era="handshake")) as edge:  # type: ignore[arg-type]
        one, two = await edge.initialize(), await edge.initialize()
        first = (await one.post({"jsonrpc": "2.0", "id": 1, "method": "x"})).result["s"]
        second = (await two.post({"jsonrpc": "2.0", "id": 1, "method": "x"})).result["s"]
        assert {first, second} == {"s1", "s2"}
        assert one.headers["Mcp-Session-Id"] not in (first, second)
        async with edge.http.delete(edge.url, headers=one.headers) as response:
            assert response.status == 200
        await until(lambda: server.ended == [first])
        assert (await two.post({"jsonrpc": "2.0", "id": 2, "method": "x"})).result["s"] == second


class Counting(SyncInterceptor):
    """An interceptor that counts requests and their outcomes."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[object] = []

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method != "x":
            return exchange, None
        self.begun.append(exchange.method)
        return exchange, self._after

    def _after(self, outcome: Outcome) -> Outcome:
        self.ended.append(type(outcome))
        return outcome


class Passing:
    """A coroutine interceptor that is called without a task."""

    waits = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


@pytest.mark.covers("GTW-05", "GTW-06")
@pytest.mark.parametrize("between", ["nobody", "halves", "both"])
async def test_a_lost_upstream_session_is_renewed(between: str) -> None:
    counting = Counting()
    kinds: dict[str, list[Interceptor]] = {"halves": [counting], "both": [counting, Passing()]}
    async with behind() as (server, entry):
        relay = Relay(entry, era="handshake", interceptors=kinds.get(between, []))
        async with serving(relay) as edge:  # type: ignore[arg-type]
            session = await edge.initialize()
            answer = await session.post({"jsonrpc": "2.0", "id": 1, "method": "x"})
            assert answer.result["s"] == "s1"
            server.sessions.clear()
            again = await session.post({"jsonrpc": "2.0", "id": 2, "method": "x"})
            assert again.result["s"] == "s2"
            assert server.methods().count("initialize") == 2
    if between != "nobody":  # interceptors are called once despite the retry
        assert counting.begun == ["x", "x"]
        assert len(counting.ended) == 2


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("between", ["halves", "both"])
@pytest.mark.parametrize("era", ["stateless", "session"])
async def test_an_undelivered_request_is_retried_without_calling_interceptors_again(
    era: str, between: str
) -> None:
    counting = Counting()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(make_server()) as target:
            around: list[Interceptor] = [counting, *([Passing()] if between == "both" else [])]
            relay = Relay({"type": "http", "url": target.url}, interceptors=around)
            edge = await stack.enter_async_context(serving(relay))  # type: ignore[arg-type]
            session = await edge.initialize()

            async def ask() -> Any:
                if era == "stateless":
                    return (await edge.stateless("x")).json["error"]
                body = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": 1}}
                return (await session.post(body)).json["error"]

            assert (await ask())["message"] == "Method not found: x"
        assert (await ask())["message"] == "server 'server' refused the connection"
    # Interceptors were called once although the request was sent twice.
    assert counting.begun == ["x", "x"]
    assert counting.ended == [RpcError, RpcError]


@pytest.mark.covers("GTW-07")
async def test_hop_by_hop_headers_and_credentials_are_not_forwarded() -> None:
    async with behind() as (server, entry):
        relay = Relay(entry, era="handshake")
        async with serving(relay, auth_token="secret") as edge:  # type: ignore[arg-type]
            own = {"Authorization": "Bearer secret", "X-Custom": "1", "Cookie": "c=1"}
            answer = await edge.post(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "initialize",
                    "params": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": {"name": "c", "version": "1"},
                    },
                },
                {**own, "Keep-Alive": "timeout=5", "Forwarded": "for=1.2.3.4"},
            )
            given = {**own, "Mcp-Session-Id": answer.headers["mcp-session-id"]}
            assert (await edge.post({"jsonrpc": "2.0", "id": 1, "method": "x"}, given)).result
        port = entry["url"].split(":")[2].partition("/")[0]
        for _, headers, _ in server.requests:
            names = {name.lower() for name in headers}
            assert not names & {"authorization", "cookie", "x-custom", "keep-alive", "forwarded"}
            assert headers["Host"] == f"127.0.0.1:{port}"
        # The upstream session differs from the client's session.
        assert all(
            headers.get("Mcp-Session-Id") in (None, "s1") for _, headers, _ in server.requests
        )


@pytest.mark.covers("GTW-07")
async def test_an_error_from_the_relay_names_its_source() -> None:
    dead = {"type": "http", "url": "http://127.0.0.1:9/mcp"}
    async with serving(Relay(dead, "dead")) as edge:  # type: ignore[arg-type]
        answer = await edge.stateless("tools/list")
        assert answer.json["error"]["data"]["source"] == "proxy"
        assert answer.json["error"]["data"]["server"] == "dead"
        assert (await edge.post({"jsonrpc": "2.0", "id": 1, "method": "x"})).status in (200, 400)


@pytest.mark.covers("GTW-05")
async def test_a_relay_resumes_a_broken_stream_from_its_server() -> None:
    desk = Desk()
    target = MCPServer("behind")

    @target.tool()
    async def slow(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        desk.started.set()
        await desk.go_on.wait()
        return "done"

    async with serving(Relay(target)) as edge:  # type: ignore[arg-type]
        session = await edge.initialize()
        async with session.stream(call("slow", progressToken="t")) as response:
            last = None
            while last is None:
                event = await next_event(response)
                if "half" in event.get("data", ""):
                    last = event["id"]
            await desk.started.wait()
        # the call continues: a disconnect does not cancel calls in this era
        desk.go_on.set()
        async with session.stream(None, **{"Last-Event-ID": last}) as response:
            while not (event := await next_event(response)).get("data"):
                pass
        assert json.loads(event["data"])["result"]["content"][0]["text"] == "done"


@pytest.mark.covers("GTW-05")
async def test_a_parked_call_is_continued_only_by_its_principal() -> None:
    tokens = {"a": "ann", "b": "bob"}
    async with scene() as place:
        async with serving(place.relay, verify_token=tokens.get) as edge:  # type: ignore[arg-type]
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": ASKED}
            params: dict[str, Any] = {"name": "x", "arguments": {}}
            asking = asyncio.ensure_future(
                edge.stateless("tools/call", params, {"Authorization": "Bearer a"}, **meta)
            )
            server = await place.server()
            request = await server.method("tools/call")
            server.ask("elicitation/create", FORM, "s1")
            result = (await asking).result
            again = {
                **params,
                "requestState": result["requestState"],
                "inputResponses": {"q1": {"action": "accept"}},
            }
            stolen = await edge.stateless(
                "tools/call", again, {"Authorization": "Bearer b"}, **meta
            )
            assert stolen.error == -32602
            asking = asyncio.ensure_future(
                edge.stateless("tools/call", again, {"Authorization": "Bearer a"}, **meta)
            )
            assert (await server.answer_to("s1"))["result"] == {"action": "accept"}
            server.reply(request, {"content": []})
            assert (await asking).result["resultType"] == "complete"


async def test_parked_calls_on_one_upstream_session_are_distinguished_by_their_streams() -> None:
    target = MCPServer("behind")

    @target.tool()
    async def greet(ctx: Context, whom: str) -> str:
        answer = await ctx.elicit(f"as {whom}?", str)
        return f"{whom}: {answer.data}"

    async with serving(target) as inner:
        relay = Relay({"type": "http", "url": inner.url}, era="handshake")
        async with serving(relay) as edge:  # type: ignore[arg-type]
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": ASKED}
            calls = {who: {"name": "greet", "arguments": {"whom": who}} for who in ("ann", "bob")}
            asked = await asyncio.gather(
                *(edge.stateless("tools/call", params, **meta) for params in calls.values())
            )
            assert len(relay.parked) == 2
            assert len(relay.pool.connections) == 1
            for (who, params), answer in reversed(list(zip(calls.items(), asked, strict=True))):
                (key, question), *others = answer.result["inputRequests"].items()
                assert not others
                assert question["params"]["message"] == f"as {who}?"
                said = {"action": "accept", "content": {"value": f"I am {who}"}}
                more = {
                    "requestState": answer.result["requestState"],
                    "inputResponses": {key: said},
                }
                last = await edge.stateless("tools/call", {**params, **more}, **meta)
                assert last.text == f"{who}: I am {who}"


async def test_a_disconnect_cancels_a_stateless_call() -> None:
    async with scene() as place:
        async with serving(place.relay) as edge:  # type: ignore[arg-type]
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": ASKED}
            asking = asyncio.ensure_future(edge.stateless("tools/call", {"name": "x"}, **meta))
            server = await place.server()
            request = await server.method("tools/call")
            asking.cancel()
            told = await server.method("notifications/cancelled")
            assert told["params"]["requestId"] == request["id"]


async def test_a_pretty_printed_body_is_forwarded_as_one_line() -> None:
    async with scene() as place:
        async with serving(place.relay) as edge:  # type: ignore[arg-type]
            session = await edge.initialize()
            body = b'{\n "jsonrpc": "2.0",\n "id": 1,\n "method": "vendor/x",\n "params": '
            body += b'{\n  "a": {\n   "n": 1.50\n  }\n }\n}\n'
            asking = asyncio.ensure_future(session.post(body))
            server = await place.server()
            await server.method("notifications/initialized")
            line = await server.line()
            assert b'"a":{"n":1.50}' in line
            server.reply(json.loads(line), {})
            assert (await asking).result == {}


async def test_a_server_can_be_used_through_two_chained_relays() -> None:
    async with serving(Relay(make_server())) as inner:  # type: ignore[arg-type]
        outer = Relay({"type": "http", "url": inner.url})
        async with serving(outer) as edge:  # type: ignore[arg-type]
            session = await edge.initialize()
            names = (await session.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).result
            direct = (await edge.stateless("tools/list")).result
            assert [t["name"] for t in names["tools"]] == [t["name"] for t in direct["tools"]]
