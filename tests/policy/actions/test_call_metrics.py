"""Tests of call metrics by direction, method, name and outcome."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import ChannelClosed, RpcError
from fairlead.observe.metrics import Metrics
from fairlead.policy.actions.call_metrics import Measuring
from tests.support.single_exchange import exchange


def counted(outcome: Any, method: str = "tools/call", params: Any = None) -> dict[str, Any]:
    metrics = Metrics()
    asked = exchange(method, {"name": "x"} if params is None else params)
    same, after = Measuring(metrics).before(asked)
    assert same is asked
    assert after is not None
    assert after(outcome) is outcome
    (series,) = metrics.snapshot()["calls"]
    found: dict[str, Any] = series
    return found


@pytest.mark.parametrize(
    ("outcome", "errors"),
    [
        (b"{}", {}),
        (None, {}),
        (b'{"isError":true}', {"tool": 1}),
        (RpcError(-32602, "no"), {"-32602": 1}),
        (ChannelClosed(), {"lost": 1}),
        (asyncio.CancelledError(), {"cancelled": 1}),
    ],
    ids=str,
)
def test_failed_calls_are_counted_by_kind_of_failure(outcome: Any, errors: dict[str, int]) -> None:
    assert counted(outcome)["errors"] == errors


def test_the_is_error_member_counts_as_a_failure_only_in_results_of_tool_calls() -> None:
    assert counted(b'{"isError":true}', "prompts/get")["errors"] == {}


@pytest.mark.parametrize(
    ("method", "params", "shown", "name"),
    [
        ("tools/call", {"name": "x"}, "tools/call", "x"),
        ("prompts/get", {"name": "x"}, "prompts/get", "x"),
        ("resources/read", {"uri": "file:///secret"}, "resources/read", ""),
        ("made/up", {"name": "x"}, "other", ""),
    ],
)
def test_only_tools_and_prompts_are_counted_by_name(
    method: str, params: Any, shown: str, name: str
) -> None:
    series = counted(b"{}", method, params)
    assert (series["method"], series.get("name") or "") == (shown, name)


def test_notifications_do_not_count_as_calls() -> None:
    metrics = Metrics()
    told = exchange("notifications/x", request=False)
    assert Measuring(metrics).before(told) == (told, None)
    assert metrics.snapshot()["calls"] == []
