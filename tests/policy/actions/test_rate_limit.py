"""A rate limit, one exchange at a time."""

from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.policy.actions import RateLimit
from fairlead.policy.actions import rate_limit as rate_module
from tests.support.single_exchange import DOWN, Clock, exchange


def allowed(limit: RateLimit, asked: Exchange) -> bool:
    try:
        limit.before(asked)
    except RpcError:
        return False
    return True


@pytest.mark.parametrize(
    "settings",
    [{"rate": 0}, {"rate": -1}, {"rate": 1, "burst": -1}, {"rate": 1, "burst": 0.5}],
)
def test_rates_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`rate` is above 0"):
        RateLimit(**settings)
    with pytest.raises(ValueError, match="at least one"):
        RateLimit(1, per=[])


def test_tokens_come_back_with_time() -> None:
    clock = Clock()
    limit = RateLimit(2, 3, clock=clock)
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]
    clock.now += 0.5
    assert [allowed(limit, exchange()) for _ in range(2)] == [True, False]
    clock.now += 60
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("rate", "burst"), [(0.5, 1), (1, 1), (3, 3)])
def test_without_a_burst_one_second_is_saved_up(rate: float, burst: int) -> None:
    limit = RateLimit(rate, clock=Clock())
    assert [allowed(limit, exchange()) for _ in range(burst + 1)] == [True] * burst + [False]


def test_a_refusal_says_how_long_to_wait() -> None:
    clock = Clock()
    limit = RateLimit(2, 1, clock=clock)
    asked = exchange()
    limit.before(asked)
    clock.now += 0.1
    with pytest.raises(RpcError, match=r"Too many requests: try again in 0\.4 s") as limited:
        limit.before(asked)
    assert limited.value.data == {"source": "proxy", "retryAfter": 0.4}
    assert asked.did == ["limited"]
    clock.now += 0.4
    assert allowed(limit, asked)


def test_only_requests_to_the_server_of_the_methods_count() -> None:
    limit = RateLimit(1, clock=Clock())
    assert allowed(limit, exchange())
    for other in (
        exchange("tools/list"),
        exchange(way=DOWN),
        exchange(request=False),
        exchange(principal="ada"),
    ):
        assert allowed(limit, other)
    assert not allowed(limit, exchange())
    everything = RateLimit(1, methods=(), clock=Clock())
    assert [allowed(everything, exchange(method)) for method in ("a", "b")] == [True, False]


@pytest.mark.parametrize(
    ("per", "one", "same", "other"),
    [
        ("all", {}, {"principal": "ada"}, None),
        ("identity", {"principal": "ada"}, {"principal": "ada"}, {"principal": "bob"}),
        ("tool", {"params": {"name": "a"}}, {"params": {"name": "a"}}, {"params": {"name": "b"}}),
        ("client", {"address": "1.2.3.4:5"}, {"address": "1.2.3.4:6"}, {"address": "1.2.3.5:5"}),
        ("client", {"address": "[::1]:5"}, {"address": "[::1]:6"}, {"address": "[1:2:3:4::1]:5"}),
        ("client", {"address": "::1"}, {"address": "::1"}, {"address": "1:2:3:4::1"}),
        ("client", {"info": b"1"}, {"info": b"2"}, None),
        (
            "client",
            {"info": b"1", "stateless": False},
            {"info": b"1", "stateless": False},
            {"info": b"2", "stateless": False},
        ),
        ("session", {"principal": "ada"}, {"principal": "ada"}, {"principal": "bob"}),
        (
            ["identity", "client"],
            {"principal": "ada", "address": "1.2.3.4:5"},
            {"principal": "ada", "address": "1.2.3.4:6"},
            {"principal": "ada", "address": "1.2.3.5:6"},
        ),
    ],
)
def test_calls_are_counted_for_each_of_something(
    per: Any, one: dict[str, Any], same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    limit = RateLimit(1, per=per, clock=Clock())
    assert allowed(limit, exchange(**one))
    assert not allowed(limit, exchange(**same))
    if other is not None:
        assert allowed(limit, exchange(**other))


def test_the_oldest_buckets_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_module, "FEW", 1)
    monkeypatch.setattr(rate_module, "MAX_BUCKETS", 2)
    limit = RateLimit(1, 2, clock=Clock())
    for who in ("a", "b", "a", "c"):
        assert allowed(limit, exchange(principal=who))
    assert len(limit._full_at) == 2
    assert not allowed(limit, exchange(principal="a"))  # used last, so it was kept
    assert [allowed(limit, exchange(principal="b")) for _ in range(3)] == [True, True, False]
