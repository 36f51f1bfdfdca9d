import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire import MAX_MESSAGE, LineSplitter, TooLong

BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r\n\x0b\x0c"

# Bytes in which line ends, blanks and byte order marks are frequent.
streams = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b" ", b"\r", BOM, b"{}", b'{"a":1}', b"x" * 9])
    | st.binary(max_size=6),
    max_size=30,
).map(b"".join)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(edges)]


def all_lines(splitter: LineSplitter, chunks: list[bytes]) -> list[bytes | TooLong]:
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


def expected(stream: bytes, limit: int) -> list[bytes | TooLong]:
    """Return the expected lines by a slow reference implementation."""
    out: list[bytes | TooLong] = []
    at_start = True
    *whole, last = stream.split(b"\n")
    for line in (*whole, last) if last else whole:
        if len(line) > limit:
            out.append(TooLong(len(line), line[:200]))
            continue
        if at_start:
            line = line.removeprefix(BOM)
        at_start = False
        if line.strip(BLANKS):
            out.append(line.strip(BLANKS))
    return out


@pytest.mark.covers("RPC-08")
@given(streams, st.lists(st.integers(0, 300), max_size=12), st.sampled_from([4, 16, 1000]))
def test_the_split_lines_do_not_depend_on_the_chunks(
    stream: bytes, places: list[int], limit: int
) -> None:
    lines = all_lines(LineSplitter(limit), cut(stream, places))
    assert lines == expected(stream, limit)
    assert all(type(line) is bytes for line in lines if not isinstance(line, TooLong))


@given(streams, st.sampled_from([4, 1000]))
def test_lines_are_the_same_if_bytes_arrive_one_by_one(stream: bytes, limit: int) -> None:
    drip = [stream[i : i + 1] for i in range(len(stream))]
    assert all_lines(LineSplitter(limit), drip) == expected(stream, limit)


@pytest.mark.covers("RPC-08")
@given(streams, st.lists(st.integers(0, 300), max_size=12), st.sampled_from([4, 16]))
def test_buffered_bytes_never_exceed_the_limit(
    stream: bytes, places: list[int], limit: int
) -> None:
    splitter = LineSplitter(limit)
    for chunk in cut(stream, places):
        splitter.feed(chunk)
        assert splitter.held <= max(limit, 200)
    splitter.finish()
    assert splitter.held == 0


def test_a_line_is_returned_when_its_line_end_arrives() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.held == 5
    assert splitter.feed(b'1}\n{"b":2}\n{"c"') == [b'{"a":1}', b'{"b":2}']
    assert splitter.held == 4
    assert splitter.feed(b":3}\n") == [b'{"c":3}']
    assert splitter.held == 0
    assert splitter.finish() == []


def test_crlf_is_a_line_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"{}\r") == []
    assert splitter.feed(b"\n{}\r\n\r\n") == [b"{}", b"{}"]


def test_blank_lines_and_blanks_around_a_line_are_dropped() -> None:
    assert LineSplitter().feed(b"\n \t\r\n\x0b\x0c\n  {} \t\n") == [b"{}"]


def test_a_byte_order_mark_is_dropped_once_at_the_start() -> None:
    splitter = LineSplitter()
    assert splitter.feed(BOM[:2]) == []
    assert splitter.feed(BOM[2:] + b"{}\n" + BOM + b"{}\n") == [b"{}", BOM + b"{}"]
    assert LineSplitter().feed(BOM + b"\n{}\n") == [b"{}"]


def test_last_line_may_lack_its_line_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"{}\n{}") == [b"{}"]
    assert splitter.finish() == [b"{}"]
    assert splitter.finish() == []


@pytest.mark.covers("RPC-08")
def test_a_line_may_be_as_long_as_the_limit() -> None:
    assert MAX_MESSAGE == 16 * 1024 * 1024
    for chunk_size in (1, 3, 100):
        splitter = LineSplitter(10)
        stream = b"0123456789\n0123456789x\n"
        lines = all_lines(splitter, cut(stream, list(range(0, 99, chunk_size))))
        assert lines == [b"0123456789", TooLong(11, b"0123456789x")]


@pytest.mark.covers("RPC-08")
def test_a_line_over_the_limit_is_reported_once_and_the_next_is_read() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"{}\n" + b"x" * 8) == [b"{}"]
    for _ in range(1000):
        assert splitter.feed(b"y" * 50) == []
    assert splitter.feed(b"z\n{}\n") == [TooLong(50_009, (b"x" * 8 + b"y" * 200)[:200]), b"{}"]


def test_reported_start_of_a_too_long_line_does_not_depend_on_the_chunks() -> None:
    line = bytes(range(48, 123)) * 10
    for size in (1, 7, 64, 199, 200, 201, 750):
        chunks = [line[i : i + size] for i in range(0, len(line), size)]
        assert all_lines(LineSplitter(64), chunks) == [TooLong(750, line[:200])]


@pytest.mark.covers("RPC-08")
def test_the_memory_for_a_line_of_any_length_is_limited() -> None:
    splitter = LineSplitter(64 * 1024)
    chunk = b"x" * 32 * 1024
    tracemalloc.start()
    try:
        for _ in range(500):
            splitter.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024
    assert splitter.finish() == [TooLong(500 * len(chunk), chunk[:200])]


def test_a_line_received_byte_by_byte_uses_one_buffer() -> None:
    splitter = LineSplitter()
    tracemalloc.start()
    try:
        for _ in range(50_000):
            splitter.feed(b"x")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 50_000
    assert splitter.finish() == [b"x" * 50_000]


@pytest.mark.parametrize("sizes", [(5000, 1, 5000), (1, 5000, 1, 1), (4095, 4096, 4097)])
def test_large_and_small_chunks_of_a_line_are_joined_in_order(sizes: tuple[int, ...]) -> None:
    pieces = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    splitter = LineSplitter()
    for piece in pieces:
        assert splitter.feed(piece) == []
    assert splitter.feed(b"\n") == [b"".join(pieces)]


@pytest.mark.parametrize(("size", "fits"), [(20, True), (21, False)])
@pytest.mark.parametrize("pieces", [1, 2])
def test_length_limit_applies_to_the_fast_path_for_one_line(
    size: int, fits: bool, pieces: int
) -> None:
    line = b"{" + b" " * (size - 2) + b"}"
    splitter = LineSplitter(20)
    chunks = [line + b"\n"] if pieces == 1 else [line[:5], line[5:] + b"\n"]
    found = [one for chunk in chunks for one in splitter.feed(chunk)]
    assert found == ([line] if fits else [TooLong(size, line[:200])])
    assert splitter.held == 0
