import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire.sse import (
    HEARTBEAT,
    Event,
    EventParser,
    EventTooLong,
    encode_event,
    parse_sse,
)


def parse(stream: bytes, limit: int = 1 << 20) -> list[Event | EventTooLong]:
    return EventParser(limit).feed(stream)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Split the stream into chunks, some of them empty."""
    places = sorted(place % (len(stream) + 1) for place in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def by_the_book(stream: bytes) -> list[tuple[str, bytes, str]]:
    """Parse a whole stream with the algorithm of the standard; return type, data and last id.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _ = re.split("\r\n|\n|\r", text)
    events, data, kind, last_id, new_id = [], "", "", "", ""
    for line in lines:
        if line == "":
            last_id = new_id
            if data != "":
                events.append((kind or "message", data.removesuffix("\n").encode(), last_id))
            data, kind = "", ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data += value + "\n"
        elif name == "id" and "\0" not in value:
            new_id = value
    return events


PIECES = st.lists(
    st.sampled_from(
        [
            *("data", "event", "id", "retry", ":", " ", ":ping", "x", "ü", "🌍", "0", "12", "\0"),
            *("\n", "\r", "\r\n", "\n\n", "\ufeff", "data: ", "data:{}", "id: 7", "event: end"),
        ]
    ),
    max_size=40,
)


@pytest.mark.covers("SSE-01")
@given(PIECES, st.lists(st.integers(0, 500), max_size=8))
def test_parsed_events_equal_those_of_the_reference_algorithm_for_any_chunks(
    pieces: list[str], cuts: list[int]
) -> None:
    stream = "".join(pieces).encode()
    parser = EventParser()
    found: list[Event] = []
    for chunk in cut(stream, cuts):
        for event in parser.feed(chunk):
            assert isinstance(event, Event)
            found.append(event)
    # A `data` line without a value is an event with empty data, as in the standard.
    told = [(e.event, e.data, e.id or "") for e in found]
    expected = by_the_book(stream)
    with_data = [event for event in told if event[1]]
    assert with_data == [event for event in expected if event[1]]
    assert parser.feed(b"") == []


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_events_in_random_bytes_do_not_depend_on_the_chunks(stream: bytes, cuts: list[int]) -> None:
    parser = EventParser(50)
    found = [event for chunk in cut(stream, cuts) for event in parser.feed(chunk)]
    assert found == parse(stream, 50)
    assert parser.held <= 50


@pytest.mark.covers("SSE-01")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_kind_of_line_ending_ends_a_line(end: bytes) -> None:
    stream = end.join([b"event: x", b"id: 1", b"retry: 20", b"data: a", b"data: b", b"", b""])
    assert parse(stream) == [Event(b"a\nb", "x", "1", 20)]
    parser = EventParser()
    each = [event for i in range(len(stream)) for event in parser.feed(stream[i : i + 1])]
    assert each == [Event(b"a\nb", "x", "1", 20)]


def test_an_event_that_ends_with_cr_is_returned_at_once() -> None:
    parser = EventParser()
    assert parser.feed(b"data: 1\r\n\r") == [Event(b"1")]
    assert parser.feed(b"\ndata: 2\n\n") == [Event(b"2")]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: 1", []),
        (b"data: 1\n", []),
        (b": ping\n\n", []),
        (HEARTBEAT, []),
        (b"event: lonely\n\n", []),
        (b"data:  two spaces\n\n", [Event(b" two spaces")]),
        (b"data:tight\n\n", [Event(b"tight")]),
        (b"data\n\n", [Event(b"")]),
        (b"data\ndata\n\n", [Event(b"\n")]),
        (b"data: a:b: c\n\n", [Event(b"a:b: c")]),
        (b"DATA: no\n\n", []),
        (b"id: 1\ndata: \n\n", [Event(b"", "message", "1")]),
        (b"id: 1\n\n", [Event(b"", "message", "1")]),
        (b"retry: 30\n\n", [Event(b"", "message", None, 30)]),
        (b"retry: 3x\n\n", []),
        (b"retry: -3\n\n", []),
        (b"retry: 99999999999999\n\n", []),
        ("retry: ٣\n\n".encode(), []),
        (b"id: a\0b\ndata: 1\n\n", [Event(b"1")]),
        (b"id: 1\ndata: x\n\nid\ndata: y\n\n", [Event(b"x", id="1"), Event(b"y", id="")]),
        (b"id: 1\ndata: x\n\ndata: y\n\n", [Event(b"x", id="1"), Event(b"y", id="1")]),
        (b"event: a\ndata: x\n\ndata: y\n\n", [Event(b"x", "a"), Event(b"y")]),
        (b"\xef\xbb\xbfdata: 1\n\n", [Event(b"1")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\n", []),
        (b"\n\n\ndata: 1\n\n\n\n", [Event(b"1")]),
    ],
)
def test_the_fields_of_server_sent_events_are_parsed(stream: bytes, events: list[Event]) -> None:
    assert parse(stream) == events


