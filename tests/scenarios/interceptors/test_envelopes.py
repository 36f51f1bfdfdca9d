"""Session, path and direction in the envelopes of exchanges."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.rules import RuleSet
from fairlead.protocol.envelope import Direction, MessageEnvelope
from tests.support.gateway_servers import BOTH, HANDSHAKE, LIMIT, config, make, serving, until

UP = Direction.CLIENT_TO_SERVER
STAMP = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Seen:
    def __init__(self) -> None:
        self.envelopes: list[MessageEnvelope] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        envelope = exchange.envelope()
        assert envelope.message is exchange.message
        self.envelopes.append(envelope)
        return await proceed(exchange)

    def named(self, method: str) -> list[MessageEnvelope]:
        return [one for one in self.envelopes if getattr(one.message, "method", "") == method]


@contextlib.asynccontextmanager
async def standing(where: str, around: list[Interceptor]) -> AsyncIterator[tuple[str, str]]:
    """Serve a server, relay or gateway with interceptors; yield its URL and tool name."""
    if where == "server":
        server = MCPServer("red", rate_limit_rate=0, interceptors=around)
        server.tool(name="who")(lambda: "me")
        async with serving(server) as url:
            yield url, "who"
    elif where == "relay":
        relay = Relay(make("red"), interceptors=around)
        async with serving(relay) as url:
            yield url, "who"
    else:
        async with (
            serving(make("red")) as red,
            Gateway(interceptors=around) as gateway,
            serving(gateway) as url,
        ):
            await gateway.connect({"red": {"url": red}})
            await until(lambda: gateway.is_ready)
            yield (f"{url}/red", "who") if where == "door" else (url, "red_who")


@pytest.mark.covers("GTW-01")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("where", ["server", "relay", "gateway", "door"])
async def test_envelopes_contain_the_http_path_and_the_session(where: str, version: str) -> None:
    seen = Seen()
    async with asyncio.timeout(LIMIT), standing(where, [seen]) as (url, tool):
        async with MCPClient.connect_http(url, config(version)) as client:
            await client.call(tool)
        async with MCPClient.connect_http(url, config(version)) as client:
            await client.call(tool)
    path = "/mcp/red" if where == "door" else "/mcp"
    mine = [one for one in seen.envelopes if one.direction is UP]
    assert {one.transport.path for one in mine} == {path}
    calls = seen.named("tools/call")
    assert len(calls) == 2
    sessions = [one.session.session_id for one in calls]
    if version == HANDSHAKE:
        assert all(sessions)
        assert sessions[0] != sessions[1]
        headers = [one.transport.headers or {} for one in seen.named("initialize")]
        assert len(headers) == 2
        assert [one.session.session_id for one in seen.named("initialize")] == sessions
    else:
        assert sessions == [None, None]


@pytest.mark.covers("GTW-01")
@pytest.mark.parametrize("where", ["relay", "door"])
async def test_the_envelope_of_a_notification_without_a_session_has_its_direction_and_path(
    where: str,
) -> None:
    seen = Seen()
    rules = RuleSet.of_data({"rules": [{"when": {"method": "*/held"}, "do": "block"}]})
    async with (
        asyncio.timeout(LIMIT),
        standing(where, [seen, rules]) as (url, _),
        aiohttp.ClientSession() as web,
    ):
        headers = {"MCP-Protocol-Version": "2026-07-28", "Accept": "application/json"}
        for name in ("notifications/vendor", "notifications/held"):
            body = {"jsonrpc": "2.0", "method": name, "params": {"_meta": STAMP}}
            about = {**headers, "Mcp-Method": name}
            async with web.post(url, json=body, headers=about) as answer:
                assert answer.status == 202
        await until(lambda: len(seen.envelopes) >= 2)
    notes = seen.named("notifications/vendor") + seen.named("notifications/held")
    path = "/mcp/red" if where == "door" else "/mcp"
    assert [(one.direction, one.transport.path) for one in notes] == [(UP, path)] * 2


async def test_rules_on_path_and_session_apply_to_messages() -> None:
    rules = RuleSet.of_data(
        {
            "rules": [
                {
                    "when": {"path": "/mcp/red", "method": "tools/call"},
                    "do": {"block": "not on this path"},
                },
                {
                    "when": {"not": {"session": "*"}, "method": "tools/call"},
                    "do": {"block": "only in a session"},
                },
            ]
        }
    )

    async def call(url: str, tool: str, version: str) -> Any:
        async with MCPClient.connect_http(url, config(version)) as client:
            try:
                return (await client.call(tool)).text.split()[0]
            except RpcError as exc:
                return exc.message

    async with asyncio.timeout(LIMIT), standing("gateway", [rules]) as (url, tool):
        assert await call(url, tool, HANDSHAKE) == "red"
        assert await call(f"{url}/red", "who", HANDSHAKE) == "not on this path"
        assert await call(url, tool, "auto") == "only in a session"
