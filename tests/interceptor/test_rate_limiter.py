"""Tests of the rate limiter: buckets and results of limited calls."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import MCPServer
from fairlead.interceptor.rate_limiter import RateLimiter

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def call(server: MCPServer, name: str, *, meta: Any = None) -> dict[str, Any]:
    params = {"name": name, "arguments": {}} | ({"_meta": meta} if meta else {})
    answer = await server.handle_request(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )
    assert answer is not None
    return answer["result"]  # type: ignore[no-any-return]


@pytest.mark.covers("OBS-01")
def test_calls_take_tokens_from_a_bucket_and_time_restores_them() -> None:
    clock = Clock()
    limiter = RateLimiter(2, 3, clock=clock)
    assert [limiter.allow("a") for _ in range(4)] == [True, True, True, False]
    assert limiter.wait("a") == 0.5
    clock.now = 0.5
    assert [limiter.allow("a"), limiter.allow("b")] == [True, False]
    clock.now = 100.0
    assert limiter.metrics == {
        "allowed": 4,
        "limited": 2,
        "limited_by_tool": {"a": 1, "b": 1},
        "tokens": 3.0,
    }
    limiter.reset()
    assert limiter.metrics == {"allowed": 0, "limited": 0, "limited_by_tool": {}, "tokens": 3.0}


@pytest.mark.covers("OBS-01")
def test_an_idle_bucket_holds_at_most_its_burst() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 3, clock=clock)
    clock.now = 100.0
    assert [limiter.allow() for _ in range(6)] == [True] * 3 + [False] * 3
    clock.now = 50.0  # a clock that goes backwards adds no tokens
    assert not limiter.allow()


@pytest.mark.covers("OBS-01")
def test_a_call_limited_by_one_bucket_takes_no_token_from_the_other() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 2, per_tool_rate=1, per_tool_burst=1, clock=clock)
    assert limiter.allow("a")
    assert not limiter.allow("a")  # limited by its own bucket
    assert limiter.metrics["tokens"] == 1.0
    assert limiter.allow("b")
    assert not limiter.allow("c")  # limited by the common bucket
    clock.now = 1.0
    assert limiter.allow("c")  # the token of the tool's own bucket is still available


@pytest.mark.covers("OBS-01")
def test_only_configured_tools_have_a_separate_limit() -> None:
    limiter = RateLimiter(per_tool_rate={"slow": 1}, clock=Clock())
    assert [limiter.allow("slow"), limiter.allow("slow")] == [True, False]
    assert all(limiter.allow("quick") for _ in range(1000))
    assert not RateLimiter().active
    assert RateLimiter().wait() == 0.0
    with pytest.raises(ValueError, match="must not be negative"):
        RateLimiter(-1)


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 100),
    steps=st.lists(st.floats(0, 5), max_size=50),
)
def test_allowed_calls_never_exceed_the_burst_plus_the_rate_over_time(
    rate: float, burst: int, steps: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, burst, clock=clock)
    allowed = 0
    for step in steps:
        clock.now += step
        while limiter.allow():
            allowed += 1
            assert allowed <= burst + clock.now * rate + 1e-6


@pytest.mark.covers("SRV-13", "SRV-19", "SRV-23")
@pytest.mark.parametrize("meta", [None, META])
@pytest.mark.parametrize("inline", [False, True])
async def test_a_limited_call_returns_an_error_result_without_running_the_tool(
    meta: Any, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = MCPServer("s", rate_limit_rate=0.001, rate_limit_burst=1)
    ran: list[int] = []

    @server.tool(inline=inline)
    def work() -> str:
        ran.append(1)
        return "done"

    unknown = await server.handle_request(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no"}}
    )
    assert unknown is not None
    assert (
        unknown["error"]["code"] == -32602
    )  # the unknown tool was refused before a token was taken
    assert (await call(server, "work", meta=meta))["content"][0]["text"] == "done"
    with caplog.at_level(logging.WARNING, "fairlead.server"):
        first, second = await call(server, "work", meta=meta), await call(server, "work", meta=meta)
    for result in (first, second):
        error = json.loads(result["content"][0]["text"])
        assert (error["code"], error["tool_name"]) == ("RATE_LIMITED", "work")
        assert result["isError"] is True
        assert ("resultType" in result) is (meta is not None)
    assert ran == [1]
    (said,) = [t for r in caplog.records if "rate limit" in (t := r.getMessage())]
    assert "rate_limit_rate" in said


@pytest.mark.covers("SRV-13")
async def test_a_rate_of_zero_disables_the_limit() -> None:
    server = MCPServer("s", rate_limit_rate=0)
    assert server.limiter is None

    @server.tool()
    async def work() -> str:
        return "done"

    for _ in range(200):
        assert "isError" not in await call(server, "work")
    limited = MCPServer("s")
    assert limited.limiter is not None
    assert limited.limiter.metrics["tokens"] == 100


def test_the_wait_method_returns_the_seconds_until_a_call_is_allowed() -> None:
    clock = Clock()
    limiter = RateLimiter(2, 1, {"slow": 0.5}, 1, clock=clock)
    assert (limiter.wait(), limiter.wait("slow"), limiter.wait("other")) == (0.0, 0.0, 0.0)
    assert limiter.allow("slow")
    assert limiter.wait() == pytest.approx(0.5)
    assert limiter.wait("other") == pytest.approx(0.5)
    assert limiter.wait("slow") == pytest.approx(2.0)
    clock.now += 1.5
    assert limiter.wait("other") == 0.0
    assert limiter.wait("slow") == pytest.approx(0.5)
    assert RateLimiter(clock=clock).wait("x") == 0.0


def test_a_rate_limiter_is_active_if_it_has_any_limit() -> None:
    assert [
        RateLimiter(*given).active for given in ((), (1,), (0, 0, 1), (0, 0, {"a": 1}), (0, 0, {}))
    ] == [False, True, True, True, False]


def test_reset_clears_counters_and_refills_buckets() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, 1, 1, clock=clock)
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    assert limiter.metrics == {
        "allowed": 1,
        "limited": 1,
        "limited_by_tool": {"a": 1},
        "tokens": 0.0,
    }
    limiter.reset()
    assert limiter.metrics == {"allowed": 0, "limited": 0, "limited_by_tool": {}, "tokens": 1.0}
    assert limiter.allow("a")
    assert RateLimiter().metrics["tokens"] is None


def test_a_clock_that_jumps_backwards_adds_no_tokens() -> None:
    clock = Clock()
    clock.now = 100.0
    limiter = RateLimiter(1, 2, clock=clock)
    assert [limiter.allow(), limiter.allow(), limiter.allow()] == [True, True, False]
    clock.now -= 50
    assert not limiter.allow()
    clock.now += 1
    assert limiter.allow()