def test_a_parser_can_continue_with_the_last_id_of_an_earlier_stream() -> None:
    parser = EventParser()
    parser.last_id = "7"
    assert parser.feed(b"data: x\n\n") == [Event(b"x", id="7")]
    assert parser.feed(b"id: 8\n") == []
    assert parser.last_id == "7"  # the id changes only when the event is complete
    assert parser.feed(b"\n") == [Event(b"", id="8")]


@pytest.mark.covers("SSE-01")
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_an_event_over_the_limit_is_reported_with_its_size_and_dropped(size: int) -> None:
    parser = EventParser(100)
    stream = b"id: 4\ndata: " + b"x" * 5000 + b"\ndata: more\n\ndata: next\n\n"
    found: list[Event | EventTooLong] = []
    for start in range(0, len(stream), size):
        found += parser.feed(stream[start : start + size])
        assert parser.held <= 100
    assert found == [EventTooLong(5 + 6 + 5000 + 10, "4"), Event(b"next", id="4")]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_an_event_of_exactly_the_limit_is_returned(size: int, start: bytes) -> None:
    stream = start + b"data: 1234\n\ndata: 5678\n\n"
    parser = EventParser(10)
    found = [e for at in range(0, len(stream), size) for e in parser.feed(stream[at : at + size])]
    assert found == [Event(b"1234"), Event(b"5678")]
    assert parse(b"data: 12345\n\n", 10) == [EventTooLong(11)]


def test_the_size_limit_applies_to_all_lines_of_an_event_together() -> None:
    parser = EventParser(100)
    for _ in range(1000):
        assert parser.feed(b"data: x\n") == []
        assert parser.held <= 100
    assert parser.feed(b"\n") == [EventTooLong(7000)]


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_long_comments_do_not_count_towards_the_size_of_an_event(size: int) -> None:
    parser = EventParser(30)
    stream = b"data: 1\n:" + b"c" * 400 + b"\ndata: 2\n: ping\n\n:" + b"c" * 70 + b"\ndata: 3\n\n"
    found: list[Event | EventTooLong] = []
    for start in range(0, len(stream), size):
        found += parser.feed(stream[start : start + size])
        assert parser.held <= 30
    assert found == [Event(b"1\n2"), Event(b"3")]


def test_an_event_with_a_too_long_id_is_dropped_instead_of_truncated() -> None:
    parser = EventParser(10)
    parser.feed(b"id: 12")
    parser.feed(b"34567890")
    assert parser.feed(b"\ndata: 1\n\n") == [EventTooLong(21)]
    assert parser.last_id is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.none() | st.sampled_from(["message", "endpoint"]),
    st.none() | st.from_regex(r"[a-z]{1,3}_[0-9]{1,3}", fullmatch=True),
    st.none() | st.integers(0, 99999),
)
def test_an_encoded_event_is_parsed_to_the_same_event(
    value: Any, event: str | None, id: str | None, retry: int | None
) -> None:
    pretty = msgspec.json.format(msgspec.json.encode(value), indent=2)
    (found,) = parse(encode_event(pretty, event=event, id=id, retry=retry))
    assert isinstance(found, Event)
    assert msgspec.json.decode(found.data) == value
    assert b"\n" not in found.data
    assert (found.event, found.id, found.retry) == (event or "message", id, retry)


@pytest.mark.covers("RPC-15")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('data: {"a": 1}\n\n', {"a": 1}),
        ("event: x\ndata: [DONE]\ndata: oops\r\ndata: [1]\n", [1]),
        ("data: null\n", None),
        ('data: {"a": 1}\rdata: 2', {"a": 1}),
        ('data: "\u2028"\n', "\u2028"),  # U+2028 is not a line end
        (' {"whole": true} ', {"whole": True}),
        ("data:{}\n", None),  # only `data: ` with a space is accepted
        ("data: \n", None),
        ("", None),
        ("nothing here", None),
        ("[DONE]", None),
        ("[" * 100_000, None),
    ],
)
def test_parse_sse_returns_the_first_json_value_of_the_data_lines(text: str, value: Any) -> None:
    assert parse_sse(text) == value


@given(st.text())
def test_parsing_arbitrary_text_as_events_raises_no_exception(text: str) -> None:
    parse_sse(text)
