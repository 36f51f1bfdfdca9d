"""Tests of tool calls: lookup, rate limit and execution."""

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest

from fairlead import MCPServer, MCPServerConfig, RpcError
from fairlead.protocol.envelope import TransportContext
from fairlead.server.execution.tool_runner import ToolRunner
from fairlead.server.features.tool_calls import ToolCalls
from fairlead.server.features.tool_entry import tool_from_function
from fairlead.server.features.tool_registry import MCPToolRegistry
from tests.support.single_exchange import Clock, exchange


def calls_of(**settings: Any) -> ToolCalls:
    config = MCPServerConfig(**settings)
    registry = MCPToolRegistry(config)
    registry.register(tool_from_function(lambda: "at once", name="inline", inline=True))
    registry.register(tool_from_function(lambda: "in a thread", name="threaded"))
    return ToolCalls(config, registry.listing, ToolRunner(config), b',"end":1}')


def call(name: Any, *, stateless: bool = True) -> Any:
    return exchange(params={} if name is None else {"name": name}, stateless=stateless)


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])
async def test_only_stateless_results_end_with_additional_members(stateless: bool) -> None:
    calls = calls_of()
    for name, text in (("inline", "at once"), ("threaded", "in a thread")):
        expected = {
            "content": [{"type": "text", "text": text}],
            **({"end": 1} if stateless else {}),
        }
        assert (
            json.loads(bytes(await calls.call(call(name, stateless=stateless)) or b"")) == expected
        )
        found = calls.call_inline(call(name, stateless=stateless))
        if name == "inline":
            assert json.loads(found or b"") == expected
        else:
            assert found is None


@pytest.mark.parametrize("name", ["unknown", None, 5], ids=["unknown", "absent", "no text"])
def test_a_call_of_an_unknown_tool_is_rejected(name: Any) -> None:
    calls = calls_of()
    with pytest.raises(RpcError) as refused:
        calls.call(call(name))
    assert refused.value.code == -32602
    assert refused.value.message == (
        "Unknown tool: unknown; tools/list returns the available tools"
        if name == "unknown"
        else "params.name is required: the name of a tool"
    )
    assert calls.call_inline(call(name)) is None


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])
async def test_the_error_of_a_rate_limited_call_contains_the_retry_time(
    stateless: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calls_of(rate_limit_rate=0.5, rate_limit_burst=1)
    assert calls.limiter is not None
    calls.limiter._clock = clock = Clock()
    calls.limiter.reset()
    assert calls.limiter.allow("inline")
    answers = [
        await calls.call(call("threaded", stateless=stateless)),
        calls.call_inline(call("inline", stateless=stateless)),
    ]
    clock.now += 1.9999
    answers.append(calls.call_inline(call("inline", stateless=stateless)))
    errors = []
    for answer in answers:
        result = json.loads(bytes(answer or b""))
        assert (result["isError"], result.get("end")) == (True, 1 if stateless else None)
        errors.append(json.loads(result["content"][0]["text"]))
    assert [error["code"] for error in errors] == ["RATE_LIMITED"] * 3
    assert [error["tool_name"] for error in errors] == ["threaded", "inline", "inline"]
    assert [error["suggestion"] for error in errors] == [
        "Try again in 2 s",
        "Try again in 2 s",
        "Try again in 0.001 s",
    ]
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "rate_limit_rate (0.5 per second)" in warnings[0].getMessage()
    assert "rate_limit_burst (1)" in warnings[0].getMessage()
    assert warnings[0].correlation_id == errors[0]["correlation_id"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "limited"),
    [
        ({}, True),
        ({"rate_limit_rate": 0}, False),
        ({"rate_limit_rate": 0, "per_tool_rate": 5}, True),
        ({"rate_limit_rate": 0, "per_tool_rate": {"t": 1}}, True),
    ],
    ids=["default", "off", "each tool", "one tool"],
)
def test_the_rate_limit_is_enabled_unless_set_to_zero(settings: Any, limited: bool) -> None:
    assert (calls_of(**settings).limiter is not None) is limited
    assert (MCPServer("s", **settings).limiter is not None) is limited


async def test_inline_tools_of_a_replaced_registry_are_answered_inline() -> None:
    server, other = MCPServer("s"), MCPToolRegistry()
    other.register(tool_from_function(lambda: "x", name="t", inline=True))
    assert "tools/call" not in server.inline_methods
    server.registry = other
    assert "tools/call" in server.inline_methods
    assert server.answer_inline(call("t")) is not None


def called_over(kind: str) -> Any:
    given = call("threaded")
    return msgspec.structs.replace(given, transport=TransportContext(transport_type=kind))


async def results_of(calls: ToolCalls, kind: str) -> list[bool]:
    """Send 300 concurrent calls and return for each whether it was refused."""
    answers = await asyncio.gather(*(calls.call(called_over(kind)) for _ in range(300)))
    return ["isError" in json.loads(bytes(answer or b"")) for answer in answers]


@pytest.mark.covers("SRV-13", "SRV-23")
@pytest.mark.parametrize("kind", ["stdio", "memory", "direct", "http", "websocket", "tcp"])
async def test_the_default_rate_limit_applies_only_to_network_callers(kind: str) -> None:
    refused = sum(await results_of(calls_of(), kind))
    assert refused == 0 if kind in ("stdio", "memory", "direct") else refused > 150


@pytest.mark.covers("SRV-13", "SRV-23")
@pytest.mark.parametrize(
    "settings",
    [{"rate_limit_rate": 50.0}, {"rate_limit_rate": 1}, {"per_tool_rate": 50, "per_tool_burst": 9}],
)
async def test_explicit_rate_limits_apply_to_all_callers(settings: Any) -> None:
    for kind in ("stdio", "memory", "http"):
        assert sum(await results_of(calls_of(**settings), kind)) > 150
