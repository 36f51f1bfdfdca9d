"""Tests of repeating requests after failures."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.connection.retry import (
    Retry,
    restarts,
    retries_exhausted,
    server_requested_delay,
)
from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    RequestTimeout,
    RetriesExhausted,
)
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


QUICK = MCPClientConfig(
    timeout_seconds=5, retry_delay=0.01, max_retries=2, protocol_version="latest"
)

MUTE = """
seen = {}
for request in requests():
    method, params = request["method"], request.get("params", {})
    name = params.get("name", params.get("uri", method))
    seen[name] = seen.get(name, 0) + 1
    if name == "memo://third" and seen[name] == 3:
        answer(request, {"contents": []})
    elif name == "refused":
        refuse(request, -32000, "no")
    elif method == "tools/list":
        hint = lambda word: {"inputSchema": {"type": "object"}, "annotations": {word: True}}
        answer(request, {"tools": [{"name": "reads", **hint("readOnlyHint")},
                                   {"name": "sets", **hint("idempotentHint")},
                                   {"name": "acts", **hint("destructiveHint")}]})
"""


@pytest.mark.covers("CLT-20", "DEC-23")
async def test_a_read_is_repeated_with_a_new_id_and_the_old_one_is_cancelled(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, MUTE, stateless=False)
    async with MCPClient.connect_stdio(command, QUICK) as client:
        await client.request("resources/read", {"uri": "memo://third"}, timeout=0.3)
        reads = heard(tmp_path, "resources/read")
        assert len({request["id"] for request in reads}) == 3
        cancelled = heard(tmp_path, "notifications/cancelled")
        assert [m["params"]["requestId"] for m in cancelled] == [r["id"] for r in reads[:2]]


@pytest.mark.covers("CLT-20", "CLT-21", "DEC-23")
async def test_the_error_after_the_last_attempt_contains_the_number_of_retries(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, MUTE, stateless=False)
    async with MCPClient.connect_stdio(command, QUICK) as client:
        with pytest.raises(RetriesExhausted) as caught:
            await client.request("prompts/get", {"name": "p"}, timeout=0.1)
        cause = "Request timeout after 100ms (prompts/get)"
        assert str(caught.value) == f"Request prompts/get failed after 2 retries: {cause}"
        assert isinstance(caught.value.__cause__, RequestTimeout)
        assert len(heard(tmp_path, "prompts/get")) == 3
    once = MCPClientConfig(protocol_version="latest", max_retries=0)
    async with MCPClient.connect_stdio(command, once) as client:
        with pytest.raises(RequestTimeout):
            await client.request("prompts/get", {"name": "p"}, timeout=0.1)
        assert len(heard(tmp_path, "prompts/get")) == 4


@pytest.mark.covers("CLT-22", "CLT-25")
async def test_requests_are_not_repeated_after_an_error_response_or_a_cancellation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = program(tmp_path, MUTE, stateless=False)
    caplog.set_level("INFO", "fairlead.client")
    async with MCPClient.connect_stdio(command, QUICK) as client:
        with pytest.raises(RpcError, match="no"):
            await client.get_prompt("refused")
        assert "prompts/get failed: MCP error -32000: no" in caplog.text
        sent = asyncio.Event()
        waiting = asyncio.ensure_future(
            client.request("prompts/get", {"name": "p"}, on_sent=lambda _: sent.set())
        )
        await sent.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.ping()
    assert [m["params"]["name"] for m in heard(tmp_path, "prompts/get")] == ["refused", "p"]


@pytest.mark.covers("CLT-23", "DEC-11")
async def test_a_tool_call_is_repeated_only_if_the_tool_is_safe_to_repeat(tmp_path: Path) -> None:
    command = program(tmp_path, MUTE, stateless=False)

    async def attempts(client: MCPClient, tool: str, retry: bool | None = None) -> int:
        before = len(heard(tmp_path, "tools/call"))
        with pytest.raises((RequestTimeout, RetriesExhausted)):
            await client.call_tool(tool, timeout=0.1, retry=retry)
        return len(heard(tmp_path, "tools/call")) - before

    async with MCPClient.connect_stdio(command, QUICK) as client:
        await client.ping()
        (tmp_path / "log").touch()
        assert await attempts(client, "reads") == 1  # not yet known to be read-only
        await client.list_tools()
        assert await attempts(client, "reads") == 3
        assert await attempts(client, "reads", retry=False) == 1
        assert await attempts(client, "sets") == 3
        assert await attempts(client, "acts") == 1
        assert await attempts(client, "acts", retry=True) == 3
        await client.tools()
        assert await attempts(client, "sets") == 3
    async with MCPClient.connect_stdio(command, replace(QUICK, retry_tool_calls=True)) as client:
        assert await attempts(client, "acts") == 3
        assert await attempts(client, "acts", retry=False) == 1


async def test_a_request_on_a_closed_connection_is_not_repeated(tmp_path: Path) -> None:
    command = program(tmp_path, "for request in requests():\n    sys.exit(3)", stateless=False)
    async with MCPClient.connect_stdio(command, QUICK) as client:
        with pytest.raises(ChannelClosed):
            await client.request("resources/read", {"uri": "memo://x"})
        with pytest.raises(ChannelClosed, match="Transport not connected"):
            await client.request("resources/read", {"uri": "memo://x"})


@pytest.mark.covers("CLT-23", "DEC-11")
def test_the_method_and_the_error_determine_whether_a_request_may_be_repeated() -> None:
    retry = Retry(1)
    assert retry.allows("tools/call", ChannelClosed(delivered=False))
    assert retry.allows("tools/call", ConnectFailed("no"))
    assert not retry.allows("tools/call", ChannelClosed())
    assert not retry.allows("tools/call", OSError())
    assert retry.allows("tools/list", OSError())
    assert not retry.allows("tools/list", RpcError(1, "no"))
    assert not retry.allows("tools/list", ValueError())
    assert not Retry(0).allows("tools/list", OSError())


@pytest.mark.covers("CLT-20")
def test_retry_delays_double_with_jitter_up_to_a_limit() -> None:
    delays = list(Retry(12, 0.5).delays())
    assert len(delays) == 12
    for attempt, delay in enumerate(delays):
        longest = min(0.5 * 2**attempt, 30.0)
        assert 0.75 * longest <= delay <= longest
    assert list(Retry(12, 0.5).delays()) != delays


def test_the_delay_before_a_restart_has_a_minimum() -> None:
    for _ in range(20):
        assert 0.0375 <= restarts(0.0).after(9.0) <= 0.05
    assert 0.75 <= restarts(1.0).after(0.0) <= 1.0


def test_the_message_of_an_exhausted_retry_does_not_contain_stderr() -> None:
    end = ChannelClosed("it ended", stderr=["Traceback"])
    expected = "Request x failed after 3 retries: Transport closed: it ended"
    assert str(retries_exhausted("x", 3, end)) == expected
    assert str(retries_exhausted("x", 1, OSError())) == "Request x failed after 1 retries: OSError"


@pytest.mark.parametrize(("asked", "delay"), [("29", 29.0), ("31", 30.0), (None, 0.0)])
def test_a_server_may_request_a_retry_delay_of_up_to_half_a_minute(
    asked: str | None, delay: float
) -> None:
    busy = HttpError(503, headers={} if asked is None else {"retry-after": asked})
    assert server_requested_delay(busy) == delay
    assert server_requested_delay(OSError()) == 0.0
