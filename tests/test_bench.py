"""Tests of the benchmarks: comparison of results between runtimes, and measured noise."""

import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.calls import Describe, Echo, Order, Work  # noqa: E402
from bench.cases import PLANS  # noqa: E402
from bench.child import Failed  # noqa: E402
from bench.equal_answers import difference, essence  # noqa: E402
from bench.gateways import GatewayCalls  # noqa: E402
from bench.measures import TEXT_ONLY, Effort, Serving, Structuring, warm_up  # noqa: E402
from bench.pool import Pool  # noqa: E402
from bench.posting import Posting  # noqa: E402
from bench.relaying import Relaying  # noqa: E402
from bench.report import summarize  # noqa: E402
from bench.requests import Era  # noqa: E402
from bench.rounds import AGAIN, OURS, Row, take_turns  # noqa: E402
from bench.runtimes import BARE, Runtime, comparing_commits, with_noise  # noqa: E402

_PLACED = (Serving, Posting, Relaying, GatewayCalls)

_TEXT = {"content": [{"type": "text", "text": "hello"}]}
_EFFORT = Effort(rounds=1, spawns=1, seconds=0.001, warm_up=0.001, idle=0)

# The bare server, changed to return no structured content.
_TEXT_ONLY = """
import sys
sys.path.insert(0, {servers!r})
import bare, uvloop
bare.as_result = lambda value: bare.CallResult([bare.Text(value)])
uvloop.run(bare.main())
"""


def _answer(number: int, result: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "result": result})


def test_benchmark_results_that_differ_in_optional_members_are_equal() -> None:
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
def test_benchmark_results_that_differ_are_reported_with_their_runtimes(
    other: dict[str, object],
) -> None:
    answers = {"one": _answer(1, _TEXT), "two": _answer(1, other), "three": _answer(3, _TEXT)}
    report = difference(answers)
    assert report is not None
    assert "one, three: " in report
    assert "; two: " in report


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"id":1,"error":{}}', b'{"result":{}}'])
def test_a_benchmark_response_without_a_result_fails(answer: bytes) -> None:
    with pytest.raises(Failed, match="not the result of a call"):
        essence(answer)


def test_a_benchmark_row_with_different_results_fails_for_all_runtimes() -> None:
    script = _TEXT_ONLY.format(servers=str(ROOT / "bench" / "servers"))
    runtimes = [
        Runtime(name="plain", version="", servers={Era.HANDSHAKE: BARE}),
        Runtime(name="less", version="", servers={Era.HANDSHAKE: (sys.executable, "-c", script)}),
    ]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Serving()(row, runtimes, _EFFORT, pool)
    assert row.samples == {}
    assert row.failed.keys() == {"plain", "less"}
    assert "answers to the same call differ" in row.failed["plain"]


def test_a_benchmark_row_with_equal_results_has_samples_of_all_runtimes() -> None:
    runtimes = [Runtime(name=n, version="", servers={Era.HANDSHAKE: BARE}) for n in ("a", "b")]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Serving()(row, runtimes, _EFFORT, pool)
    assert row.failed == {}
    assert row.samples.keys() == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("work", [Echo(), Order(), Describe()], ids=lambda w: type(w).__name__)
def test_the_benchmark_servers_of_the_python_runtimes_give_equal_results(work: Work) -> None:
    servers = ROOT / "bench" / "servers"
    runtimes = [
        Runtime(
            name=name,
            version="",
            servers={Era.HANDSHAKE: (sys.executable, str(servers / file))},
        )
        for name, file in {
            "fairlead": "fairlead_server.py",
            "mcp": "mcp_server.py",
            "fastmcp": "fastmcp_server.py",
            "bare": "bare.py",
        }.items()
    ]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Serving(work=work)(row, runtimes, _EFFORT, pool)
    assert row.failed == {}


