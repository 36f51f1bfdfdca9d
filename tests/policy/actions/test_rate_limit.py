"""Tests of the rate limit action with single exchanges."""

from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.limits import RATE_BUCKETS
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
def test_an_invalid_rate_or_burst_and_an_empty_per_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`rate` must be greater than 0"):
        RateLimit(**settings)
    with pytest.raises(ValueError, match="`per` must not be empty"):
        RateLimit(1, per=[])


def test_tokens_are_restored_at_the_rate_up_to_the_burst() -> None:
    clock = Clock()
    limit = RateLimit(2, 3, clock=clock)
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]
    clock.now += 0.5
    assert [allowed(limit, exchange()) for _ in range(2)] == [True, False]
    clock.now += 60
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("rate", "burst"), [(0.5, 1), (1, 1), (3, 3)])
def test_the_default_burst_is_the_rate_and_at_least_one(rate: float, burst: int) -> None:
    limit = RateLimit(rate, clock=Clock())
    assert [allowed(limit, exchange()) for _ in range(burst + 1)] == [True] * burst + [False]


def test_a_rate_limit_error_contains_the_seconds_until_the_next_token() -> None:
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


def test_only_client_requests_of_the_configured_methods_use_tokens() -> None:
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
def test_each_client_identity_tool_or_session_has_its_own_rate_limit_bucket(
    per: Any, one: dict[str, Any], same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    limit = RateLimit(1, per=per, clock=Clock())
    assert allowed(limit, exchange(**one))
    assert not allowed(limit, exchange(**same))
    if other is not None:
        assert allowed(limit, exchange(**other))


def test_the_least_recently_used_rate_limit_buckets_are_evicted_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_module, "FEW", 1)
    monkeypatch.setattr(rate_module, "MAX_BUCKETS", 2)
    limit = RateLimit(1, 2, clock=Clock())
    for who in ("a", "b", "a", "c"):
        assert allowed(limit, exchange(principal=who))
    assert len(limit._full_at) == 2
    assert not allowed(limit, exchange(principal="a"))  # most recently used, so not evicted
    assert [allowed(limit, exchange(principal="b")) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "other", "shared"),
    [
        ("a", "A", True),
        ("a", "b", False),
        ("x" * 256, "y" * 256, False),
        ("x" * 257, "y" * 257, True),
        ("x" * 257, "x" * 256, False),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_names_longer_than_256_characters_share_a_bucket(
    method: str, name: str, other: str, shared: bool
) -> None:
    limit = RateLimit(1, 1, per="tool", methods=(method,), clock=Clock())
    assert allowed(limit, exchange(method, {"name": name}))
    assert allowed(limit, exchange(method, {"name": other})) is not shared


def test_a_rate_limit_with_several_keys_has_one_bucket_per_combination() -> None:
    limit = RateLimit(1, 1, per=["tool", "client", "identity"], clock=Clock())
    first = {"params": {"name": "a"}, "address": "10.0.0.1", "principal": "ann"}
    assert allowed(limit, exchange(**first))
    assert not allowed(limit, exchange(**first))
    for change in ({"params": {"name": "b"}}, {"address": "10.0.0.2"}, {"principal": "bob"}):
        assert allowed(limit, exchange(**{**first, **change}))


@pytest.mark.parametrize(
    ("stateless", "info", "shared"), [(True, b"2", True), (False, b"2", False), (False, b"1", True)]
)
def test_a_session_client_without_an_address_is_identified_by_its_program(
    stateless: bool, info: bytes, shared: bool
) -> None:
    limit = RateLimit(1, 1, per="client", clock=Clock())
    assert allowed(limit, exchange(stateless=stateless, info=b"1"))
    assert allowed(limit, exchange(stateless=stateless, info=info)) is not shared


def test_the_least_recently_used_rate_limit_bucket_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_module, "FEW", 2)
    monkeypatch.setattr(rate_module, "MAX_BUCKETS", 3)
    limit = RateLimit(1, 2, per="tool", clock=Clock())
    hits = RATE_BUCKETS.hits
    for name in ("a", "b", "c", "a"):
        assert allowed(limit, exchange(params={"name": name}))
    assert RATE_BUCKETS.hits == hits
    assert allowed(limit, exchange(params={"name": "d"}))
    assert RATE_BUCKETS.hits == hits + 1
    assert not allowed(limit, exchange(params={"name": "a"})), "both tokens of the bucket are used"
    assert "b" not in limit._full_at
