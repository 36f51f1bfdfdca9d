"""The same interceptors in a server and in a client: one shape everywhere."""

import asyncio
import json
from pathlib import Path

import pytest
from fleet import BOTH, LIMIT, config, make

from fairlead import MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.gateway.interceptors import Audit, RateLimit, SchemaCheck
from fairlead.gateway.rules import RuleSet
from fairlead.interceptor import Interceptor


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
async def test_rules_hold_in_a_server_and_in_a_client(
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


async def test_a_client_keeps_itself_from_asking_too_often_or_wrongly() -> None:
    around: list[Interceptor] = [RateLimit(0.001, 2), SchemaCheck()]
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(make("one"), config(), interceptors=around) as client,
    ):
        await client.list_tools()
        with pytest.raises(RpcError, match="Arguments do not fit: text"):
            await client.call_tool("speak", {"text": 3})
        assert (await client.call_tool("speak", {"text": "x"}))["content"][0]["text"] == "x"
        with pytest.raises(RpcError, match="Too many requests"):
            await client.call_tool("speak", {"text": "x"})
