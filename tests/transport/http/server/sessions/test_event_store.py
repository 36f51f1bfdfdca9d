"""Events kept for clients that resume a stream."""

import pytest

from fairlead.transport.http.server.sessions import event_store as resume
from fairlead.transport.http.server.sessions.event_store import (
    MemoryEventStore,
    event_id,
    read_event_id,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p3_7", ("p3", 7)),
        ("a_b_0", ("a_b", 0)),
        ("g_" + "9" * 18, ("g", int("9" * 18))),
        ("g_" + "9" * 19, None),
        ("_7", None),
        ("7", None),
        ("", None),
        ("g_", None),
        ("g_x", None),
        ("g_-1", None),
        ("g_٣", None),
    ],
)
def test_an_event_id_names_its_stream_and_number(
    text: str, expected: tuple[str, int] | None
) -> None:
    assert read_event_id(text) == expected
    if expected is not None:
        assert event_id(*expected) == text


async def test_a_client_gets_what_followed_the_event_it_names() -> None:
    store = MemoryEventStore()
    for number in (1, 2, 3):
        store.append("s", "p1", number, b"%d" % number)
    assert await store.after("s", "p1", 0) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert await store.after("s", "p1", 2) == [(3, b"3")]
    assert await store.after("s", "p1", 3) == []
    assert await store.after("s", "p2", 0) is None
    assert await store.after("t", "p1", 0) is None
    assert store.size == 3
    store.forget("s")
    store.forget("s")
    assert await store.after("s", "p1", 0) is None
    assert store.size == 0


async def test_a_stream_may_begin_with_any_number() -> None:
    store = MemoryEventStore()
    store.append("s", "g", 5, b"x")
    assert await store.after("s", "g", 4) == [(5, b"x")]
    assert await store.after("s", "g", 3) is None


async def test_a_stream_keeps_its_newest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "MAX_EVENTS", 2)
    store = MemoryEventStore()
    for number in (1, 2, 3):
        store.append("s", "g", number, b"12")
    assert await store.after("s", "g", 1) == [(2, b"12"), (3, b"12")]
    assert await store.after("s", "g", 0) is None
    assert store.size == 4


async def test_a_session_keeps_its_newest_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "MAX_STREAMS", 2)
    store = MemoryEventStore()
    for stream in ("a", "b", "a", "c"):
        store.append("s", stream, 1, b"12")
    assert await store.after("s", "b", 0) is None
    assert await store.after("s", "c", 0) == [(1, b"12")]
    assert store.size == 6


async def test_old_streams_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(resume.time, "monotonic", lambda: now[0])
    store = MemoryEventStore()
    store.append("s", "a", 1, b"12")
    now[0] = resume.MAX_AGE
    store.append("s", "b", 1, b"12")
    assert await store.after("s", "a", 0) is not None
    now[0] += 1
    store.append("s", "b", 2, b"12")
    assert await store.after("s", "a", 0) is None
    assert store.size == 4


async def test_a_session_keeps_as_many_bytes_as_it_may() -> None:
    store = MemoryEventStore(max_bytes=5)
    store.append("s", "a", 1, b"12")
    store.append("s", "b", 1, b"123")
    assert await store.after("s", "a", 0) is not None
    store.append("s", "b", 2, b"12")
    assert await store.after("s", "a", 0) is None
    assert await store.after("s", "b", 0) is not None
    store.append("s", "b", 3, b"123456")
    assert await store.after("s", "b", 2) == [(3, b"123456")]
    assert await store.after("s", "b", 1) is None
    assert store.size == 6
