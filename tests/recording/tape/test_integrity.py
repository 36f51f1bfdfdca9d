"""Tests of warnings about damaged tapes, and of reading entries in pages."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.recording.tape.format import TapeInfo
from fairlead.recording.tape.integrity import integrity_warnings
from fairlead.recording.tape.tape_reader import TapeReader, read_page


def line(seq: int, method: str = "ping") -> str:
    message = {"jsonrpc": "2.0", "id": seq, "method": method}
    return json.dumps({"seq": seq, "at": 0.0, "dir": "client_to_server", "message": message}) + "\n"


def tape(folder: Path, *lines: str, about: Any = None, **info: Any) -> TapeReader:
    (folder / "t.tape.jsonl").write_text("".join(lines))
    if about is None:
        about = json.dumps({"version": 1, "status": "complete", "entries": len(lines), **info})
    if about:
        (folder / "t.tape.json").write_text(about)
    return TapeReader(folder / "t")


def warnings(reader: TapeReader) -> list[str]:
    list(reader)
    return integrity_warnings(reader)


@pytest.mark.parametrize(
    ("lines", "info", "expected"),
    [
        ([line(1), line(2)], {}, []),
        ([line(1), "odd\n"], {}, ["1 line could not be read"]),
        ([line(1), "odd\n", "{}\n"], {}, ["2 lines could not be read"]),
        ([line(1), line(2)[:-1]], {}, ["1 line could not be read"]),
        ([line(1), line(1)], {}, ["1 duplicate sequence number"]),
        ([line(1), line(1), line(1)], {}, ["2 duplicate sequence numbers"]),
        (
            [line(2), line(1)],
            {},
            ["the sequence numbers decrease in 1 place: the order of the lines is used"],
        ),
        ([line(1)], {"lost": 1, "entries": 2}, ["1 message was lost during the recording"]),
        ([line(1)], {"lost": 2, "entries": 1}, ["2 messages were lost during the recording"]),
        (
            [line(1)],
            {"entries": 3},
            ["t.tape.json lists 3 messages, but the tape has 1"],
        ),
        ([line(1)], {"entries": 3, "status": "cut"}, []),
        (
            [line(1)],
            {"parts": 2},
            ["t.tape.json lists 2 parts, but t.2.tape.jsonl is missing"],
        ),
        (
            [line(1)],
            {"began": -1},
            ["t.tape.json cannot be read: Expected `float` >= 0.0 - at `$.began`"],
        ),
    ],
)
def test_damaged_and_incomplete_tapes_are_reported(
    tmp_path: Path, lines: list[str], info: dict[str, Any], expected: list[str]
) -> None:
    assert warnings(tape(tmp_path, *lines, **info)) == expected


def test_a_missing_or_invalid_companion_file_of_a_tape_is_reported(tmp_path: Path) -> None:
    reader = tape(tmp_path, line(1), about="")
    assert reader.troubles == ["t.tape.json is missing: details of the recording are unknown"]
    assert reader.info.status == "cut"
    (reader,) = [tape(tmp_path, line(1), about="{")]
    assert reader.troubles[0].startswith("t.tape.json cannot be read: ")


def test_a_tape_of_another_version_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has tape version 2; this Fairlead reads 1$"):
        tape(tmp_path, line(1), version=2)
    with pytest.raises(ConfigError, match="^tape .* does not exist$"):
        TapeReader(tmp_path / "none")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("began", -0.1),
        ("began", 253_000_000_000),
        ("ended", -0.1),
        ("entries", -1),
        ("lost", -1),
        ("parts", 0),
    ],
)
def test_metadata_with_an_invalid_value_is_replaced_by_the_defaults(
    tmp_path: Path, member: str, value: float
) -> None:
    reader = tape(tmp_path, line(1), name="x", **{member: value})
    assert reader.info == TapeInfo(name="t", status="cut")
    assert reader.troubles[0].endswith(f"at `$.{member}`")


# Pages


def test_entries_of_a_tape_are_read_in_pages(tmp_path: Path) -> None:
    reader = tape(tmp_path, *[line(number) for number in range(1, 6)])
    size = len(line(1))
    page = read_page(reader, limit=2)
    assert ([one.seq for one in page.entries], page.next, page.more) == (
        [1, 2],
        f"1-{2 * size}",
        True,
    )
    page = read_page(reader, page.next, limit=3)
    assert ([one.seq for one in page.entries], page.next, page.more) == (
        [3, 4, 5],
        f"1-{5 * size}",
        False,
    )
    page = read_page(reader, page.next)
    assert (page.entries, page.more) == ([], False)
    assert len(read_page(reader).entries) == 5


@pytest.mark.parametrize("place", ["x", "1", "1-x", "-1", "1-", "1-" + "9" * 19, "١-0"])
def test_invalid_tape_positions_are_rejected(tmp_path: Path, place: str) -> None:
    with pytest.raises(ValueError, match="invalid tape position .*: expected PART-OFFSET$"):
        read_page(tape(tmp_path, line(1)), place)


def test_a_page_after_a_dropped_part_starts_with_the_next_part(tmp_path: Path) -> None:
    reader = tape(tmp_path, line(1))
    (tmp_path / "t.3.tape.jsonl").write_text(line(3))
    page = read_page(reader, f"2-{len(line(2))}")
    assert [one.seq for one in page.entries] == [3]
    assert page.next == f"3-{len(line(3))}"
