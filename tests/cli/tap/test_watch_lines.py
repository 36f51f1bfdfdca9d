"""Tests of the output lines of `fairlead watch`: times, durations, and terminal widths."""

import io
import re
import time

import pytest

from fairlead.cli.tap.watch_lines import RecordPrinter, format_duration
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal.journal_record import JournalRecord


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(record: JournalRecord, stream: io.StringIO) -> str:
    RecordPrinter(stream).show(record)
    return stream.getvalue()


def call(at: float = 0.0, target: str = "add", error: str | None = None) -> JournalRecord:
    return JournalRecord(
        id=1,
        at=at,
        dir=Direction.CLIENT_TO_SERVER,
        kind="request",
        method="resources/read",
        target=target,
        state="ok" if error is None else "refused",
        duration=0.0013,
        code=None if error is None else -32602,
        error=error,
        flags=("id in use",),
    )


def test_the_time_of_a_watch_line_is_rounded_to_milliseconds() -> None:
    line = shown(call(at=1_700_000_000.9996), io.StringIO())
    assert line.startswith(time.strftime("%H:%M:%S.000", time.localtime(1_700_000_001)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0013, "1.3 ms"), (0.9993, "999 ms"), (0.9996, "1 s"), (30.0, "30 s"), (1234.5, "1234 s")],
)
def test_durations_in_watch_lines_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("error", [None, "there is no such thing, and never was, " * 4])
def test_a_watch_line_fits_into_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    record = call(target="file:///" + "long/" * 90, error=error)
    whole = shown(record, io.StringIO())
    assert record.target is not None
    assert record.target in whole
    for columns in (100, 120, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        line = re.sub(r"\x1b\[[0-9;]*m", "", shown(record, Screen())).rstrip("\n")
        assert len(line) <= columns
        assert "resources/read file:///" in line
        assert "1.3 ms ok" in line if error is None else "1.3 ms refused -32602 there is" in line
        assert line.endswith("[id in use]")
    monkeypatch.setenv("COLUMNS", "20")  # too narrow: the line wraps, but the method is shown
    assert "resources/read" in shown(record, Screen())
