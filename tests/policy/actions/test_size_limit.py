"""Tests of limits on the size of messages."""

from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.policy.actions.size_limit import SizeLimit
from tests.support.single_exchange import exchange

PARAMS = {"name": "x"}  # 13 bytes


@pytest.mark.parametrize(("limit", "passes"), [(0, True), (13, True), (12, False)])
def test_a_message_with_params_over_the_size_limit_is_refused(limit: int, passes: bool) -> None:
    asked = exchange(params=PARAMS)
    action = SizeLimit(params=limit)
    if passes:
        assert action.before(asked) == (asked, None)
        return
    with pytest.raises(RpcError) as refused:
        action.before(asked)
    assert (refused.value.code, refused.value.message) == (
        -32600,
        "params of 13 bytes exceed the limit of 12 bytes",
    )
    assert asked.did == ["blocked: params of 13 bytes exceed the limit of 12 bytes"]


def test_a_message_without_params_is_never_too_large() -> None:
    asked = exchange("ping")
    assert SizeLimit(params=1).before(asked) == (asked, None)


@pytest.mark.parametrize(
    ("outcome", "passes"),
    [
        (b"{}", True),
        (b"{ }", False),
        (Raw(b"{}"), True),
        (Raw(b"{ }"), False),
        (None, True),
        (RpcError(-1, "long" * 10), True),
    ],
)
def test_a_result_over_the_size_limit_is_refused(outcome: Any, passes: bool) -> None:
    asked = exchange(params=PARAMS)
    _, after = SizeLimit(result=2).before(asked)
    assert after is not None
    ended = after(outcome)
    if passes:
        assert ended is outcome
    else:
        assert isinstance(ended, RpcError)
        assert (ended.code, ended.message) == (
            -32603,
            "a result of 3 bytes exceeds the limit of 2 bytes",
        )


@pytest.mark.parametrize("settings", [{"params": -1}, {"result": -1}])
def test_negative_size_limits_are_rejected(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="^`params` and `result` must be at least 0, not "):
        SizeLimit(**settings)
