"""The benchmarks compare only servers that give the same answers."""

import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.child import Failed  # noqa: E402
from bench.equal_answers import difference, essence  # noqa: E402
from bench.measures import Effort, Serving  # noqa: E402
from bench.pool import Pool  # noqa: E402
from bench.requests import Era  # noqa: E402
from bench.rounds import Row  # noqa: E402
from bench.runtimes import BARE, Runtime  # noqa: E402

_TEXT = {"content": [{"type": "text", "text": "hello"}]}
_EFFORT = Effort(rounds=1, spawns=1, seconds=0.001, warm_up=0.001, idle=0)

# The bare server, but every result is structured as well.
_STRUCTURED = """
import sys
sys.path.insert(0, {servers!r})
import bare, uvloop
bare.as_result = lambda value: bare.CallResult([bare.Text(value)], {{"result": value}})
uvloop.run(bare.main())
"""


def _answer(number: int, result: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "result": result})


def test_results_that_differ_in_free_members_are_equal() -> None:
    plain = _answer(1, _TEXT)
    full = _answer(2, {**_TEXT, "isError": False, "resultType": "complete", "_meta": {"a": 1}})
    assert difference({"one": plain, "two": full}) is None


def test_text_that_repeats_a_structured_result_may_be_indented() -> None:
    value = {"size": 2}
    answers = {
        name: _answer(1, {"content": [{"type": "text", "text": text}], "structuredContent": value})
        for name, text in {"one": '{"size":2}', "two": '{\n  "size": 2\n}'}.items()
    }
    assert difference(answers) is None


@pytest.mark.parametrize(
    "other",
    [
        {"content": [{"type": "text", "text": "hullo"}]},
        {**_TEXT, "isError": True},
        {"content": []},
        {**_TEXT, "extra": 1},
    ],
)
def test_results_that_differ_are_reported_with_their_runtimes(other: dict[str, object]) -> None:
    answers = {"one": _answer(1, _TEXT), "two": _answer(1, other), "three": _answer(3, _TEXT)}
    report = difference(answers)
    assert report is not None
    assert "one, three: " in report
    assert "; two: " in report


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"id":1,"error":{}}', b'{"result":{}}'])
def test_an_answer_without_a_result_fails(answer: bytes) -> None:
    with pytest.raises(Failed, match="not the result of a call"):
        essence(answer)


def test_a_row_with_unequal_answers_fails_for_all() -> None:
    script = _STRUCTURED.format(servers=str(ROOT / "bench" / "servers"))
    runtimes = [
        Runtime(name="plain", version="", servers={Era.HANDSHAKE: BARE}),
        Runtime(name="more", version="", servers={Era.HANDSHAKE: (sys.executable, "-c", script)}),
    ]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Serving()(row, runtimes, _EFFORT, pool)
    assert row.samples == {}
    assert row.failed.keys() == {"plain", "more"}
    assert "answers to the same call differ" in row.failed["plain"]


def test_a_row_with_equal_answers_has_samples_of_all() -> None:
    runtimes = [Runtime(name=n, version="", servers={Era.HANDSHAKE: BARE}) for n in ("a", "b")]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Serving()(row, runtimes, _EFFORT, pool)
    assert row.failed == {}
    assert row.samples.keys() == {"a", "b"}
