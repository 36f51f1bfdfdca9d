"""Responses to POSTs: bodies, and streams that break."""

import asyncio
import gzip
import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import (
    ConnectFailed,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RpcError,
    TransportError,
)
from fairlead.protocol.caller import read_params_head
from fairlead.transport.http.client.post_response_stream import PendingPost, ResponseReader
from fairlead.wire import Failure, Request, Success
from fairlead.wire.sse import Event
from tests.support.scripted_door import Asked, ScriptedDoor, reply, stream
from tests.support.scripted_http_server import (
    SESSION,
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
    stateless_server,
)
from tests.support.virtual_time import VirtualTime


@pytest.mark.covers("HTT-04")
async def test_a_stream_that_stays_open_after_its_response_is_closed_by_the_client() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.result_event({})
        try:
            await call.gone()
        finally:
            hung_up.set()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(3)))
        async with asyncio.timeout(5):
            await hung_up.wait()


@pytest.mark.covers("HTT-12")
@pytest.mark.parametrize(
    ("body", "kind"), [(b"<html>hello", "text/html"), (b'{"jsonrpc":', "application/json")]
)
async def test_an_invalid_json_body_fails_the_request_with_a_parse_error(
    body: bytes, kind: str
) -> None:
    async def rest(call: Call) -> None:
        await call.answer(200, body, Content_Type=kind)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="not valid JSON") as failed:
            await peer.request("tools/list")
        assert failed.value.code == -32700
        assert ("text/html" in str(failed.value)) == (kind == "text/html")


async def test_a_json_response_with_the_content_type_text_plain_is_read() -> None:
    async def rest(call: Call) -> None:
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": {}}
        await call.answer(200, json.dumps(answer), Content_Type="text/plain; charset=utf-8")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        assert bytes(await peer.request("tools/list")) == b"{}"


@pytest.mark.covers("HTT-05")
@pytest.mark.parametrize("how", ["end", "cut", "character"])
async def test_a_request_fails_if_its_stateless_stream_ends_without_a_response(how: str) -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b"id: 1\nretry: 1\ndata: \n\n")
        if how == "character":
            whole = json.dumps(
                {"jsonrpc": "2.0", "id": 2, "result": {"x": "ü"}}, ensure_ascii=False
            )
            data = f"data: {whole}\n\n".encode()
            await call.chunk(data[: data.index("ü".encode()) + 1])
        if how == "end":
            await call.end()
        else:
            call.cut()

    async with (
        raw_server(stateless_server(rest)) as server,
        connected(server.url, "stateless") as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2") as lost:
            await peer.request("tools/call", {"name": "x"})
        assert lost.value.delivered
        assert len(server.of("tools/call")) == 1
        assert server.of("GET") == []
        assert peer.connected


@pytest.mark.covers("HTT-05", "TRN-12")
async def test_a_broken_handshake_stream_is_resumed() -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            await call.chunk(b"id: s_0\nretry: 60\ndata: \n\n")
            await call.event(progress(1), id="s_1")
            data = 'data: {"grü'.encode()
            await call.chunk(data[:-1])  # cut in the middle of a UTF-8 character
            call.cut()
        elif len(server.of("GET")) <= 2:
            cuts.append(asyncio.get_running_loop().time())
            await call.answer(503)
        elif len(server.of("GET")) == 3:
            await call.begin_events()
            await call.event(progress(2), id="s_2")
            await call.end()
        else:
            await call.begin_events()
            request = server.of("tools/call")[0].message
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"late": True}}
            await call.event(answer, id="s_3")
            await call.end()

    cuts: list[float] = []
    host = Host()
    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, host=host, listen=False) as (peer, _),
    ):
        began = asyncio.get_running_loop().time()
        assert bytes(await peer.request("tools/call", {"name": "x"})) == b'{"late": true}'
        assert cuts[0] - began >= 0.06  # the delay that the server requested with `retry`
        seen = [call.headers["last-event-id"] for call in server.of("GET")]
        assert seen == ["s_1", "s_1", "s_1", "s_2"]
        assert server.of("GET")[0].headers["mcp-session-id"] == SESSION
        assert len(server.of("tools/call")) == 1
        assert host.told.qsize() == 2


@pytest.mark.covers("HTT-05")
@pytest.mark.parametrize("ids", [True, False])
async def test_a_request_fails_if_its_stream_cannot_be_resumed(ids: bool) -> None:
    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            await call.chunk(b"id: 7\nretry: 1\ndata: \n\n" if ids else b": nothing\n\n")
            await call.end()
        else:
            await call.answer(404, "gone")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, listen=False) as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2"):
            await peer.request("tools/call", {"name": "x"})
        assert len(server.of("GET")) == (1 if ids else 0)
        assert len(server.of("tools/call")) == 1


async def test_a_request_fails_if_the_response_body_is_empty_and_no_stream_is_open() -> None:
    async def rest(call: Call) -> None:
        await call.accept()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, listen=False) as (peer, _),
    ):
        with pytest.raises(NoAnswer):
            await peer.request("tools/list")


