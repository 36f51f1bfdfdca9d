"""Tests of child processes' stderr: lines that are kept, passed to the callback or dropped."""

import logging
from typing import Any

import pytest

from fairlead.limits import STDERR_LINES
from fairlead.transport.stdio.child_process import _Stderr
from tests.support.virtual_time import VirtualTime

MOST = STDERR_LINES.value


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def texts(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_only_complete_stderr_lines_are_passed_to_the_callback() -> None:
    heard: list[str] = []
    stderr = _Stderr(heard.append, "test")
    stderr.data_received(b"one\ntw")
    stderr.data_received(b"o  \n\n  \nthree")
    assert heard == ["one", "two"]
    assert not stderr.ended.done()
    stderr.connection_lost(None)
    assert heard == ["one", "two", "three"]
    assert stderr.tail() == ("one", "two", "three")
    assert stderr.ended.done()
    stderr.connection_lost(None)
    assert heard == ["one", "two", "three"]


async def test_the_last_lines_of_stderr_are_kept() -> None:
    stderr = _Stderr(None, "test")
    stderr.data_received(lines(1, 100))
    assert list(stderr._lines) == texts(61, 100)
    assert stderr.tail() == tuple(texts(81, 100))


async def test_the_length_of_a_stderr_line_is_limited() -> None:
    heard: list[str] = []
    stderr = _Stderr(heard.append, "test")
    stderr.data_received(b"x" * 2001 + b"\n")
    stderr.data_received(b"y" * 5000)
    assert len(stderr._partial) == 2000
    stderr.data_received(b"z\n")
    assert heard == ["x" * 2000, "y" * 2000]


@pytest.mark.parametrize("count", [MOST, MOST + 1, MOST + 100])
async def test_stderr_lines_over_the_rate_limit_are_kept_but_not_passed_on(
    virtual_time: VirtualTime, count: int
) -> None:
    heard: list[str] = []
    hits = STDERR_LINES.hits
    stderr = _Stderr(heard.append, "test")
    stderr.data_received(lines(1, count))
    assert heard == texts(1, MOST)
    assert STDERR_LINES.hits == hits + (count > MOST)
    # Only the last forty lines are kept; lines passed to the callback come last.
    assert len(stderr._lines) == 40
    virtual_time.now += 0.999
    stderr.data_received(b"more\n")
    assert heard == texts(1, MOST)
    assert stderr._lines[-1] == "more"
    virtual_time.now += 0.001
    stderr.data_received(b"again\n")
    assert heard[MOST:] == ["again"]


async def test_stderr_lines_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    stderr = _Stderr(heard.append, "fairlead.server.a")
    with caplog.at_level(logging.DEBUG, "fairlead.server.a"):
        stderr.data_received(b"password=hunter22\nplain\n")
    assert "hunter22" not in caplog.text
    assert "plain" in caplog.text
    assert "hunter22" not in str(heard)
    assert "hunter22" not in str(stderr.tail())


async def test_a_stderr_callback_that_raised_is_called_with_the_next_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    def listen(line: str) -> Any:
        heard.append(line)
        raise ValueError("odd")

    _Stderr(listen, "fairlead.server.a").data_received(b"1\n2\n")
    assert heard == ["1", "2"]
    assert caplog.text.count("on_stderr failed") == 2


async def test_a_flood_on_stderr_is_logged_completely_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "fairlead.server.a"):
        _Stderr(None, "fairlead.server.a").data_received(lines(1, 100))
    assert [record.getMessage() for record in caplog.records] == texts(1, 100)
