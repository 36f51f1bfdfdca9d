"""Tests of metrics with limited labels, as data and as Prometheus text."""

import re
import time

import pytest

from fairlead.observe.metrics import BUCKETS, OTHER, Metrics

UP = "client_to_server"


def call(
    metrics: Metrics, method: str, name: str | None, seconds: float, error: str | None
) -> None:
    metrics.ended(metrics.began(UP, method, name), seconds, error)


@pytest.mark.covers("OBS-06")
def test_calls_errors_and_durations_are_counted_per_tool_and_method() -> None:
    metrics = Metrics()
    for seconds in (0.002, 0.002, 0.02, 100.0):
        call(metrics, "tools/call", "add", seconds, None)
    call(metrics, "tools/call", "add", 0.002, "-32602")
    call(metrics, "tools/list", None, 0.0001, None)
    metrics.began(UP, "tools/call", "slow")
    metrics.count("reconnects", "notes")
    metrics.count("malformed", "notes", 3)
    metrics.count("unknown_ids", "notes", 2)
    now = metrics.snapshot()
    add, slow, listed = now["calls"]
    assert (add["name"], add["calls"], add["errors"]) == ("add", 5, {"-32602": 1})
    assert add["seconds"] == pytest.approx(100.026)
    assert (add["p50"], add["p95"]) == (0.0025, None)
    assert (slow["name"], slow["pending"], slow["calls"]) == ("slow", 1, 0)
    assert (listed["name"], listed["p95"]) == (None, 0.001)
    assert now["pending"] == 1
    assert (now["reconnects"], now["malformed"], now["unknown_ids"]) == (
        {"notes": 1},
        {"notes": 3},
        {"notes": 2},
    )


@pytest.mark.covers("OBS-06")
def test_prometheus_text_has_one_line_per_value() -> None:
    metrics = Metrics()
    call(metrics, "tools/call", 'a"b\\c\nd', 0.003, "tool")
    metrics.count("malformed", "notes")
    metrics.gauge("clients", "Connections of clients.", lambda: 3)
    text = metrics.prometheus()
    labels = f'direction="{UP}",method="tools/call",name="a\\"b\\\\c\\nd"'
    assert f"fairlead_calls_total{{{labels}}} 1\n" in text
    assert f'fairlead_errors_total{{{labels},error="tool"}} 1\n' in text
    assert f'fairlead_call_seconds_bucket{{{labels},le="0.0025"}} 0\n' in text
    assert f'fairlead_call_seconds_bucket{{{labels},le="0.005"}} 1\n' in text
    assert f'fairlead_call_seconds_bucket{{{labels},le="+Inf"}} 1\n' in text
    assert f"fairlead_call_seconds_count{{{labels}}} 1\n" in text
    assert 'fairlead_malformed_total{server="notes"} 1\n' in text
    assert '=""' not in text
    assert "fairlead_clients 3\n" in text
    line = re.compile(r"(# (HELP|TYPE) .+|fairlead_\w+(\{.*\})? [0-9.e+-]+)")
    lines = text.splitlines()
    assert [one for one in lines if not line.fullmatch(one)] == []
    series = [one.rpartition(" ")[0] for one in lines if not one.startswith("#")]
    assert len(series) == len(set(series))
    assert len([one for one in lines if "_bucket{" in one]) == len(BUCKETS) + 1


def test_series_without_a_name_or_server_have_no_empty_labels() -> None:
    metrics = Metrics()
    call(metrics, "tools/list", None, 0.003, None)
    text = metrics.prometheus()
    assert f'fairlead_calls_total{{direction="{UP}",method="tools/list"}} 1\n' in text
    assert "# TYPE fairlead_reconnects_total counter\n" in text
    assert '=""' not in text


def test_counters_of_a_known_server_begin_at_zero() -> None:
    metrics = Metrics()
    metrics.follow("reconnects", "notes", object(), 0)
    assert 'fairlead_reconnects_total{server="notes"} 0\n' in metrics.prometheus()


def test_refused_requests_are_counted_by_status_and_reason() -> None:
    metrics = Metrics()
    metrics.refused(401, "missing_token")
    metrics.refused(401, "missing_token")
    metrics.refused(403, "host")
    text = metrics.prometheus()
    assert 'fairlead_refused_total{status="401",reason="missing_token"} 2\n' in text
    assert 'fairlead_refused_total{status="403",reason="host"} 1\n' in text
    assert metrics.snapshot()["refused"] == [
        {"status": 401, "reason": "missing_token", "requests": 2},
        {"status": 403, "reason": "host", "requests": 1},
    ]


def test_a_labelled_gauge_has_one_value_per_label() -> None:
    metrics = Metrics()
    metrics.labelled_gauge("server_up", "1 if up.", "server", lambda: {"b": 0, "a": 1})
    up = 'fairlead_server_up{server="a"} 1\nfairlead_server_up{server="b"} 0\n'
    assert f"# TYPE fairlead_server_up gauge\n{up}" in metrics.prometheus()
    assert metrics.snapshot()["gauges"]["server_up"] == {"a": 1, "b": 0}


def test_large_numbers_in_metrics_are_exact() -> None:
    metrics = Metrics()
    metrics.count("malformed", "notes", 12_345_678)
    metrics.gauge("bytes", "How many.", lambda: 1_234_567_891)
    metrics.gauge("share", "How much.", lambda: 0.1234567891)
    text = metrics.prometheus()
    assert 'fairlead_malformed_total{server="notes"} 12345678\n' in text
    assert "fairlead_bytes 1234567891\n" in text
    assert "fairlead_share 0.1234567891\n" in text