@pytest.mark.parametrize("packed", [True, False])
async def test_a_body_that_decompresses_above_the_limit_is_refused(packed: bool) -> None:
    async def rest(call: Call) -> None:
        body = b'{"jsonrpc":"2.0","id":2,"result":{"x":"' + b" " * 5_000_000 + b'"}}'
        if packed:
            await call.answer(200, gzip.compress(body), Content_Encoding="gzip")
        else:
            await call.answer(200, body)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, limit=1_000_000) as (peer, _),
    ):
        with pytest.raises(TransportError, match="over the limit of 1000000 bytes"):
            await peer.request("tools/list")
        assert peer.connected


async def test_a_stream_that_decompresses_above_the_limit_is_refused() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events(Content_Encoding="gzip")
        await call.chunk(gzip.compress(b"data: " + b"x" * 5_000_000 + b"\n\n"))
        await call.end()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, limit=1_000_000) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError, match="over the limit of 1000000"):
            await peer.request("tools/list")


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": 99, "result": {}},
    ],
    ids=["notification", "another response"],
)
async def test_a_request_fails_if_the_response_body_contains_no_response_to_it(
    message: dict[str, object],
) -> None:
    async def rest(call: Call) -> None:
        await call.answer(200, json.dumps(message), Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(NoAnswer, match="No response received for request ID 2"):
            await peer.request("tools/list")
        assert peer.connected


async def test_an_error_without_an_id_is_treated_as_the_response() -> None:
    async def rest(call: Call) -> None:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -5, "message": "no"}}
        await call.answer(200, json.dumps(error), Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError) as refused:
            await peer.request("tools/list")
        assert (refused.value.code, refused.value.message) == (-5, "no")


async def test_an_unreadable_body_is_attached_to_the_error() -> None:
    body = b"x" * 300

    async def rest(call: Call) -> None:
        await call.answer(200, body, Content_Type="application/json")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RemoteProtocolError) as failed:
            await peer.request("tools/list")
    error = failed.value
    assert (error.excerpt, error.size, error.frame) == (repr(body[:200]), 300, body)


# Without a network


class Reader:
    """A `ResponseReader` whose further requests get the given responses."""

    def __init__(self, *replies: Any, listens: bool = False, stateless: bool = False) -> None:
        self.replies = list(replies)
        self.door = ScriptedDoor(self._next)
        self.heard: list[Any] = []
        self.events: list[Any] = []
        self.released: list[bool] = []
        params = b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}'
        request = Request(5, "tools/list", Raw(params) if stateless else UNSET)
        self.posted = PendingPost(request, read_params_head(request.params))
        self.reader = ResponseReader(
            self.door,  # type: ignore[arg-type]
            lambda last: {"Last": str(last)},
            hear=self._hear,
            hear_event=self._hear_event,
            release=lambda posted: self.released.append(posted.answered),
            listening=lambda: listens,
            limit=10_000,
        )

    async def _next(self, asked: Asked) -> Any:
        found = self.replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def _hear(self, message: Any) -> None:
        self.heard.append(message)
        if isinstance(message, Success | Failure) and message.id == 5:
            self.posted.answered = True

    def _hear_event(self, event: Any, posted: Any) -> None:
        assert posted is self.posted
        self.events.append(event)
        if isinstance(event, Event) and event.data == b'"answer"':
            self.posted.answered = True

    async def take(self, made: Any) -> None:
        await self.reader.take(self.posted, made)


def streamed(*events: tuple[Any, dict[str, str]], cut: bool = False) -> Any:
    made = stream()
    for message, fields in events:
        made.event(message, **fields)
    if cut:
        made.cut()
    else:
        made.end()
    return made


A, B = ({"n": 1}, {"id": "a"}), ({"n": 2}, {"id": "b"})
ANSWER = ('"answer"', {"id": "z"})


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: low)


@pytest.mark.parametrize(
    ("version", "stateless"), [(None, False), ("2026-07-28", True)], ids=["handshake", "stateless"]
)
def test_a_request_with_a_protocol_version_is_stateless(
    version: str | None, stateless: bool
) -> None:
    posted = Reader(stateless=stateless).posted
    assert (posted.version, posted.stateless) == (version, stateless)
    assert (posted.answered, posted.sent, posted.streaming, posted.counted) == (False,) * 4
    other = Request(5, "x", Raw(b'{"_meta":{"progressToken":1}}'))
    assert not PendingPost(other, read_params_head(other.params)).stateless


async def test_a_body_with_the_response_is_delivered() -> None:
    one = Reader()
    await one.take(reply(200, {"jsonrpc": "2.0", "id": 5, "result": {}}))
    assert one.heard == [Success(5, Raw(b"{}"))]
    assert not one.posted.streaming


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_after_an_empty_body_the_response_may_arrive_on_the_listening_stream(
    body: bytes,
) -> None:
    await Reader(listens=True).take(reply(202, body))
    with pytest.raises(NoAnswer):
        await Reader().take(reply(202, body))


