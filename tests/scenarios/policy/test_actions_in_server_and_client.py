"""Policy interceptors in a server and in a client."""

import asyncio
import json
from pathlib import Path

import pytest

from fairlead import Context, MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.interceptor import Interceptor
from fairlead.policy.actions import Audit, RateLimit, SchemaCheck
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import BOTH, LIMIT, config, make


def rules() -> RuleSet:
    return RuleSet.of_data(
        {
            "rules": [
                {"when": {"tool": "secret"}, "do": {"block": "not for you"}},
                {"when": {"tool": "who"}, "do": {"mock": "nobody"}},
                {"when": {"tool": "speak"}, "do": {"inject": {"arguments": {"text": "psst"}}}},
            ]
        }
    )


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("where", ["server", "client"])
async def test_rules_work_as_interceptors_of_a_server_and_of_a_client(
    tmp_path: Path, where: str, version: str
) -> None:
    file = tmp_path / "audit.jsonl"
    around: list[Interceptor] = [Audit(str(file)), rules()]
    server = make("one") if where == "client" else _with(around)
    ours = around if where == "client" else []
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(server, config(version), interceptors=ours) as client,
    ):
        with pytest.raises(RpcError, match="not for you"):
            await client.call_tool("secret", {})
        assert (await client.call_tool("who", {}))["content"][0]["text"] == "nobody"
        spoken = await client.call_tool("speak", {"text": "hello"})
        assert spoken["content"][0]["text"] == "psst"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    calls = [(one["target"], one["decision"]) for one in lines if one["method"] == "tools/call"]
    assert calls == [("secret", "refused"), ("who", "passed"), ("speak", "passed")]


@pytest.mark.covers("GTW-09")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("where", ["server", "client"])
async def test_rules_can_block_elicitation_in_both_eras(where: str, version: str) -> None:
    """The documented rules cover both eras: a stateless server requests input in its result."""
    asks = [
        {"method": "elicitation/create"},
        {"result": {"inputRequests.*.method": "elicitation/create"}},
    ]
    two = [{"when": when, "do": {"block": "no questions"}} for when in asks]
    around: list[Interceptor] = [RuleSet.of_data({"rules": two})]
    server = MCPServer("one", rate_limit_rate=0, interceptors=around if where == "server" else [])

    @server.tool()
    async def ask(ctx: Context) -> str:
        said = await ctx.elicit("Which?", {"type": "object", "properties": {}})
        return said.action

    asked: list[object] = []

    async def on_elicit(question: object) -> dict[str, object]:
        asked.append(question)
        return {"action": "accept", "content": {}}

    ours = around if where == "client" else []
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(
            server, config(version), interceptors=ours, on_elicit=on_elicit
        ) as client,
    ):
        with pytest.raises(RpcError, match="no questions"):
            await client.call_tool("ask", {})
    assert asked == []


def _with(around: list[Interceptor]) -> MCPServer:
    server = MCPServer("one", rate_limit_rate=0, interceptors=around)

    @server.tool()
    async def secret() -> str:
        return "a secret"

    @server.tool()
    async def who() -> str:
        return "me"

    @server.tool()
    async def speak(text: str) -> str:
        return text

    return server


async def test_a_client_can_limit_and_validate_its_own_requests() -> None:
    around: list[Interceptor] = [RateLimit(0.001, 2), SchemaCheck()]
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(make("one"), config(), interceptors=around) as client,
    ):
        await client.list_tools()
        with pytest.raises(RpcError, match="Invalid arguments: text"):
            await client.call_tool("speak", {"text": 3})
        assert (await client.call_tool("speak", {"text": "x"}))["content"][0]["text"] == "x"
        with pytest.raises(RpcError, match="Too many requests"):
            await client.call_tool("speak", {"text": "x"})
