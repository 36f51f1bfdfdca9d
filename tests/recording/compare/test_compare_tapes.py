"""Tests of comparing tapes on disk."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.protocol.envelope import Direction
from fairlead.recording.compare import compare_tapes as comparing
from fairlead.recording.compare.compare_tapes import TapeDifference, iter_differences
from fairlead.recording.compare.json_diff import JsonDifference, read_path
from fairlead.recording.tape import TapeReader, TapeWriter

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
Said = tuple[str, int, int]  # a call: its tool, argument and result

SAID = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 2)), max_size=8)


def write(place: Path, said: list[Said], first: int = 1) -> TapeReader:
    """Write a tape whose ids and tokens start at `first`."""
    with TapeWriter(place) as tape:

        def line(direction: Direction, **message: Any) -> None:
            tape.write(json.dumps({"jsonrpc": "2.0", **message}).encode(), direction, session="s1")

        for number, (tool, argument, answer) in enumerate(said, first):
            params = {"name": tool, "arguments": {"x": argument}}
            meta = {"_meta": {"progressToken": number}}
            line(UP, id=number, method="tools/call", params={**params, **meta})
            if answer == 2:
                reason = {"requestId": number, "reason": "enough"}
                line(UP, method="notifications/cancelled", params=reason)
                continue
            told = {"progressToken": number, "progress": 1}
            line(DOWN, method="notifications/progress", params=told)
            line(DOWN, id=number, result={"content": [{"type": "text", "text": str(answer)}]})
    return TapeReader(place)


def plain(found: list[TapeDifference]) -> list[tuple[int | None, int | None, list[JsonDifference]]]:
    return [
        (
            None if one.first is None else one.first.seq,
            None if one.second is None else one.second.seq,
            one.differences,
        )
        for one in found
    ]


@given(SAID, SAID)
def test_a_comparison_of_tapes_finds_only_calls_that_differ(
    tmp_path_factory: Any, first: list[Said], second: list[Said]
) -> None:
    folder = tmp_path_factory.mktemp("tapes")
    one, two = write(folder / "one", first), write(folder / "two", second, 50)
    found = list(iter_differences(one, two))
    assert bool(found) == (first != second)


def test_a_comparison_distinguishes_added_and_changed_entries(tmp_path: Path) -> None:
    said: list[Said] = [("a", n % 3, n % 2) for n in range(50)]
    one = write(tmp_path / "one", said)
    other = write(
        tmp_path / "two", [*said[:20], ("b", 1, 1), *said[20:30], ("a", 0, 7), *said[31:]]
    )
    found = plain(list(iter_differences(one, other)))
    assert found[:3] == [(None, 61, []), (None, 62, []), (None, 63, [])]
    path = "result.content.0.text"
    assert found[3:] == [(93, 96, [JsonDifference(path, "0", "7")])]
    assert (
        list(iter_differences(one, other, [read_path("**")])) != []
    )  # missing entries cannot be ignored


def test_long_tapes_are_compared_line_by_line(tmp_path: Path, monkeypatch: Any) -> None:
    one = write(tmp_path / "one", [("a", 1, 1)] * 10)
    two = write(tmp_path / "two", [*[("a", 1, 1)] * 9, ("a", 1, 0)])
    expected = plain(list(iter_differences(one, two)))
    assert len(expected) == 1
    monkeypatch.setattr(comparing, "INDEXED", 5)
    assert plain(list(iter_differences(one, two))) == expected
