"""A client with servers that violate HTTP, server-sent events or the protocol."""

import asyncio
import gzip
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import (
    FairleadError,
    HttpError,
    RequestTimeout,
    TransportError,
)
from tests.support.scripted_http_server import (
    Call,
    RawServer,
    handshake_server,
    handshake_server_with_listening,
    raw_server,
    stateless_server,
)

Rest = Callable[[Call], Awaitable[None]]
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
SERVERS = {"handshake": handshake_server, "stateless": stateless_server}
QUICK = MCPClientConfig(timeout_seconds=0.7, max_retries=0, probe_timeout=5.0)


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


def said(text: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


def tool_of(call: Call) -> str:
    return str(call.message.get("params", {}).get("name", ""))


def first_bad(bad: Rest) -> Rest:
    """Handle the tool `bad` with `bad` and answer every other call correctly."""

    async def rest(call: Call) -> None:
        if tool_of(call) == "bad":
            await bad(call)
        else:
            await call.result(said("fine"))

    return rest


async def fails_alone(
    era: str, bad: Rest, error: type[Exception], match: str | None = None
) -> RawServer:
    """Check that a call fails in time and is sent once, and that the next call succeeds."""
    async with raw_server(SERVERS[era](first_bad(bad))) as server:
        async with MCPClient.connect_http(server.url, QUICK) as client:
            began = time.monotonic()
            with pytest.raises(error, match=match):
                await client.call("bad")
            assert time.monotonic() - began < 3
            assert (await client.call("good")).text == "fine"
        assert len([call for call in server.calls if tool_of(call) == "bad"]) == 1
    return server


# Streams


@ERAS
async def test_an_event_that_never_ends_times_out_and_the_connection_is_closed(era: str) -> None:
    hung_up = asyncio.Event()

    async def bad(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b'data: {"jsonrpc":"2.0",')
        await call.gone()
        hung_up.set()

    await fails_alone(era, bad, RequestTimeout)
    assert hung_up.is_set()


@ERAS
async def test_endless_comments_do_not_prevent_the_timeout(era: str) -> None:
    async def bad(call: Call) -> None:
        await call.begin_events()
        while True:
            await call.chunk(b": still here\n\n")
            await asyncio.sleep(0.01)

    await fails_alone(era, bad, RequestTimeout)


@ERAS
async def test_a_stream_that_ends_within_a_character_fails_the_call(era: str) -> None:
    async def bad(call: Call) -> None:
        await call.begin_events()
        await call.chunk('data: {"jsonrpc":"2.0","id":7,"result":{"x":"ü'.encode()[:-1])
        await call.end()

    await fails_alone(era, bad, TransportError)


@ERAS
async def test_a_multibyte_character_may_be_split_between_chunks(era: str) -> None:
    async def rest(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": said("grün €")}
        event = f"data: {json.dumps(answer, ensure_ascii=False)}\n\n".encode()
        await call.begin_events()
        for n in range(len(event)):
            await call.chunk(event[n : n + 1])
        await call.end()

    async with raw_server(SERVERS[era](rest)) as server:
        async with MCPClient.connect_http(server.url, QUICK) as client:
            assert (await client.call("t")).text == "grün €"


async def test_a_stream_cut_within_a_character_is_resumed() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        if call.rpc == "GET":
            answer = {"jsonrpc": "2.0", "id": asked[0], "result": said("ü")}
            await call.event(answer, id="p_2")
            await call.end()
        else:
            asked.append(call.message["id"])
            await call.chunk(b"id: p_1\nretry: 10\ndata:\n\n")
            await call.chunk('data: {"x":"ü'.encode()[:-1])
            call.cut()

    asked: list[Any] = []
    async with raw_server(handshake_server(rest)) as server:
        async with MCPClient.connect_http(server.url, QUICK) as client:
            assert (await client.call("t")).text == "ü"
        assert [
            c.headers["last-event-id"] for c in server.of("GET") if c.headers.get("last-event-id")
        ] == ["p_1"]


# Bodies


@ERAS
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", "<html><body>Sign in to the Wi-Fi</body></html>"),
        ("application/json", '{"jsonrpc":"2.0","id":'),
        ("application/json", "[]"),
        ("application/json", '"text"'),
        ("application/json", "\x00"),
        ("text/event-stream", '{"jsonrpc":"2.0"}'),
    ],
)
async def test_a_success_status_with_an_invalid_body_fails_the_call(
    era: str, kind: str, body: str
) -> None:
    async def bad(call: Call) -> None:
        await call.answer(200, body, Content_Type=kind)

    await fails_alone(era, bad, FairleadError)