def test_the_number_of_metric_series_is_limited() -> None:
    metrics = Metrics(max_series=10)
    for number in range(1000):
        call(metrics, "tools/call", f"tool{number}", 0.001, f"kind{number}")
        metrics.count("malformed", f"server{number}")
    calls = metrics.snapshot()["calls"]
    assert len(calls) <= 12
    assert sum(one["calls"] for one in calls) == 1000
    [other] = [one for one in calls if one["name"] == OTHER]
    assert other["calls"] >= 990
    assert len(other["errors"]) <= 21
    assert len(metrics.snapshot()["malformed"]) <= 11
    assert metrics.prometheus().count("\n") < 500


def test_series_with_only_rejected_calls_are_merged_at_the_limit() -> None:
    metrics = Metrics(max_series=10)
    call(metrics, "tools/call", "failing", 0.001, "tool")
    under_way = metrics.began(UP, "tools/call", "slow")
    for number in range(100):
        call(metrics, "tools/call", f"nonsense{number}", 0.001, "-32602")
    for number in range(5):
        call(metrics, "tools/call", f"tool{number}", 0.001, None)
    metrics.ended(under_way, 1.0)
    found = {one["name"]: one for one in metrics.snapshot()["calls"]}
    assert {"failing", "slow", *(f"tool{number}" for number in range(5))} <= found.keys()
    assert len(found) <= 11
    assert sum(one["errors"].get("-32602", 0) for one in found.values()) == 100
    assert sum(one["calls"] for one in found.values()) == 107


def test_counting_calls_stays_fast_beyond_the_limit_of_series() -> None:
    def cost(tools: int) -> float:
        metrics, names = Metrics(max_series=500), [f"tool{number}" for number in range(tools)]
        for name in names:
            call(metrics, "tools/call", name, 0.001, None)
        tried = []
        for _ in range(5):
            began = time.process_time()
            for name in names:
                call(metrics, "tools/call", name, 0.001, None)
            tried.append((time.process_time() - began) / tools)
        return min(tried)

    assert cost(600) < 10 * cost(400)  # an earlier version was eighty times slower


def test_a_counter_does_not_decrease_if_its_source_is_replaced() -> None:
    metrics, first, second = Metrics(), object(), object()
    metrics.follow("malformed", "notes", first, 2)
    metrics.follow("malformed", "notes", first, 5)
    metrics.follow("malformed", "notes", second, 1)
    assert metrics.snapshot()["malformed"] == {"notes": 6}


def test_metrics_omit_names_that_look_like_secrets() -> None:
    metrics = Metrics()
    call(metrics, "tools/call", "Bearer abcdef0123456789abcdef", 0.001, None)
    call(metrics, "tools/call", "Bearer 9876543210fedcba987654", 0.001, None)
    shown = metrics.prometheus() + str(metrics.snapshot())
    assert "abcdef0123456789" not in shown
    assert "9876543210" not in shown
    [one] = metrics.snapshot()["calls"]
    assert one["calls"] == 2


def test_metric_labels_are_truncated_at_a_hundred_characters() -> None:
    metrics = Metrics()
    call(metrics, "m" * 101, "n" * 101, 0.1, None)
    (one,) = metrics.snapshot()["calls"]
    assert (len(one["method"]), len(one["name"])) == (100, 100)
    assert metrics.began(UP, "m" * 101, "n" * 102) is metrics.began(UP, "m" * 102, "n" * 101)


def test_twenty_kinds_of_failures_are_counted_separately() -> None:
    metrics = Metrics()
    for number in range(22):
        call(metrics, "tools/call", "x", 0.1, str(number))
    call(metrics, "tools/call", "x", 0.1, "3")
    (one,) = metrics.snapshot()["calls"]
    assert len(one["errors"]) == 21
    assert (one["errors"][OTHER], one["errors"]["3"]) == (2, 2)


@pytest.mark.parametrize(
    ("seconds", "bound"), [(0.001, 0.001), (0.0011, 0.0025), (60.0, 60.0), (60.1, None)]
)
def test_a_duration_is_counted_in_the_smallest_bucket_that_contains_it(
    seconds: float, bound: float | None
) -> None:
    metrics = Metrics()
    call(metrics, "tools/call", "x", seconds, None)
    (one,) = metrics.snapshot()["calls"]
    assert (one["p50"], one["p95"], one["mean"]) == (bound, bound, seconds)


def test_servers_beyond_the_limit_are_counted_together() -> None:
    metrics = Metrics(max_series=2)
    for server in ("a", "b", "c", "d", "a"):
        metrics.count("reconnects", server)
    assert metrics.snapshot()["reconnects"] == {"a": 2, "b": 1, OTHER: 2}


def test_gauges_are_read_when_metrics_are_exported() -> None:
    metrics = Metrics(clock=lambda: 5.0)
    metrics.gauge("sessions", "Open sessions.", lambda: 3)
    now = metrics.snapshot()
    assert (now["gauges"], now["since"], now["pending"]) == ({"sessions": 3}, 5.0, 0)
    text = metrics.prometheus()
    assert "# HELP fairlead_sessions Open sessions.\n# TYPE fairlead_sessions gauge\n" in text
    assert text.endswith("fairlead_sessions 3\n")
