"""Rules on a server for calls that wait until the server has started."""

import asyncio

import pytest

from fairlead import MCPClient
from fairlead.errors import RpcError
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.policy.rules import RuleSet
from fairlead.policy.tool_lock.lock_file import ToolLockData, lock_tools
from tests.support.gateway_servers import LIMIT, Gate, config, serving

CITY = {"argument": {"name": "city", "value": "b"}}
OTHER = {"name": "secret", "description": "Something else.", "inputSchema": {"type": "object"}}


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "slow_secret"}),
        ("tools/call", {"name": "slow_who", "arguments": {}}),
        ("prompts/get", {"name": "slow_hello", "arguments": {"city": "Bonn"}}),
        ("resources/read", {"uri": "slow://fixed"}),
        ("resources/read", {"uri": "slow://item/7"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "slow_hello"}, **CITY}),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "slow://item/{key}"}, **CITY},
        ),
    ],
)
async def test_a_rule_on_a_server_applies_to_calls_that_waited_for_its_start(
    method: str, params: dict[str, object]
) -> None:
    when = {"server": "slow", "method": method}
    rules = RuleSet.of_data({"rules": [{"when": when, "do": {"block": "not this one"}}]})
    gateway = Gateway(deadline=0, interceptors=[rules])
    rules.attach_to(gateway)
    async with asyncio.timeout(LIMIT), gateway, Gate() as gate, serving(gateway) as url:
        await gateway.connect({"slow": gate.program("slow")})
        await gate.knocked.wait()
        async with MCPClient.connect_http(url, config()) as client:
            calling = asyncio.ensure_future(client.request(method, params))
            await client.list_tools()  # a later request is answered while the call waits
            assert not calling.done()
            gate.open()
            with pytest.raises(RpcError, match="not this one"):
                await calling


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize(
    ("search", "params"),
    [
        (False, {"name": "slow_secret"}),
        (True, {"name": "slow_secret"}),
        (True, {"name": "call_tool", "arguments": {"name": "slow_secret", "arguments": {}}}),
    ],
    ids=["listed", "by name", "searched"],
)
async def test_a_waiting_call_is_rejected_if_the_started_server_has_changed_the_tool(
    search: bool, params: dict[str, object]
) -> None:
    lock = ToolLockData(servers={"slow": lock_tools([OTHER])})
    gateway = Gateway(deadline=0, search=search, observing=Observability(lock=lock))
    async with asyncio.timeout(LIMIT), gateway, Gate() as gate, serving(gateway) as url:
        await gateway.connect({"slow": gate.program("slow")})
        await gate.knocked.wait()
        async with MCPClient.connect_http(url, config()) as client:
            calling = asyncio.ensure_future(client.request("tools/call", params))
            await client.list_tools()
            assert not calling.done()
            gate.open()
            with pytest.raises(RpcError, match="has changed"):
                await calling
