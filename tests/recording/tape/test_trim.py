"""Tests of selecting tape entries and of writing shorter copies."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ConfigError
from fairlead.protocol.envelope import Direction
from fairlead.recording.tape.format import TapeEntry
from fairlead.recording.tape.tape_reader import LineLocation, TapeReader
from fairlead.recording.tape.trim import EntrySelection, select_lines, trim

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def entry(seq: int, way: Direction = UP, session: str | None = "s", **message: Any) -> TapeEntry:
    raw = Raw(json.dumps({"jsonrpc": "2.0", **message}).encode())
    return TapeEntry(seq=seq, at=0.0, dir=way, message=raw, session=session)


SPOT = LineLocation(0, 0, 0)
TAPE = [
    entry(1, id=1, method="initialize"),
    entry(2, DOWN, id=1, result={}),
    entry(3, method="notifications/initialized"),
    entry(4, id=2, method="tools/list"),
    entry(5, id=3, method="tools/call"),
    entry(6, DOWN, id=3, result={}),
    entry(7, DOWN, id=2, result={}),
    entry(8, DOWN, id=9, result={}),
    entry(9, session="t", id=1, method="ping"),
    entry(10, DOWN, session="t", id=1, result={}),
]


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ({"first": 5}, [5, 6, 8, 9, 10]),
        ({"last": 4}, [1, 2, 3, 4, 7]),
        ({"first": 4, "last": 4}, [4, 7]),
        ({"first": 5, "last": 5, "opening": True}, [1, 2, 3, 5, 6]),
        ({"session": "t"}, [9, 10]),
        ({"session": "s", "last": 3}, [1, 2, 3]),
        ({"method": lambda name: name == "tools/call"}, [5, 6]),
        ({"method": lambda name: name == "ping", "opening": True}, [1, 2, 3, 9, 10]),
        ({"first": 99}, []),
    ],
)
def test_trimming_selects_responses_together_with_their_requests(
    choice: dict[str, Any], numbers: list[int]
) -> None:
    lines = [(SPOT, b"", one) for one in TAPE]
    found = select_lines(lines, EntrySelection(**choice))
    assert [one.seq for _, one in found] == numbers


def test_reading_ends_when_no_later_entry_can_match() -> None:
    read: list[int] = []

    def lines() -> Any:
        for one in TAPE:
            read.append(one.seq)
            yield SPOT, b"", one

    list(select_lines(lines(), EntrySelection(last=4)))
    assert read[-1] == 8, "entry 7 is the response to entry 4"


class Tapes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, numbers: list[int], **info: Any) -> TapeReader:
        lines = [
            json.dumps(
                {
                    "seq": number,
                    "at": 0.0,
                    "dir": "client_to_server",
                    "extra": "kept",
                    "message": {"jsonrpc": "2.0", "method": f"m{number}"},
                }
            )
            for number in numbers
        ]
        (self.folder / f"{name}.tape.jsonl").write_text("".join(f"{one}\n" for one in lines))
        about = {"version": 1, "status": "complete", "name": name, "tags": ["x"], **info}
        (self.folder / f"{name}.tape.json").write_text(json.dumps(about))
        return TapeReader(self.folder / name)


@pytest.fixture
def tapes(tmp_path: Path) -> Tapes:
    return Tapes(tmp_path)


def test_selected_entries_are_written_to_another_tape(tapes: Tapes) -> None:
    reader = tapes.write("long", [1, 2, 3], entries=3, parts=4)
    target = tapes.folder / "new" / "short"
    assert trim(reader, EntrySelection(first=2), target) == 2
    short = TapeReader(target)
    assert [one.seq for one in short] == [2, 3]
    info = short.info
    assert (info.name, info.entries, info.parts, info.status) == ("short", 2, 1, "complete")
    assert info.tags == ["x"]
    assert '"extra": "kept"' in (tapes.folder / "new" / "short.tape.jsonl").read_text()
    assert (tapes.folder / "new" / "short.tape.json").read_text().endswith("}\n")


def test_a_tape_is_trimmed_in_place_with_its_parts(tapes: Tapes) -> None:
    reader = tapes.write("long", [1, 2], parts=2)
    (tapes.folder / "long.2.tape.jsonl").write_text("")
    assert trim(reader, EntrySelection(last=1), tapes.folder / "long") == 1
    assert not (tapes.folder / "long.2.tape.jsonl").exists()
    assert [one.seq for one in TapeReader(tapes.folder / "long")] == [1]


def test_trimming_to_an_empty_selection_raises_an_error_and_writes_no_file(tapes: Tapes) -> None:
    reader = tapes.write("long", [1])
    with pytest.raises(ConfigError, match="matches: nothing was written$"):
        trim(reader, EntrySelection(first=9), tapes.folder / "short")
    assert not (tapes.folder / "short.tape.jsonl").exists()


def test_trimming_an_empty_tape_keeps_it_empty(tapes: Tapes) -> None:
    assert trim(tapes.write("long", []), EntrySelection(), tapes.folder / "short") == 0


def test_an_existing_tape_is_kept_unless_overwrite_is_set(tapes: Tapes) -> None:
    reader = tapes.write("long", [1, 2])
    tapes.write("short", [5])
    with pytest.raises(FileExistsError):
        trim(reader, EntrySelection(), tapes.folder / "short", overwrite=False)
    assert [one.seq for one in TapeReader(tapes.folder / "short")] == [5]
    assert trim(reader, EntrySelection(), tapes.folder / "short") == 2
