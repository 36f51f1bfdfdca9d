"""Tool-call frames (WebSocket without JSON-RPC) at a gateway with rules."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from fairlead.gateway import Gateway
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import LIMIT, make, program, serving

RULES: list[dict[str, Any]] = [
    {"when": {"tool": "unknown"}, "do": "block"},
    {"when": {"tool": "red_who"}, "do": "redact"},
    {"when": {"method": "initialize"}, "do": {"delay": 0.05}},
    {"do": "redact"},
]


@pytest.mark.parametrize("rule", RULES, ids=["unrelated", "of the tool", "initialize", "all"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_tool_call_frames_that_arrive_together_are_answered_under_any_rules(
    rule: dict[str, Any], transport: str
) -> None:
    """The simulated handshake is checked by the rules before the calls."""
    rules = RuleSet.of_data({"rules": [rule]})
    gateway = Gateway(interceptors=[rules])
    rules.attach_to(gateway)
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
        web.ws_connect(url.replace("http", "ws", 1).removesuffix("/mcp") + "/ws") as socket,
    ):
        entry = {"type": "http", "url": red} if transport == "http" else program("red")
        await gateway.connect({"red": entry})
        await gateway.listed()
        for number in range(3):
            await socket.send_str(json.dumps({"id": number, "name": "red_who", "arguments": {}}))
        answers = [json.loads(await socket.receive_str()) for _ in range(3)]
        assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
        assert all("result" in answer for answer in answers)


async def test_a_rule_that_blocks_a_tool_applies_to_tool_call_frames() -> None:
    rule = {"when": {"tool": "red_who"}, "do": {"block": "not this one"}}
    rules = RuleSet.of_data({"rules": [rule]})
    gateway = Gateway(interceptors=[rules])
    rules.attach_to(gateway)
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
        web.ws_connect(url.replace("http", "ws", 1).removesuffix("/mcp") + "/ws") as socket,
    ):
        await gateway.connect({"red": {"type": "http", "url": red}})
        await gateway.listed()
        await socket.send_str(json.dumps({"id": 1, "name": "red_who", "arguments": {}}))
        answer = json.loads(await socket.receive_str())
        assert answer["error"]["message"] == "not this one"
