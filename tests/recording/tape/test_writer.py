"""Tests of tapes on disk: size limits, complete lines, and damaged files."""

import json
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.protocol.envelope import Direction
from fairlead.recording.tape import TapeReader, TapeWriter, decode_entry, read_tape
from fairlead.recording.tape.integrity import integrity_warnings
from fairlead.recording.tape.tape_files import files_of, tapes_in
from tests.support.virtual_time import VirtualTime

UP = Direction.CLIENT_TO_SERVER


def note(n: int, size: int = 0) -> bytes:
    return b'{"jsonrpc":"2.0","method":"n","params":{"n":%d,"pad":"%b"}}' % (n, b"x" * size)


def numbers(path: Path) -> list[int]:
    return [decode_entry(entry)["params"]["n"] for entry in read_tape(path)]


def test_a_tape_is_rotated_and_its_first_and_last_parts_are_kept(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one", max_bytes=1000, max_parts=3) as tape:
        for n in range(40):
            tape.write(note(n, 100), UP)
    reader = TapeReader(tmp_path / "one")
    kept = numbers(tmp_path / "one")
    assert kept[:4] == [0, 1, 2, 3]
    assert kept[-4:] == [36, 37, 38, 39]
    assert len(reader.parts) == 3
    assert reader.info.parts > 3
    assert all(part.stat().st_size <= 1000 for part in reader.parts)
    with TapeWriter(tmp_path / "one") as tape:  # a second recording replaces the first
        tape.write(note(7), UP)
    assert numbers(tmp_path / "one") == [7]
    assert len(files_of(str(tmp_path / "one"))) == 2


def test_a_tape_with_a_number_in_its_name_is_not_a_part_of_another_tape(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "v1.3") as tape:
        tape.write(note(13), UP)
    with TapeWriter(tmp_path / "v1", max_bytes=200, max_parts=3) as tape:
        for n in range(6):
            tape.write(note(n, 100), UP)
    assert numbers(tmp_path / "v1.3") == [13]
    assert numbers(tmp_path / "v1") == [0, 4, 5]
    reader = TapeReader(tmp_path / "v1")
    assert [part.name for part in reader.parts][1:] == ["v1.6.tape.jsonl", "v1.7.tape.jsonl"]
    assert integrity_warnings(reader) == []
    assert [place.name for place in tapes_in(tmp_path)] == ["v1.3.tape.jsonl", "v1.tape.jsonl"]
    for file in files_of(str(tmp_path / "v1")):
        file.unlink()
    assert numbers(tmp_path / "v1.3") == [13]


def test_a_message_with_line_breaks_is_written_on_one_line(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        tape.write(b'{\n "jsonrpc": "2.0",\r\n "method": "n", "params": {"n": 1}\n}', UP)
    assert numbers(tmp_path / "one") == [1]
    assert (tmp_path / "one.tape.jsonl").read_bytes().count(b"\n") == 1


def test_invalid_messages_are_written_as_strings(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        for line in (b"Listening on port 80", b'{"half":', b"\xff\xfe", b"[" * 100_000, b""):
            tape.write(line, UP)
        tape.write(note(1), UP)
    reader = TapeReader(tmp_path / "one")
    entries = list(reader)
    assert (len(entries), reader.skipped) == (6, 0)
    assert bytes(entries[0].message) == b'"Listening on port 80"'
    assert [decode_entry(entry) for entry in entries[:5]] == [{}] * 5


def test_invalid_tape_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        for n in range(3):
            tape.write(note(n), UP)
    place = tmp_path / "one.tape.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    lines.insert(1, b"no json\n")
    lines.insert(1, b'{"seq":"nonsense"}\n')
    lines.insert(1, b"\xff\xfe\n")
    lines.insert(1, b"[" * 100_000 + b"\n")
    lines.insert(1, b"\n")
    place.write_bytes(b"".join(lines)[:-10])
    reader = TapeReader(place)
    assert [decode_entry(entry)["params"]["n"] for entry in reader] == [0, 1]
    assert reader.skipped == 5
    (tmp_path / "one.tape.json").unlink()
    assert TapeReader(place).info.status == "cut"
    (tmp_path / "one.tape.json").write_text("{")
    assert numbers(place) == [0, 1]


def test_a_tape_of_another_version_is_rejected(tmp_path: Path) -> None:
    TapeWriter(tmp_path / "one").close()
    about: dict[str, Any] = json.loads((tmp_path / "one.tape.json").read_text())
    (tmp_path / "one.tape.json").write_text(json.dumps({**about, "version": 9, "parts": "many"}))
    with pytest.raises(ConfigError, match="has tape version 9; this Fairlead reads 1"):
        TapeReader(tmp_path / "one")
    with pytest.raises(ConfigError, match="tape .* does not exist"):
        TapeReader(tmp_path / "two")


def test_a_tape_cannot_be_recorded_twice_at_the_same_time(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        tape.write(note(1), UP)
        with pytest.raises(OSError, match="another process is recording this tape"):
            TapeWriter(tmp_path / "one")
        tape.write(note(2), UP)
    assert numbers(tmp_path / "one") == [1, 2]


def test_a_tape_of_20_megabytes_is_read_with_less_than_2_megabytes_of_memory(
    tmp_path: Path,
) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        for n in range(2000):
            tape.write(note(n, 10_000), UP)
    place = tmp_path / "one.tape.jsonl"
    tracemalloc.start()
    count = sum(1 for _ in TapeReader(place))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2000
    assert place.stat().st_size > 20_000_000
    assert peak < 2_000_000


@pytest.mark.slow
def test_a_tape_line_of_300_mebibytes_is_skipped_and_not_kept_in_memory(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        tape.write(note(1), UP)
    place = tmp_path / "one.tape.jsonl"
    line = place.read_bytes()
    with place.open("ab") as file:
        file.truncate(300 << 20)  # a sparse file, whose zeros use no disk space
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line)
    tracemalloc.start()
    reader = TapeReader(place)
    assert [decode_entry(entry)["params"]["n"] for entry in reader] == [1, 1]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.skipped == 1
    assert peak < 200 << 20


WRITE = """
import sys
from fairlead.recording.tape import TapeWriter
from fairlead.protocol.envelope import Direction
tape = TapeWriter(sys.argv[1])
n = 0
while True:
    tape.write(b'{"jsonrpc":"2.0","method":"n","params":{"n":%d}}' % n, Direction.CLIENT_TO_SERVER)
    n += 1
    if n == 1000:
        print("going", flush=True)
"""


@pytest.mark.covers("GTW-10")
def test_a_killed_recorder_leaves_a_readable_tape(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(tmp_path / "one")], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == b"going\n"
        assert TapeReader(tmp_path / "one").info.status == "recording"
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    reader = TapeReader(tmp_path / "one")
    kept = [decode_entry(entry)["params"]["n"] for entry in reader]
    assert reader.info.status == "cut"
    assert kept == list(range(len(kept)))
    assert len(kept) >= 1000
    assert reader.skipped <= 1


FULL = """
import json, logging, sys
from pathlib import Path
from fairlead.recording.tape import TapeWriter
from fairlead.protocol.envelope import Direction
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
tape = TapeWriter(sys.argv[1])
for n in range(300):
    tape.write(
        b'{"jsonrpc":"2.0","method":"n","params":{"n":%d,"pad":"%b"}}' % (n, b"x" * (n % 50)),
        Direction.CLIENT_TO_SERVER,
    )
tape.close()
print(tape.info.lost, tape.info.entries)
"""


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


def test_messages_that_do_not_fit_on_the_disk_are_lost_and_reported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "one")],
        preexec_fn=limit_files,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lost, entries = map(int, done.stdout.split())
    assert entries == 300
    assert lost > 100
    assert done.stderr.count("could not be recorded") == 1
    reader = TapeReader(tmp_path / "one")
    assert len(list(reader)) == 300 - lost
    assert (reader.skipped, reader.info.lost, reader.info.status) == (0, lost, "complete")


def test_an_incompletely_written_line_is_removed_and_the_loss_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write
    with TapeWriter(tmp_path / "one") as tape:
        tape.write(note(1), UP)
        with monkeypatch.context() as patched:
            patched.setattr(
                "fairlead.recording.tape.writer.os.write", lambda file, data: write(file, data[:9])
            )
            tape.write(note(2), UP)
            tape.write(note(3), UP)
        tape.write(note(4), UP)
    assert numbers(tmp_path / "one") == [1, 4]
    reader = TapeReader(tmp_path / "one")
    assert (reader.info.lost, reader.info.entries) == (2, 4)
    assert caplog.messages == [
        f"{tmp_path / 'one.tape.jsonl'}: a message could not be recorded: no space left on the disk"
    ]


def test_a_companion_file_that_cannot_be_written_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TapeWriter(tmp_path / "one") as tape:
        tape.write(note(1), UP)
        before = sorted(path.name for path in tmp_path.iterdir())

        def fail(*args: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(Path, "replace", fail)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert numbers(tmp_path / "one") == [1]


def test_a_tape_entry_has_all_properties_of_its_message(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one", redactor=None) as tape:
        tape.write(note(1), UP, session="s")
        tape.write(
            note(2),
            Direction.SERVER_TO_CLIENT,
            session="s",
            related=5,
            server="red",
            transport={"type": "http"},
            did=["changed"],
            stopped=True,
        )
    first, second = read_tape(tmp_path / "one")
    assert (first.seq, first.dir, first.session, first.stopped) == (1, UP, "s", False)
    assert (first.related, first.server, first.transport, first.did) == (None, None, None, None)
    assert (second.seq, second.dir, second.related) == (2, Direction.SERVER_TO_CLIENT, 5)
    assert (second.server, second.transport) == ("red", {"type": "http"})
    assert (second.did, second.stopped) == (["changed"], True)
    assert 0 <= first.at <= second.at < 60


def test_messages_that_cannot_be_recorded_are_reported_once_a_minute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    virtual_time: VirtualTime,
) -> None:
    virtual_time.now = 5.0  # as if the machine had just started

    def full(file: int, data: bytes) -> int:
        raise OSError("the disk is full")

    with TapeWriter(tmp_path / "one") as tape:
        with monkeypatch.context() as patched:
            patched.setattr("fairlead.recording.tape.writer.os.write", full)
            for n, seconds in enumerate((0, 1, 59, 0.1, 60)):
                virtual_time.now += seconds
                tape.write(note(n), UP)
        tape.write(note(9), UP)
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        "a message could not be recorded: the disk is full",
        "4 messages could not be recorded: the disk is full",
    ]
    assert numbers(tmp_path / "one") == [9]


def test_a_tape_has_at_most_eight_parts(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one", max_bytes=100) as tape:
        for n in range(20):
            tape.write(note(n, size=100), UP)
    assert numbers(tmp_path / "one") == [0, *range(13, 20)]