@pytest.mark.parametrize("kind", ["text/html", "application/json", ""])
async def test_the_error_of_an_unreadable_body_names_an_unexpected_content_type(kind: str) -> None:
    with pytest.raises(RemoteProtocolError) as failed:
        await Reader().take(reply(200, b"<html>", content_type=kind))
    assert ("(content type text/html)" in str(failed.value)) == (kind == "text/html")
    assert "content type" not in str(failed.value) or kind == "text/html"
    assert failed.value.frame == b"<html>"


async def test_events_are_received_until_half_a_second_after_the_response(
    virtual_time: VirtualTime,
) -> None:
    one, made = Reader(), stream()
    taking = asyncio.create_task(one.take(made))
    made.event({"n": 1}, id="a")
    await asyncio.sleep(1)
    assert (one.posted.streaming, one.released, taking.done()) == (True, [], False)
    made.event('"answer"')
    await asyncio.sleep(0.4)
    assert (one.released, taking.done()) == ([True], False)
    made.event({"n": 2})
    await asyncio.sleep(0.05)
    assert (one.released, taking.done(), len(one.events)) == ([True], False, 3)
    await asyncio.sleep(0.1)
    assert made.dropped
    await taking
    assert one.released == [True]


@pytest.mark.parametrize("stateless", [True, False])
@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_without_event_ids_cannot_be_resumed(stateless: bool, cut: bool) -> None:
    one = Reader(stateless=stateless)
    with pytest.raises(NoAnswer) as lost:
        await one.take(streamed(A if stateless else ({"n": 1}, {}), cut=cut))
    assert (lost.value.__cause__ is not None) == cut
    assert (one.released, one.door.asked) == ([False], [])


@pytest.mark.usefixtures("no_jitter")
async def test_a_stream_is_resumed_after_its_last_event(virtual_time: VirtualTime) -> None:
    one = Reader(streamed(B), streamed(), streamed(ANSWER))
    await one.take(streamed(A, cut=True))
    assert [asked.headers["last"] for asked in one.door.asked] == ["a", "b", "b"]
    assert {asked.method for asked in one.door.asked} == {"GET"}
    assert [event.data for event in one.events] == [b'{"n": 1}', b'{"n": 2}', b'"answer"']
    assert one.released == [False, True]


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize(
    "problem",
    [lambda: reply(503), lambda: ConnectFailed("no"), streamed, lambda: streamed(cut=True)],
    ids=["503", "unreachable", "empty", "cut"],
)
async def test_a_stream_is_resumed_a_limited_number_of_times(
    virtual_time: VirtualTime, problem: Any
) -> None:
    one = Reader(*(problem() for _ in range(6)))
    begun = virtual_time.now
    with pytest.raises(NoAnswer):
        await one.take(streamed(A))
    gaps = [asked.at - begun for asked in one.door.asked]
    assert gaps == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("cut", [True, False])
async def test_events_reset_the_failure_count_of_a_resumed_stream(
    virtual_time: VirtualTime, cut: bool
) -> None:
    problems = [reply(503) for _ in range(5)]
    more = [reply(503) for _ in range(4)]
    one = Reader(*problems, streamed(B, cut=cut), *more, streamed(ANSWER))
    await one.take(streamed(A))
    gaps = [b.at - a.at for a, b in pairwise(one.door.asked)]
    assert gaps[5:] == pytest.approx(
        [0.5, 1.0, 2.0, 4.0, 8.0] if cut else [0.5, 0.5, 1.0, 2.0, 4.0]
    )


@pytest.mark.usefixtures("no_jitter")
async def test_a_stream_with_a_retry_field_may_be_resumed_without_limit(
    virtual_time: VirtualTime,
) -> None:
    named = ({"n": 1}, {"id": "a", "retry": "2000"})
    one = Reader(*(streamed() for _ in range(20)), streamed(ANSWER))
    begun = virtual_time.now
    await one.take(streamed(named))
    assert virtual_time.now - begun == pytest.approx(42.0)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("status", [500, 503, 599])
async def test_the_number_of_retries_at_a_failing_server_is_limited(
    virtual_time: VirtualTime, status: int
) -> None:
    named = ({"n": 1}, {"id": "a", "retry": "100"})
    one = Reader(*(reply(status) for _ in range(6)))
    with pytest.raises(NoAnswer) as lost:
        await one.take(streamed(named))
    assert isinstance(lost.value.__cause__, HttpError)
    assert one.replies == []


@pytest.mark.parametrize("status", [400, 404, 405, 200, 499])
async def test_a_refused_resumption_is_not_repeated(virtual_time: VirtualTime, status: int) -> None:
    one = Reader(reply(status, {"no": 1}))
    with pytest.raises(NoAnswer) as lost:
        await one.take(streamed(A))
    assert len(one.door.asked) == 1
    assert isinstance(lost.value.__cause__, HttpError)


async def test_a_stream_is_not_resumed_if_its_response_arrives_on_another_stream(
    virtual_time: VirtualTime,
) -> None:
    one = Reader()
    taking = asyncio.create_task(one.take(streamed(A)))
    await asyncio.sleep(0.1)
    one.posted.answered = True
    await taking
    assert one.door.asked == []
