"""Stored events for clients that resume a stream."""

import pytest

from fairlead.limits import EVENT_BYTES
from fairlead.transport.http.server.sessions import event_store as resume
from fairlead.transport.http.server.sessions.event_store import (
    MemoryEventStore,
    event_id,
    post_stream_name,
    read_event_id,
    stream_scopes,
)
from tests.support.virtual_time import VirtualTime


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
def test_an_event_id_contains_its_stream_and_number(
    text: str, expected: tuple[str, int] | None
) -> None:
    assert read_event_id(text) == expected
    if expected is not None:
        assert event_id(*expected) == text


@pytest.mark.parametrize("scopes", [(), ("read",), ("mcp:write", "https://x.example/a_b")])
def test_the_name_of_a_stream_contains_the_scopes_of_its_requests(scopes: tuple[str, ...]) -> None:
    name = post_stream_name(3, scopes)
    assert name.startswith("p3")
    assert stream_scopes(name) == scopes
    assert read_event_id(event_id(name, 7)) == (name, 7)
    assert (post_stream_name(3), stream_scopes("g")) == ("p3", ())


async def test_a_client_gets_the_events_after_its_last_event() -> None:
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


async def test_event_numbers_of_a_stream_may_start_at_any_number() -> None:
    store = MemoryEventStore()
    store.append("s", "g", 5, b"x")
    assert await store.after("s", "g", 4) == [(5, b"x")]
    assert await store.after("s", "g", 3) is None


async def test_a_stream_keeps_only_its_newest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "MAX_EVENTS", 2)
    store = MemoryEventStore()
    for number in (1, 2, 3):
        store.append("s", "g", number, b"12")
    assert await store.after("s", "g", 1) == [(2, b"12"), (3, b"12")]
    assert await store.after("s", "g", 0) is None
    assert store.size == 4


async def test_a_session_keeps_only_its_newest_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "MAX_STREAMS", 2)
    store = MemoryEventStore()
    for stream in ("a", "b", "a", "c"):
        store.append("s", stream, 1, b"12")
    assert await store.after("s", "b", 0) is None
    assert await store.after("s", "c", 0) == [(1, b"12")]
    assert store.size == 6


async def test_streams_older_than_the_maximum_age_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


async def test_the_bytes_of_a_session_are_limited() -> None:
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


async def test_a_stream_keeps_1024_events_and_a_session_64_streams() -> None:
    store = MemoryEventStore()
    for number in range(1, 1026):
        store.append("s", "g", number, b"x")
    assert await store.after("s", "g", 0) is None
    assert len(await store.after("s", "g", 1) or ()) == 1024
    for stream in range(63):
        store.append("s", f"p{stream}", 1, b"x")
    assert await store.after("s", "g", 1025) == []
    store.append("s", "p63", 1, b"x")
    assert await store.after("s", "g", 1025) is None
    assert await store.after("s", "p0", 0) == [(1, b"x")]
    assert store.size == 64


async def test_a_session_keeps_at_most_four_mebibytes_of_events() -> None:
    store = MemoryEventStore()
    store.append("s", "p1", 1, bytes(1 << 20))
    store.append("s", "p2", 1, bytes(3 << 20))
    assert await store.after("s", "p1", 1) == []
    store.append("s", "p3", 1, b"x")
    assert await store.after("s", "p1", 1) is None
    assert store.size == (3 << 20) + 1


@pytest.mark.parametrize(("age", "kept"), [(600.0, True), (600.1, False)])
async def test_a_stream_expires_after_ten_minutes(
    virtual_time: VirtualTime, age: float, kept: bool
) -> None:
    store = MemoryEventStore()
    store.append("s", "p1", 1, b"x")
    virtual_time.now += age
    store.append("s", "p2", 1, b"y")
    assert (await store.after("s", "p1", 1) is not None) == kept
    store.forget("s")
    assert store.size == 0


@pytest.mark.parametrize(
    ("sizes", "total", "share"),
    [
        ([5], 10, 5),
        ([12], 10, 10),
        ([5, 5], 10, 5),
        ([6, 6], 10, 5),
        ([2, 9], 10, 8),
        ([1, 2, 30], 10, 7),
        ([4, 4, 4], 10, 3),
        ([30, 1, 2], 10, 7),
    ],
)
def test_the_byte_limit_is_shared_fairly_among_owners(
    sizes: list[int], total: int, share: int
) -> None:
    assert resume._share(sizes, total) == share


async def test_the_client_with_the_most_stored_bytes_loses_its_oldest_sessions() -> None:
    store = MemoryEventStore(max_total=80, owner_of=lambda session: session[0])
    for session in ("a1", "a2", "b1", "a3"):
        store.append(session, "g", 1, bytes(20))
    assert store.size == 80
    store.append("b1", "g", 2, b"x")
    kept = [
        name for name in ("a1", "a2", "a3", "b1") if await store.after(name, "g", 1) is not None
    ]
    assert kept == ["a2", "a3", "b1"]
    assert store.size == 61
    store.forget("a2")
    store.forget("a3")
    store.forget("b1")
    assert (store.size, store._owned) == (0, {})


async def test_the_most_recently_written_session_keeps_its_events() -> None:
    store = MemoryEventStore(max_total=10)
    store.append("a", "g", 1, bytes(5))
    store.append("b", "g", 1, bytes(50))
    assert await store.after("b", "g", 0) is not None


async def test_dropping_events_is_counted_as_a_reached_limit() -> None:
    before = EVENT_BYTES.hits
    store = MemoryEventStore(max_total=10)
    store.append("a", "g", 1, bytes(5))
    store.append("b", "g", 1, bytes(5))
    assert (EVENT_BYTES.hits, store.size) == (before, 10)
    store.append("b", "g", 2, b"x")
    assert EVENT_BYTES.hits == before + 1


async def test_writing_to_a_session_makes_it_the_newest() -> None:
    store = MemoryEventStore(max_total=80, owner_of=lambda session: "one client")
    for session in ("a", "b", "c"):
        store.append(session, "g", 1, bytes(20))
    store.append("a", "g", 2, bytes(20))
    store.append("d", "g", 1, b"x")
    kept = [name for name in "abcd" if await store.after(name, "g", 1) is not None]
    assert kept == ["a", "c", "d"]