def test_the_cost_of_structured_content_is_measured_with_servers_of_fairlead_only() -> None:
    command = (sys.executable, str(ROOT / "bench" / "servers" / "fairlead_server.py"))
    runtimes = [
        Runtime(name=OURS, version="", servers={Era.HANDSHAKE: command}, build=True),
        Runtime(name="bare", version="", servers={Era.HANDSHAKE: BARE}),
    ]
    row = Row("case", "label", "calls/s")
    with Pool() as pool:
        Structuring()(row, runtimes, _EFFORT, pool)
    assert row.failed == {}
    assert row.samples.keys() == {OURS, TEXT_ONLY}
    assert row.notes[OURS]["answer_bytes"] > row.notes[TEXT_ONLY]["answer_bytes"]


def test_a_slow_first_call_does_not_reduce_the_burst_size() -> None:
    rates = iter([2.0])  # calls per second of the first burst, in which the process starts
    sizes: list[int] = []

    def burst(calls: int) -> float:
        sizes.append(calls)
        return next(rates, 10_000.0)

    effort = Effort(rounds=1, spawns=1, seconds=0.1, warm_up=0.01, idle=0)
    assert warm_up(burst, range(2, 50_000), effort, Runtime(name="a", version=""), 0) == 1000
    assert sizes == [2, 2, 8, 32, 128, 512]


def test_a_slow_runtime_has_the_smallest_burst_size() -> None:
    effort = Effort(rounds=1, spawns=1, seconds=0.1, warm_up=0.01, idle=0)
    slow = Runtime(name="a", version="")
    assert warm_up(lambda _: 10.0, range(128, 50_000), effort, slow, 5_000) == 128


def test_benchmark_rounds_stop_when_the_time_for_a_row_has_passed() -> None:
    row = Row("case", "label", "calls/s")
    take_turns(row, {"a": lambda: 1.0, "b": lambda: 2.0}, rounds=9, seconds=0)
    assert row.samples == {"a": [1.0] * 3, "b": [2.0] * 3}


def test_noise_is_the_ratio_between_two_benchmark_runs_of_one_build() -> None:
    row = Row("case", "label", "calls/s")
    row.samples = {OURS: [10.0] * 3, AGAIN: [8.0] * 3, "mcp": [5.0] * 3}
    facts = summarize([row], [Runtime(name=OURS, version="1")], {}, load=0, quick=False)
    [written] = facts["rows"]
    assert written["times_better"] == {"mcp": {"median": 2.0, "low": 2.0, "high": 2.0}}
    assert written["noise"] == {"median": 1.25, "low": 1.25, "high": 1.25}
    assert facts["noise"] == {"median_percent": 25.0, "most_percent": 25.0, "rows": 1}
    assert facts["runtimes"] == {OURS: "1"}


def test_the_noise_of_values_near_zero_is_their_difference() -> None:
    row = Row("case", "label", "µs")
    row.samples = {OURS: [0.5, 1.0, -0.25], AGAIN: [-0.5, 1.5, -0.25]}
    facts = summarize([row], [], {}, load=0, quick=False)
    assert facts["rows"][0]["noise"] == {"difference": 0.5}
    assert facts["noise"] is None


def test_a_second_run_of_a_build_is_not_compared_as_another_commit() -> None:
    ours = Runtime(name=OURS, version="1", build=True)
    runtimes = with_noise([ours, Runtime(name="mcp", version="2"), Runtime(name="x", version="3")])
    assert [runtime.name for runtime in runtimes] == [OURS, "mcp", AGAIN, "x"]
    assert not comparing_commits(runtimes)
    assert comparing_commits([*runtimes, Runtime(name="abc123", version="", build=True)])


def test_benchmark_rows_have_unique_cases_and_labels() -> None:
    places = [(plan.case, plan.label) for plan in PLANS]
    assert places == list(dict.fromkeys(places))


@pytest.mark.parametrize("case", ["stdio-server-1", "http-server-1", "relay", "gateway"])
def test_servers_relays_and_gateway_are_measured_with_and_without_pinned_cores(case: str) -> None:
    measures = [plan.measure for plan in PLANS if plan.case == case]
    kinds = {m.one_cpu for m in measures if isinstance(m, _PLACED) and m.window == 1}
    assert kinds == {True, False}
