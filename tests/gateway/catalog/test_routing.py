"""Names and templates that lead to a server, or to an error that says why not."""

import asyncio

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.gateway import Gateway, View
from tests.support.gateway_servers import (
    LIMIT,
    config,
    joining,
    make,
    serving,
    until,
)


async def test_whose_server_is_not_there_hears_why_the_name_is_unknown() -> None:
    views = {"bob": View(servers=("red",))}
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(views=views) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "gone": {"command": "/nowhere/at-all"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway, verify_token={"a": "alice", "b": "bob"}.get) as url:
            for token, name, why in (
                ("a", "gone_who", "; gone is not connected"),
                ("a", "red_nothing", ""),
                ("b", "gone_who", ""),  # who does not know that there is such a server
            ):
                who = {"Authorization": f"Bearer {token}"}
                async with MCPClient.connect_http(url, config(), headers=who) as client:
                    with pytest.raises(RpcError) as caught:
                        await client.call_tool(name, {})
                    assert caught.value.message == f"Unknown tool: {name}{why}"
                    with pytest.raises(RpcError) as caught:
                        await client.get_prompt(name, {})
                    assert caught.value.message == f"Unknown prompt: {name}{why}"


async def test_two_templates_that_look_alike_are_completed_by_their_own_servers() -> None:
    def with_documents(name: str) -> MCPServer:
        server = make(name)
        template = f"doc://{{of_{name}}}"
        server.register_resource_template(template, "doc", lambda **_: "x")
        server.completion(template, f"of_{name}")(lambda begun: [name])
        return server

    async with (
        asyncio.timeout(LIMIT),
        serving(with_documents("red")) as red,
        serving(with_documents("blue")) as blue,
        Gateway() as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        async with joining(gateway) as client:
            for name in ("red", "blue"):
                found = await client.complete("resource", f"doc://{{of_{name}}}", f"of_{name}")
                assert found.values == [name]
