import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RemoteProtocolError
from fairlead.transport.http.client.fragments import FragmentAssembler
from fairlead.wire import Failure, Success
from fairlead.wire.sse import Event

A, B = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}


def event(name: str, payload: Any) -> Event:
    return Event(json.dumps(payload).encode(), name)


def answer(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 9, "result": result}


def assembled(*events: Event) -> Any:
    fragments = FragmentAssembler(1)
    *parts, last = events
    for part in parts:
        assert fragments.take(part) is None
    done = fragments.take(last)
    assert isinstance(done, Success)
    assert done.id == 1
    return json.loads(bytes(done.result))


@pytest.mark.covers("SSE-04", "DEC-24")
@pytest.mark.parametrize(
    ("events", "content"),
    [
        ([event("complete", answer({"content": [A]}))], [A]),
        ([event("complete", {"content": [A]})], [A]),
        ([event("result", {"content": [A]}), event("complete", answer({"content": [B]}))], [A, B]),
        # Each fragment occurs once in the result, even if the final event repeats it.
        (
            [event("result", {"content": [A]}), event("complete", answer({"content": [A, B]}))],
            [A, B],
        ),
        ([event("result", {"content": [A]}), event("complete", answer({"content": []}))], [A]),
        ([event("result", {"content": [A]}), event("complete", answer({}))], [A]),
        ([event("result", answer({"content": [A]}))], [A]),
        ([event("result", {"content": [A]}), event("result", answer({"content": [B]}))], [A, B]),
        ([event("result", {}), event("complete", {"content": [B]})], [B]),
        (
            [event("result", {"result": {"content": [A]}}), event("complete", {"content": [B]})],
            [A, B],
        ),
    ],
)
def test_result_fragments_are_joined_into_one_result(
    events: list[Event], content: list[Any]
) -> None:
    assert assembled(*events)["content"] == content


def test_members_of_the_final_event_other_than_content_are_kept() -> None:
    end = Event(b'{"content":[{"type":"text","text":"b"}],"structuredContent":{"n":1.00},"x":1}')
    fragments = FragmentAssembler("s")
    fragments.take(event("result", {"content": [A]}))
    done = fragments.take(Event(end.data, "complete"))
    assert isinstance(done, Success)
    assert b'{"n":1.00}' in bytes(done.result)
    assert json.loads(bytes(done.result))["x"] == 1


def test_an_error_event_is_the_error_response() -> None:
    error = {"code": 7, "message": "no", "data": {"x": 1}}
    for payload in (error, {"error": error}, {"jsonrpc": "2.0", "id": 3, "error": error}):
        refused = FragmentAssembler(1).take(event("error", payload))
        assert isinstance(refused, Failure)
        assert (refused.id, refused.code, refused.message) == (1, 7, "no")
        assert json.loads(bytes(refused.error)) == error
        assert isinstance(refused.error, Raw)


@pytest.mark.parametrize(
    "broken",
    [
        Event(b"{no json", "result"),
        Event(b"[1]", "result"),
        Event(b"\xff", "complete"),
        event("result", {"content": 7}),
        event("result", {"result": 7}),
        event("complete", {"content": []}),
        event("complete", {"content": [{"no": "type"}]}),
        event("complete", answer([1])),
        event("error", {"code": "x", "message": "y"}),
        event("error", {}),
    ],
)
def test_invalid_result_fragments_are_rejected(broken: Event) -> None:
    with pytest.raises(RemoteProtocolError):
        FragmentAssembler(1).take(broken)


def test_result_fragments_are_reported_as_they_arrive() -> None:
    told: list[Any] = []
    fragments = FragmentAssembler(1)
    for part in ([A], [B, A]):
        fragments.take(event("result", {"content": part}), lambda *heard: told.append(heard))
    assert told == [(1, [A]), (1, [B, A])]
    assert fragments.parts == [A, B, A]


def test_the_size_limit_applies_to_all_fragments_together() -> None:
    fragments = FragmentAssembler(1, 100)
    fragments.take(event("result", {"content": [A, A]}))
    with pytest.raises(RemoteProtocolError, match="over the limit of 100 bytes"):
        fragments.take(event("result", {"content": [A, A]}))


@pytest.mark.parametrize(("less", "fits"), [(0, True), (1, False)])
def test_result_fragments_may_be_exactly_as_long_as_the_limit(less: int, fits: bool) -> None:
    assembler = FragmentAssembler(1, limit=2 * len(json.dumps(A)) - less)
    part = event("result", {"content": [A]})
    assembler.take(part)
    if fits:
        assembler.take(part)
        assert assembler.parts == [A, A]
    else:
        with pytest.raises(RemoteProtocolError, match="over the limit of"):
            assembler.take(part)
