"""The single timer of a connection, when heartbeats and timeouts coincide."""

import asyncio
import contextlib
import json
import random
import time
from functools import partial
from typing import Any

import pytest

import fairlead.server.http_app.uvicorn_runner as run_http
import fairlead.transport.http.server.guarded_protocol as connection
from fairlead import Context, MCPServer
from fairlead.server.http_app.request_drain import DrainPlan
from tests.support.http_server import Desk, Web, make_server, serving
from tests.support.raw_http_client import ADD, Line, line_to, request

BEAT = 0.04
WAIT: dict[str, Any] = {"name": "wait", "arguments": {}}
SESSION = {"MCP-Protocol-Version": "2025-11-25"}


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def lane(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=["session", "stateless"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def begin(line: Line, era: str) -> dict[str, str] | None:
    """Open a session if the era has one, and return the headers of its requests."""
    if era == "stateless":
        return None
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params["clientInfo"] = {"name": "raw", "version": "1"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    line.send(request(body=json.dumps(body).encode(), session={}))
    got = await line.answer()
    session = {**SESSION, "Mcp-Session-Id": got.fields["mcp-session-id"]}
    told = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    line.send(request(body=told, session=session))
    assert (await line.answer()).status == 202
    return session


def asks(session: dict[str, str] | None, params: dict[str, Any], number: int = 5) -> bytes:
    if session is None:
        return request(params)
    body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return request(body=json.dumps(body).encode(), session=session)


def result(body: bytes) -> str:
    """Return the text of a tool's result, from JSON or the last event of a stream."""
    if not body.startswith(b"{"):
        events = [line[5:] for line in body.split(b"\n") if line.startswith(b"data:")]
        body = events[-1]
    return str(json.loads(body)["result"]["content"][0]["text"])


async def test_a_slow_call_with_pipelined_requests_sends_heartbeats(lane: bool, era: str) -> None:
    desk = Desk()
    async with (
        serving(make_server(desk), heartbeat=BEAT, fast_path=lane) as web,
        line_to(web) as line,
    ):
        session = await begin(line, era)
        line.send(asks(session, WAIT, 2))
        async with asyncio.timeout(5):
            await desk.started.wait()
        line.send(asks(session, ADD, 3) + asks(session, ADD, 4))
        async with asyncio.timeout(5):
            start = await line.reader.readuntil(b": ")  # a part of the response's head
            start += await line.reader.readuntil(b"\n:")  # the first heartbeat
        assert start.startswith(b"HTTP/1.1 200")
        desk.go_on.set()
        async with asyncio.timeout(5):
            rest = await line.reader.readuntil(b"\r\n0\r\n\r\n")
        assert b"waited" in rest
        for _ in range(2):
            assert (await line.answer()).text == "3"


def punctual_server() -> MCPServer:
    """Return a server whose tool ends in the loop iteration in which the heartbeat is due."""
    server = make_server()

    @server.tool()
    async def punctual(ctx: Context, chatty: bool) -> str:
        loop = asyncio.get_running_loop()
        if chatty:
            await ctx.progress(1, 2)
            await asyncio.sleep(0)
        done = loop.create_future()
        loop.call_later(BEAT * 0.75, done.set_result, None)
        # blocks the event loop until the tool and the heartbeat are both due
        loop.call_later(BEAT * 0.5, time.sleep, BEAT)
        await done
        return "done"

    return server


@pytest.mark.parametrize("chatty", [True, False], ids=["chatty", "plain"])
async def test_no_data_is_sent_after_a_response_that_coincides_with_a_heartbeat(
    lane: bool, era: str, chatty: bool, loop_kind: str
) -> None:
    async with (
        serving(punctual_server(), heartbeat=BEAT, fast_path=lane) as web,
        line_to(web) as line,
    ):
        session = await begin(line, era)
        params = {"name": "punctual", "arguments": {"chatty": chatty}}
        if chatty:
            params["_meta"] = {"progressToken": "t"}
        for number in range(10, 13):
            line.send(asks(session, params, number))
            assert result((await line.answer()).body) == "done"
            line.send(asks(session, ADD, number + 10))
            assert (await line.answer()).text == "3"


async def test_blank_lines_between_requests_do_not_cause_a_timeout(
    lane: bool, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines start the head timeout; the following request must stop it."""
    monkeypatch.setattr(connection, "HEAD_TIME", 0.1)
    async with serving(make_server(), fast_path=lane) as web, line_to(web) as line:
        session = await begin(line, era)
        for number in (2, 3):
            line.send(asks(session, ADD, number))
            assert (await line.answer()).text == "3"
        line.send(b"\r\n")
        for _ in range(5):
            await asyncio.sleep(0)
        line.send(asks(session, ADD, 4))
        assert (await line.answer()).text == "3"
        assert not await line.closed(0.2)
        line.send(asks(session, ADD, 5))
        assert (await line.answer()).text == "3"


async def test_a_request_sent_at_the_keep_alive_timeout_is_answered_or_ignored(
    lane: bool, era: str, monkeypatch: pytest.MonkeyPatch, loop_kind: str
) -> None:
    monkeypatch.setattr(run_http, "KEEP_ALIVE", 0.03)
    # disables the rounding of timeouts to whole seconds
    monkeypatch.setattr(run_http, "round", float, raising=False)
    dice = random.Random(5)
    answered = closed = 0
    async with serving(make_server(), fast_path=lane) as web:
        async with line_to(web) as first:
            session = await begin(first, era)
        for number in range(2, 14):
            async with line_to(web) as line:
                line.send(asks(session, ADD, number * 2))
                assert (await line.answer()).text == "3"
                # Blocks the event loop, so that the timeout and the request coincide.
                time.sleep(0.03 + dice.uniform(-0.004, 0.002))
                if line.writer.is_closing():
                    continue
                line.send(asks(session, ADD, number * 2 + 1))
                status = 0
                with contextlib.suppress(ConnectionError):
                    got = await line.answer()
                    status = got.status
                assert status in (0, 200)
                answered, closed = answered + (status == 200), closed + (status == 0)
    assert answered + closed > 8


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
async def test_a_stopping_server_answers_or_closes_every_connection_within_the_grace_period(
    lane: bool, era: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls in progress get a grace period; then their connections are closed."""
    monkeypatch.setattr(run_http, "DrainPlan", partial(DrainPlan, limit=1.0))
    desk, stuck = Desk(), Desk()
    server = make_server(desk)

    @server.tool()
    async def never() -> str:
        stuck.started.set()
        await stuck.go_on.wait()
        return "never"

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result, fast_path=lane))
    async with asyncio.timeout(10):
        web = Web(await ready, None)  # type: ignore[arg-type]  # only its address is needed
    async with line_to(web) as first, line_to(web) as second, line_to(web) as idle:
        sessions = [await begin(line, era) for line in (first, second)]
        for line, session in zip((first, second), sessions, strict=True):
            for number in (2, 3) if known else ():
                line.send(asks(session, ADD, number))
                assert (await line.answer()).text == "3"
        first.send(asks(sessions[0], WAIT, 5))
        second.send(asks(sessions[1], {"name": "never", "arguments": {}}, 5))
        async with asyncio.timeout(5):
            await desk.started.wait()
            await stuck.started.wait()
        running.cancel()
        assert await idle.closed()
        desk.go_on.set()
        got = await first.answer()
        # Both tools have started, so the status is not 503: clients repeat such requests.
        if era == "stateless":
            assert (got.status, got.fields["connection"], got.text) == (200, "close", "waited")
            assert (await second.answer()).status == 500
        else:  # the server ends sessions first, together with their calls
            assert got.status == 500
            assert (await second.answer()).status == 500
        assert await first.closed()
        assert await second.closed()
        async with asyncio.timeout(10):
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def test_an_exception_in_the_token_verifier_is_answered_with_503(lane: bool) -> None:
    fails = False

    def verify(token: str) -> str | None:
        if fails:
            raise LookupError("the database is unavailable")
        return token

    async with serving(make_server(), fast_path=lane, verify_token=verify) as web:
        async with line_to(web) as line:
            data = request(ADD, "Authorization: Bearer me")
            for _ in range(2):
                line.send(data)
                assert (await line.answer()).text == "3"
            fails = True
            line.send(data)
            assert (await line.answer()).status == 503
