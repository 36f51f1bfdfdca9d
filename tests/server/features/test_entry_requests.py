"""Tests of rendering prompts and reading resources in every revision."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer, RpcError
from tests.support.in_memory_client import client_of


@pytest.mark.covers("SRV-06", "SRV-33")
async def test_prompts_are_listed_and_rendered_in_every_revision(version: str) -> None:
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


async def test_a_prompt_may_be_synchronous_or_asynchronous() -> None:
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


async def test_a_prompt_may_return_messages_with_plain_text() -> None:
    server = MCPServer("s")

    @server.prompt()
    def talk(count: int) -> list[Any]:
        return [f"Count to {count}.", {"role": "assistant", "content": "1, 2"}]

    @server.prompt()
    def broken() -> Any:
        return 42

    async with client_of(server) as client:
        messages = (await client.get_prompt("talk", {"count": 2}))["messages"]
        assert [(m["role"], m["content"]["text"]) for m in messages] == [
            ("user", "Count to 2."),
            ("assistant", "1, 2"),
        ]
        with pytest.raises(RpcError, match="prompt 'broken' returned 42: expected a string") as bad:
            await client.get_prompt("broken")
        assert bad.value.code == -32603


async def test_a_prompt_argument_that_is_not_a_string_is_rejected_by_name() -> None:
    server = MCPServer("s")
    server.register_prompt("p", arguments=[{"name": "a"}])
    async with client_of(server) as client:
        params = {"name": "p", "arguments": {"a": "1", "count": [3]}}
        with pytest.raises(RpcError) as wrong:
            await client.request("prompts/get", params)
    assert (wrong.value.code, wrong.value.data) == (-32602, {"argument": "count"})
    assert wrong.value.message == (
        "argument 'count' of prompt 'p' is not a string: [3]; arguments of prompts are strings, so "
        "send other values as JSON text"
    )


@pytest.mark.covers("SRV-04", "SRV-05", "SRV-32")
async def test_resources_are_listed_and_read_in_every_revision(
    version: str, tmp_path: Path
) -> None:
    server = MCPServer("s")
    (tmp_path / "a file.md").write_text("# hé")
    (tmp_path / "x.bin").write_bytes(b"\0\1\2")
    server.register_resource("mem://text", "text", "Some text", content_provider="hello")
    server.register_resource(
        "mem://bytes", "bytes", mime_type="image/png", content_provider=lambda: b"\x89PNG"
    )
    markdown = server.register_file_resource(str(tmp_path / "a file.md"))
    binary = server.register_file_resource(str(tmp_path / "x.bin"))
    with pytest.raises(FileNotFoundError):
        server.register_file_resource(str(tmp_path / "nothing"))

    @server.resource("mem://live", mime_type="application/json")
    async def live() -> dict[str, int]:
        """Return the current value."""
        return {"now": 1}

    async with client_of(server, version) as client:
        listed = {r["uri"]: r for r in await client.list_resources()}
        assert listed["mem://text"]["description"] == "Some text"
        assert listed["mem://live"]["name"] == "live"
        assert markdown.endswith("/a%20file.md")
        assert listed[markdown]["mimeType"] == "text/markdown"

        async def contents(uri: str) -> Any:
            return (await client.read_resource(uri))["contents"]

        assert await contents("mem://text") == [
            {"uri": "mem://text", "mimeType": "text/plain", "text": "hello"}
        ]
        assert await contents("mem://bytes") == [
            {"uri": "mem://bytes", "mimeType": "image/png", "blob": "iVBORw=="}
        ]
        assert (await contents(markdown))[0]["text"] == "# hé"
        assert (await contents(binary))[0]["blob"] == "AAEC"
        assert (await contents("mem://live"))[0]["text"] == '{"now":1}'
        with pytest.raises(RpcError) as missing:
            await client.read_resource("mem://none")
        assert missing.value.code == (-32602 if version == "auto" else -32002)
        assert missing.value.data == {"uri": "mem://none"}


async def test_a_content_provider_may_be_synchronous_or_asynchronous() -> None:
    server = MCPServer("s")

    @server.resource("later://{a}")
    async def later(a: int, ctx: Context | None = None) -> Any:
        await asyncio.sleep(0)
        return [str(a + 1), str(ctx is not None)]

    server.register_resource_template("wrapped://{a}", "wrapped", lambda a: later(int(a)))
    server.register_resource_template("plain://{a}", "plain", lambda a: f"<{a}>")
    async with client_of(server) as client:
        for uri, texts in (
            ("later://1", ["2", "True"]),
            ("wrapped://1", ["2", "False"]),
            ("plain://1", ["<1>"]),
        ):
            contents = (await client.read_resource(uri))["contents"]
            assert [content["text"] for content in contents] == texts
