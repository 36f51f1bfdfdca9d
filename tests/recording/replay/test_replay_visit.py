"""Tests of replaying a session to a server, message by message."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.errors import ChannelClosed, ConnectFailed, HttpError, RequestTimeout
from fairlead.recording.compare.json_diff import aligned, same_ends
from fairlead.recording.replay import ComparedCall, ReplayReport, replay_tape
from fairlead.recording.replay import replay_against as replaying
from fairlead.transport.channel import SharedStream
from fairlead.upstream.server_target import ServerTarget
from fairlead.wire import Failure, Notification, Request, Success, encode
from tests.support.virtual_time import VirtualTime

UP, DOWN = "client_to_server", "server_to_client"


class FakeServer(SharedStream):
    """Fake server with given or default responses."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.got: list[Any] = []
        self.closed = 0
        self.deliver: Any = None
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    async def run(self, deliver: Any) -> None:
        self.deliver = deliver
        while (message := await self._queue.get()) is not None:
            if not isinstance(message, Request):
                continue
            answer = self.answers.get(message.method.replace("/", "_"), {})
            if callable(answer):
                answer = answer(self, message)
            if answer is not None:
                deliver(Success(message.id, msgspec.Raw(json.dumps(answer).encode())))

    def send(self, message: Any, **_: Any) -> None:
        self.got.append(json.loads(encode(message)))
        self._queue.put_nowait(message)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def close(self) -> None:
        self.closed += 1
        self.end()


def tape(path: Path, *lines: tuple[str, dict[str, Any]]) -> Path:
    place = path / "one.tape.jsonl"
    each = [
        {
            "seq": n,
            "at": 0.0,
            "dir": way,
            "session": "s",
            "message": {"jsonrpc": "2.0", **message},
        }
        for n, (way, message) in enumerate(lines, 1)
    ]
    place.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in each))
    return place


async def replay(path: Path, server: FakeServer, **options: Any) -> ReplayReport:
    async def opened() -> Any:
        return server

    return await replay_tape(path, ServerTarget(name="x", open=opened, is_process=True), **options)


def ask(number: int, method: str, **params: Any) -> tuple[str, dict[str, Any]]:
    return UP, {"id": number, "method": method} | ({"params": params} if params else {})


def answer(number: int, **result: Any) -> tuple[str, dict[str, Any]]:
    return DOWN, {"id": number, "result": result}


async def test_recorded_requests_are_sent_with_new_ids_and_tokens(tmp_path: Path) -> None:
    server, heard = FakeServer(a={"n": 1}), []
    place = tape(
        tmp_path,
        ask(70, "a", x=1, _meta={"progressToken": "old", "y": 2}),
        answer(70, n=1),
        (UP, {"method": "notifications/x", "params": {"_meta": {"progressToken": "old"}}}),
        (UP, {"id": 71, "method": "b", "params": [1]}),
        answer(71),
    )
    report = await replay(place, server, on_compared=heard.append)
    assert report.same
    assert [one.seq for one in report.compared] == [1, 4]
    assert heard == report.compared
    first, note, second = server.got
    assert (first["id"], first["params"]) == (1, {"x": 1, "_meta": {"progressToken": 1, "y": 2}})
    assert note["params"] == {"_meta": {"progressToken": "old"}}
    assert (second["id"], second["params"]) == (3, [1])
    assert server.closed == 1


async def test_recorded_opaque_values_are_replaced_by_those_of_the_live_server(
    tmp_path: Path,
) -> None:
    place = tape(
        tmp_path,
        ask(1, "tools/list"),
        answer(1, nextCursor="old", requestState="state"),
        ask(2, "tools/list", cursor="old", requestState="state", other="old"),
        answer(2),
    )
    pages = iter([{"nextCursor": "new", "requestState": "now"}, {}])
    server = FakeServer(tools_list=lambda *_: next(pages))
    report = await replay(place, server)
    assert report.same
    assert server.got[1]["params"] == {"cursor": "new", "requestState": "now", "other": "old"}


