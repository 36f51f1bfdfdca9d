"""Tests of rendering prompts in every revision."""

from typing import Any

import pytest

from fairlead import MCPServer, RpcError
from tests.support.in_memory_client import client_of


@pytest.mark.covers("SRV-06", "SRV-33")
async def test_prompts_are_listed_and_rendered(version: str) -> None:
    server = MCPServer("s")
    server.register_prompt(
        "greet",
        "Greets",
        [{"name": "who", "required": True}, {"name": "how"}],
        "Dear {who}, {{not this}} {how}",
    )

    @server.prompt()
    async def review(code: str, style: str = "kind") -> list[str]:
        """Review some code."""
        return [f"Review ({style}):", code]

    async with client_of(server, version) as client:
        greet, second = await client.list_prompts()
        assert greet["arguments"] == [{"name": "who", "required": True}, {"name": "how"}]
        assert second["arguments"] == [
            {"name": "code", "required": True},
            {"name": "style", "required": False},
        ]
        got = await client.get_prompt("greet", {"who": "{how}", "how": "x"})
        assert got["description"] == "Greets"
        assert got["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Dear {how}, {not this} x"}}
        ]
        messages = (await client.get_prompt("review", {"code": "1+1"}))["messages"]
        assert [m["content"]["text"] for m in messages] == ["Review (kind):", "1+1"]
        with pytest.raises(RpcError, match="Missing arguments of prompt '.*': who") as missing:
            await client.get_prompt("greet")
        assert missing.value.code == -32602
        with pytest.raises(RpcError, match="Unknown prompt"):
            await client.get_prompt("nope")


async def test_prompt_may_be_synchronous_or_asynchronous() -> None:
    server = MCPServer("s")

    @server.prompt()
    async def later(a: str) -> str:
        return f"<{a}>"

    @server.prompt()
    def wrapped(a: str) -> Any:
        return later(a)

    @server.prompt()
    def plain(a: str) -> str:
        return f"<{a}>"

    async with client_of(server) as client:
        for name in ("later", "wrapped", "plain"):
            (message,) = (await client.get_prompt(name, {"a": "x"}))["messages"]
            assert message["content"]["text"] == "<x>"
