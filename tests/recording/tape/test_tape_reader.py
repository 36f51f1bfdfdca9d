"""Tests of the memory use and the limits of the tape index."""

import json
import tracemalloc
from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.recording.compare.compare_tapes import iter_differences
from fairlead.recording.replay import script as cues
from fairlead.recording.tape.integrity import integrity_warnings
from fairlead.recording.tape.tape_reader import TapeReader

COUNT = 8_000


def write_tape(base: Path, *, count: int = COUNT, changed: int = 0, entries: int = 0) -> TapeReader:
    with Path(f"{base}.tape.jsonl").open("w") as file:
        for n in range(1, count // 2 + 1):
            asked = {"name": "add", "arguments": {"a": n}, "_meta": {"progressToken": n}}
            for way, message in (
                ("client_to_server", {"id": n, "method": "tools/call", "params": asked}),
                ("server_to_client", {"id": n, "result": {"content": [], "odd": n == changed}}),
            ):
                seq = 2 * n - (way == "client_to_server")
                line = {"seq": seq, "at": n / 10, "dir": way, "session": "s1", "message": message}
                file.write(json.dumps(line) + "\n")
    about = {"status": "complete", "entries": entries or count, "name": base.name}
    Path(f"{base}.tape.json").write_text(json.dumps(about))
    return TapeReader(base)


@pytest.mark.slow
@pytest.mark.covers("GTW-10")
def test_a_million_messages_are_compared_in_little_memory(tmp_path: Path) -> None:
    one = write_tape(tmp_path / "one")
    two = write_tape(tmp_path / "two", changed=3_000)
    tracemalloc.start()
    try:
        found = list(iter_differences(one, two))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [change] = found
    assert [(each.path, each.recorded, each.given) for each in change.differences] == [
        ("result.odd", False, True)
    ]
    # The limit covers both tapes, with a margin for buffers.
    assert peak < 2 * COUNT * 80 + (1 << 20)


def test_a_tape_that_is_too_long_to_replay_is_rejected_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cues, "MOST", 10)
    long = write_tape(tmp_path / "long", count=12)
    with pytest.raises(ConfigError, match="more than 10 messages"):
        cues.load_script(long)
    assert long.read == 0
    lying = write_tape(tmp_path / "lying", count=2, entries=5_000_000)
    assert len(cues.load_script(lying)) == 1


def test_progress_is_assigned_to_its_pending_request_after_many_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cues, "TRACKED", 3)
    said: list[tuple[str, dict[str, object]]] = []

    def ask(n: int) -> None:
        params = {"name": "work", "_meta": {"progressToken": f"t{n}"}}
        said.append(("client_to_server", {"id": n, "method": "tools/call", "params": params}))

    def tell(n: int) -> None:
        params = {"progressToken": f"t{n}", "progress": 1}
        said.append(("server_to_client", {"method": "notifications/progress", "params": params}))

    ask(0)  # never answered, so the request stays pending
    for n in range(1, 40):
        ask(n)
        said.append(("server_to_client", {"id": n, "result": {}}))
    tell(0)
    tell(38)  # late progress for a recent request
    place = tmp_path / "long.tape.jsonl"
    with place.open("w") as file:
        for seq, (way, message) in enumerate(said, 1):
            line = {"seq": seq, "at": 0, "dir": way, "session": "s1", "message": message}
            file.write(json.dumps(line) + "\n")
    found = cues.load_script(place)
    told = {n: [step.kind for step in cue.steps] for n, cue in enumerate(found)}
    assert told[0] == ["tell"]
    assert told[38] == ["answer", "tell"]
    assert [told[n] for n in (*range(1, 38), 39)] == [["answer"]] * 38


def test_the_request_index_drops_requests_that_were_answered_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cues, "TRACKED", 100)
    tape = write_tape(tmp_path / "one")
    tracemalloc.start()
    try:
        found = cues.load_script(tape)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == COUNT // 2
    assert peak - held < COUNT * 20 + (300 << 10), "memory beyond the read buffer was allocated"


def write_numbers(base: Path, *numbers: int) -> TapeReader:
    """Write a tape whose entries have these sequence numbers."""
    message = {"jsonrpc": "2.0", "method": "notifications/x"}
    lines = (
        {"seq": seq, "at": 0.0, "dir": "client_to_server", "message": message} for seq in numbers
    )
    Path(f"{base}.tape.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    about = {"status": "complete", "entries": len(numbers), "name": base.name}
    Path(f"{base}.tape.json").write_text(json.dumps(about))
    return TapeReader(base)


@pytest.mark.parametrize(
    ("numbers", "warnings"),
    [
        ((1, 2, 5), []),
        ((1, 2, 2, 2, 3), ["2 duplicate sequence numbers"]),
        (
            (1, 3, 2, 4),
            ["the sequence numbers decrease in 1 place: the order of the lines is used"],
        ),
        (
            (4, 4, 1, 3, 2),
            [
                "1 duplicate sequence number",
                "the sequence numbers decrease in 2 places: the order of the lines is used",
            ],
        ),
    ],
)
def test_duplicate_and_decreasing_sequence_numbers_are_counted_separately(
    tmp_path: Path, numbers: tuple[int, ...], warnings: list[str]
) -> None:
    tape = write_numbers(tmp_path / "odd", *numbers)
    for _ in range(2):  # the counters restart with each iteration
        assert [entry.seq for entry in tape] == list(numbers)
        assert integrity_warnings(tape) == warnings
    assert (tape.read, tape.whole) == (len(numbers), True)