async def test_differences_in_a_response_are_reported_with_their_paths(tmp_path: Path) -> None:
    place = tape(tmp_path, ask(1, "a"), answer(1, n=1, m=2))
    report = await replay(place, FakeServer(a={"n": 5, "m": 2}))
    ((one,), (found,)) = report.compared, report.compared[0].differences
    assert (one.seq, one.what, one.error, one.same) == (1, "a", None, False)
    assert (found.path, found.recorded, found.given) == ("result.n", 1, 5)
    assert str(report).splitlines() == [
        "1 compared, 1 differ",
        "1 a: different response",
        "    result.n: 1 -> 5",
    ]
    assert (await replay(place, FakeServer(a={"n": 5, "m": 2}), ignore=["result.n"])).same


async def test_a_missing_response_is_reported_after_the_timeout(
    tmp_path: Path, virtual_time: VirtualTime
) -> None:
    place = tape(tmp_path, ask(1, "a"), answer(1), ask(2, "b"), answer(2))
    server = FakeServer(a=lambda *_: None)
    began = virtual_time.now
    report = await replay(place, server, timeout=7.0)
    assert virtual_time.now == began + 7.0
    assert [one.error for one in report.compared] == ["no response within 7 s", None]


async def test_a_response_is_awaited_before_later_messages_are_sent(tmp_path: Path) -> None:
    order: list[str] = []

    def said(server: FakeServer, request: Request) -> dict[str, Any]:
        order.append(request.method)
        return {}

    place = tape(tmp_path, ask(1, "a"), ask(2, "b"), answer(2), answer(1), ask(3, "c"), answer(3))
    await replay(place, FakeServer(a=said, b=said, c=said))
    assert order == ["a", "b", "c"]


@pytest.mark.parametrize(("notifications", "place_of_it"), [(False, 1), (True, 3)])
async def test_a_recorded_cancellation_is_sent_to_the_server(
    tmp_path: Path, notifications: bool, place_of_it: int
) -> None:
    place = tape(
        tmp_path,
        ask(1, "slow"),
        (UP, {"method": "notifications/cancelled", "params": {"requestId": 1}}),
        ask(2, "a"),
        answer(2),
        ask(3, "b"),
        answer(3),
    )
    server = FakeServer(slow=lambda *_: None)
    report = await replay(place, server, notifications=notifications)
    assert [one.seq for one in report.compared] == [3, 5]
    methods = [one["method"] for one in server.got]
    assert methods.index("notifications/cancelled") == place_of_it
    (gone,) = [one for one in server.got if one["method"] == "notifications/cancelled"]
    assert gone["params"] == {"requestId": 1, "reason": "cancelled on the tape"}


async def test_notifications_are_compared_in_any_order(
    tmp_path: Path, virtual_time: VirtualTime
) -> None:
    place = tape(
        tmp_path,
        ask(1, "a"),
        (DOWN, {"method": "notifications/x", "params": {"n": 1, "progressToken": 5}}),
        (DOWN, {"method": "notifications/x", "params": {"n": 2}}),
        (DOWN, {"method": "notifications/y"}),
        answer(1),
    )

    def said(server: FakeServer, request: Request) -> dict[str, Any]:
        for params in (b'{"n":2}', b'{"n":1,"progressToken":9}'):
            server.deliver(Notification("notifications/x", msgspec.Raw(params)))
        return {}

    began = virtual_time.now
    report = await replay(place, FakeServer(a=said), notifications=True, timeout=4.0)
    assert virtual_time.now == began + 4.0  # waits for the notification that is not received
    assert [(one.seq, one.error) for one in report.compared] == [
        *((1, None), (2, None), (3, None), (4, "the notification was not received")),
    ]
    assert (await replay(place, FakeServer(a=said), timeout=4.0)).same