@ERAS
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_to_another_request_is_ignored(era: str, streamed: bool) -> None:
    async def bad(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": "somebody else's", "result": said("wrong")}
        if streamed:
            await call.begin_events()
            await call.event(answer)
            await call.end()
        else:
            await call.json(answer)

    await fails_alone(era, bad, TransportError)


@ERAS
async def test_a_second_response_to_a_call_is_ignored(era: str) -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.result_event(said("first"))
        await call.result_event(said("second"))
        await call.end()

    async with raw_server(SERVERS[era](rest)) as server:
        async with MCPClient.connect_http(server.url, QUICK) as client:
            for _ in range(3):
                assert (await client.call("t")).text == "first"


async def test_responses_after_the_timeout_are_ignored() -> None:
    late = asyncio.Event()

    async def rest(call: Call) -> None:
        if call.rpc == "GET":
            await call.begin_events()
            await late.wait()
            for request in server.calls:
                if tool_of(request) == "bad":
                    answer = {"jsonrpc": "2.0", "id": request.message["id"], "result": said("late")}
                    await call.event(answer)
            await call.gone()
        elif tool_of(call) == "bad":
            await call.begin_events()
            await call.gone()
        else:
            await call.result(said("fine"))

    async with raw_server(handshake_server_with_listening(rest)) as server:
        async with MCPClient.connect_http(server.url, QUICK) as client:
            for _ in range(2):
                with pytest.raises(RequestTimeout):
                    await client.call("bad", timeout=0.2)
            await server.wait_for("notifications/cancelled", 2)
            late.set()
            assert (await client.call("good")).text == "fine"


@ERAS
async def test_a_trickling_body_is_limited_by_the_timeout_of_its_request(era: str) -> None:
    async def bad(call: Call) -> None:
        await call.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        await call.raw(b"Content-Length: 100000\r\n\r\n{")
        while True:
            await call.raw(b" ")
            await asyncio.sleep(0.02)

    await fails_alone(era, bad, RequestTimeout)


@ERAS
async def test_a_response_with_endless_headers_fails_the_call(era: str) -> None:
    async def bad(call: Call) -> None:
        await call.raw(b"HTTP/1.1 200 OK\r\n")
        while True:
            await call.raw(b"X-More: and more\r\n" * 100)
            await asyncio.sleep(0)

    await fails_alone(era, bad, TransportError)


@ERAS
async def test_endless_100_continue_responses_fail_the_call(era: str) -> None:
    async def bad(call: Call) -> None:
        while True:
            await call.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
            await asyncio.sleep(0.005)

    await fails_alone(era, bad, TransportError)


@ERAS
@pytest.mark.parametrize("how", ["reset", "too little", "too much", "no chunk", "bad chunk"])
async def test_a_body_with_a_wrong_length_fails_the_call(era: str, how: str) -> None:
    """The call is not repeated, because the server may have executed it."""

    async def bad(call: Call) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": call.message["id"], "result": said("?")})
        start = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        if how.endswith("chunk"):
            await call.raw(f"{start}Transfer-Encoding: chunked\r\n\r\n".encode())
            await call.raw(b"zz\r\n" if how == "bad chunk" else b"ff\r\n{")
        else:
            length = len(body) - 5 if how == "too much" else len(body) + 5
            await call.raw(f"{start}Content-Length: {length}\r\n\r\n{body}".encode())
        if how == "reset":
            call.cut()
        raise ConnectionError  # makes the scripted server close the connection

    await fails_alone(era, bad, FairleadError)


@ERAS
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_compression_bomb_in_an_error_response_is_not_expanded(
    era: str, status: int
) -> None:
    bomb = gzip.compress(b" " * 50_000_000)

    async def bad(call: Call) -> None:
        await call.answer(status, bomb, Content_Encoding="gzip", Content_Type="text/html")

    await fails_alone(era, bad, HttpError, str(status))


@ERAS
async def test_a_body_with_a_wrong_content_encoding_fails_the_call(era: str) -> None:
    async def bad(call: Call) -> None:
        await call.answer(200, "{}", Content_Encoding="gzip", Content_Type="application/json")

    await fails_alone(era, bad, TransportError)


# Redirects


@ERAS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_secrets_are_not_sent_to_the_target_of_a_redirect(era: str, status: int) -> None:
    async def listening(call: Call) -> None:
        await call.result(said("stolen"))

    async with raw_server(listening) as thief:

        async def bad(call: Call) -> None:
            places = [thief.url, f"//127.0.0.1:{thief.port}/", f"http://localhost:{server.port}/"]
            await call.answer(status, Location=places[len(server.calls) % 3])

        async with raw_server(SERVERS[era](first_bad(bad))) as server:
            secret = {"Authorization": "Bearer secret"}
            async with MCPClient.connect_http(server.url, QUICK, headers=secret) as client:
                for _ in range(3):
                    with pytest.raises(HttpError, match="another origin"):
                        await client.call("bad")
                assert (await client.call("good")).text == "fine"
            assert server.calls[-1].headers["authorization"] == "Bearer secret"
        assert thief.calls == []


# Sessions and listening


@pytest.mark.parametrize(
    "session", ["\xe9t\xe9", "with blank", "tab\there", "\x7f", "", "x" * 20_000, "a, b", '"q"']
)
async def test_invalid_session_ids_are_ignored_and_valid_ones_are_sent_back_unchanged(
    session: str,
) -> None:
    """The HTTP library may reject a header with a control character before the id is read."""

    async def rest(call: Call) -> None:
        await call.result(said("fine"))

    async def handle(call: Call) -> None:
        if call.rpc != "initialize":
            await inner(call)
            return
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": call.message["id"], "result": result}).encode()
        start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: "
        length = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        await call.raw(start + session.encode("latin-1") + length + body)

    inner = handshake_server(rest)
    proper = bool(session) and all("!" <= character <= "~" for character in session)
    async with raw_server(handle) as server:
        try:
            async with MCPClient.connect_http(server.url, QUICK) as client:
                assert (await client.call("t")).text == "fine"
        except TransportError:
            assert session == "\x7f"  # a character that is not allowed in headers
            return
        sent = {c.headers.get("mcp-session-id") for c in server.of("tools/call")}
        assert sent == ({session} if proper else {None})


async def test_a_get_stream_that_ends_repeatedly_is_reopened_with_a_delay() -> None:
    async def scene(how: str) -> None:
        async def rest(call: Call) -> None:
            if call.rpc != "GET":
                await call.result(said("fine"))
                return
            await call.begin_events()
            if how == "event":
                await call.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            if how == "retry":
                await call.chunk(b"retry: 0\n\n")
            await asyncio.sleep(0.05)
            if how == "cut":
                call.cut()
            await call.end()

        async with raw_server(handshake_server_with_listening(rest)) as server:
            async with MCPClient.connect_http(server.url, QUICK) as client:
                await asyncio.sleep(2)
                assert 2 <= len(server.of("GET")) <= 5
                assert (await client.call("t")).text == "fine"

    await asyncio.gather(*[scene(how) for how in ("end", "cut", "event", "retry")])


@ERAS
async def test_a_client_can_call_tools_after_a_server_restart(era: str) -> None:
    async def rest(call: Call) -> None:
        if era == "handshake" and call.headers.get("mcp-session-id") != sessions[-1]:
            await call.answer(404)
        else:
            await call.result(said("fine"))

    def handler() -> Rest:
        if era == "stateless":
            return stateless_server(rest)
        return handshake_server(rest, session=sessions[-1])

    sessions = ["one"]
    served = RawServer(handler())
    listening = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = listening.sockets[0].getsockname()[1]
    async with MCPClient.connect_http(served.url, QUICK) as client:
        assert (await client.call("t")).text == "fine"
        listening.close()
        await served.stop()
        for _ in range(3):
            with pytest.raises(TransportError) as caught:
                await client.call("t")
            assert not caught.value.delivered
        sessions.append("two")
        back = RawServer(handler())
        again = await asyncio.start_server(back.serve, "127.0.0.1", served.port)
        assert (await client.call("t")).text == "fine"
        await asyncio.gather(*[client.call("t") for _ in range(20)])
        expected = 1 if era == "handshake" else 0
        assert len(back.of("initialize")) == expected
    again.close()
    await back.stop()


# Random changes


@ERAS
async def test_a_call_ends_for_any_bytes_that_the_server_sends(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Send valid responses with random changes."""

    rng = random.Random(5)

    async def bad(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": said("grün")}
        text = json.dumps(answer, ensure_ascii=False).encode()
        event = b"id: p_1\nretry: 5\ndata: %b\n\n" % text
        whole = rng.choice(
            [
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(text), text),
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(event), event),
            ]
        )
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(whole))
            piece = rng.choice([b"\r\n", b"\n", b"\0", b"\xff", b":", b"{", b"", b"1", b"gzip"])
            whole = whole[:at] + piece + whole[at + rng.randrange(4) :]
        await call.raw(whole)
        if rng.random() < 0.5:
            raise ConnectionError  # makes the scripted server close the connection

    config = MCPClientConfig(timeout_seconds=0.3, max_retries=0, probe_timeout=5.0)
    async with raw_server(SERVERS[era](first_bad(bad))) as server:
        async with MCPClient.connect_http(server.url, config) as client:
            for _ in range(15):
                calls = [client.call("bad") for _ in range(10)]
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
                strange = [
                    outcome
                    for outcome in outcomes
                    if isinstance(outcome, BaseException) and not isinstance(outcome, FairleadError)
                ]
                assert strange == []
                assert (await client.call("good", timeout=5)).text == "fine"
    assert [r.getMessage() for r in caplog.records if r.exc_info] == []