async def test_requests_of_the_server_are_answered_with_the_recorded_responses(
    tmp_path: Path,
) -> None:
    place = tape(
        tmp_path,
        ask(1, "a"),
        (DOWN, {"id": 8, "method": "ask", "params": {"n": 1}}),
        (DOWN, {"id": 9, "method": "ask", "params": {"n": 2}}),
        (UP, {"id": 8, "result": {"of": 1}}),
        (UP, {"id": 9, "error": {"code": 7, "message": "no"}}),
        answer(1),
    )

    def asks(server: FakeServer, request: Request) -> dict[str, Any]:
        for number, method, params in (
            (20, "ask", b'{"n":2}'),
            (21, "ask", b'{"n":1}'),
            (22, "ask", b'{"n":3}'),
            (23, "ping", b"{}"),
            (24, "other", b"{}"),
        ):
            server.deliver(Request(number, method, msgspec.Raw(params)))
        return {}

    server = FakeServer(a=asks)
    assert (await replay(place, server)).same
    answers = {one["id"]: one.get("result", one.get("error")) for one in server.got[1:]}
    assert answers == {
        20: {"code": 7, "message": "no"},  # an equal request
        21: {"of": 1},
        22: {"of": 1},  # reuses the last recorded response to this method
        23: {},
        24: {"code": -32601, "message": "Method not found: other"},
    }


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (HttpError(401), True),
        (HttpError(404), True),
        (HttpError(500), False),
        (ConnectFailed("x"), True),
        (ChannelClosed("x"), True),
        (RequestTimeout(1.0, "x"), False),
    ],
    ids=["401", "404", "500", "connect", "closed", "timeout"],
)
def test_connection_and_access_errors_are_reported_as_an_unavailable_server(
    error: Any, away: bool
) -> None:
    assert replaying._is_away(error) is away


async def test_the_reason_of_a_disconnection_is_reported_for_the_first_missing_response(
    tmp_path: Path,
) -> None:
    place = tape(tmp_path, ask(1, "a"), ask(2, "b"), ask(3, "c"), answer(1), answer(2), answer(3))

    def ends(server: FakeServer, request: Request) -> None:
        server.end()

    report = await replay(place, FakeServer(b=lambda *_: None, c=ends))
    errors = [one.error for one in report.compared]
    assert errors[0] is None
    assert errors[1] is not None
    assert errors[1] != "the server had disconnected"
    assert errors[2] == "the server had disconnected"
    assert not report.same


def test_a_report_is_the_same_only_if_no_call_differs_or_fails() -> None:
    assert ReplayReport().same
    good, bad = ComparedCall(1, "a"), ComparedCall(2, "b", error="no")
    assert (good.same, bad.same) == (True, False)
    assert ReplayReport([good]).same
    assert not ReplayReport([good, bad]).same
    assert str(ReplayReport([good, bad])) == "2 compared, 1 differ\n2 b: no"


def test_the_recorded_result_or_error_of_the_client_is_sent_again() -> None:
    class Step:
        def __init__(self, **members: Any) -> None:
            self._members = {
                name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()
            }

        def members(self) -> Any:
            return self._members

    def again(**members: Any) -> Any:
        step: Any = Step(**members)
        return replaying._again(Request(5, "x"), step)

    assert isinstance(again(result={}), Success)
    kept = again(error={"code": 7, "message": "no", "data": 1})
    assert isinstance(kept, Failure)
    assert json.loads(encode(kept))["error"] == {"code": 7, "message": "no", "data": 1}
    odd = json.loads(encode(again(error=5)))["error"]
    assert odd["code"] == -32603


# Alignment


@pytest.mark.parametrize(("effort", "found"), [(12, True), (11, False)])
def test_alignments_over_the_effort_limit_are_skipped(effort: int, found: bool) -> None:
    # Two items, one of which occurs four times, take 2 * (2 + 4) steps.
    assert (aligned("ab", "aaaa", effort) is not None) is found


def test_many_equal_items_are_aligned_within_the_limit() -> None:
    first, second = "x" * 300 + "a", "x" * 300 + "b"
    opcodes = aligned(first, second, 10**9)
    assert opcodes is not None
    assert opcodes[0] == ("equal", 0, 300, 0, 300)


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ("abc", "abc", (3, 0)),
        ("abxc", "abyc", (2, 1)),
        ("aa", "aaa", (2, 0)),
        ("xaa", "aa", (0, 2)),
        ("", "a", (0, 0)),
        ("ab", "cd", (0, 0)),
    ],
)
def test_same_ends_counts_equal_items_at_the_start_and_end_of_two_lists(
    first: str, second: str, ends: tuple[int, int]
) -> None:
    assert same_ends(first, second) == ends
