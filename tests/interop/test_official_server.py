"""Our client against a server made with the official Python SDK, on real pipes, in both eras."""

import asyncio
from typing import Any

import pytest
from processes import PIXEL, our_client

from fairlead import RpcError
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision

TOOLS = ["echo", "add", "count", "fail", "blocks", "big", "wait", "was_stopped"]

every_version = pytest.mark.parametrize("version", ["auto", *map(str, HANDSHAKE)])
SPOKEN = {"auto": NEWEST, **{revision.value: revision for revision in HANDSHAKE}}


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-02", "PRO-20", "PRO-21", "CLT-03")
@pytest.mark.parametrize(
    ("version", "spoken"),
    [*SPOKEN.items(), ("2026-07-28", NEWEST), ("latest", NEWEST_HANDSHAKE)],
)
async def test_we_learn_who_it_is_and_what_it_offers(version: str, spoken: Revision) -> None:
    async with our_client("official", version) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        (prompt,) = await client.list_prompts()

        assert client.protocol_version == spoken
        assert client.server["serverInfo"] == {"name": "official", "version": "1.2.3"}
        assert client.instructions == "Say hello first."
        assert (await client.health_check())["ok"]
        assert [tool["name"] for tool in tools] == TOOLS
        assert tools[1]["description"] == "Add two numbers."
        assert tools[1]["inputSchema"]["required"] == ["a", "b"]
        assert [(r["uri"], r["mimeType"]) for r in resources] == [
            ("memo://greeting", "text/plain"),
            ("memo://pixel", "image/png"),
        ]
        assert await client.list_resource_templates() == []
        assert [argument["name"] for argument in prompt["arguments"]] == ["name", "mood"]
        assert client.skipped == []


@every_version
async def test_calls_end_in_results_or_errors(version: str) -> None:
    async with our_client("official", version) as client:
        assert client.protocol_version == SPOKEN[version]
        said = await client.call_tool("echo", {"text": "Grüße, 世界 🌍\u2028\x00"})
        added = await client.call_tool("add", {"a": 2, "b": 40})
        blocks = await client.call_tool("blocks")
        greeting = await client.read_resource("memo://greeting")
        pixel = await client.read_resource("memo://pixel")
        prompt = await client.get_prompt("greet", {"name": "Ада"})

        assert texts(said) == ["Grüße, 世界 🌍\u2028\x00"]
        assert texts(added) == ["42"]
        kinds = [block["type"] for block in blocks["content"]]
        assert kinds == ["text", "image", "audio", "resource_link", "resource"]
        assert blocks["content"][1]["data"] == PIXEL
        assert [content["text"] for content in greeting["contents"]] == ["Grüße, 世界 🌍"]
        assert [content["blob"] for content in pixel["contents"]] == [PIXEL]
        assert prompt["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Greet Ада, who is happy."}}
        ]

        broken = await client.call_tool("fail")
        wrong = await client.call_tool("add", {"a": "many"})
        unknown = await client.call_tool("nothing")  # a result too, says the official SDK

        assert broken["isError"] is wrong["isError"] is unknown["isError"] is True
        assert texts(unknown) == ["Unknown tool: nothing"]
        with pytest.raises(RpcError) as caught:
            await client.read_resource("memo://nothing")
        assert (caught.value.code, caught.value.data) == (-32602, {"uri": "memo://nothing"})
        with pytest.raises(RpcError):
            await client.get_prompt("nothing")
        with pytest.raises(RpcError) as caught:
            await client.request("no/such/method")
        assert caught.value.code == -32601
        assert texts(await client.call_tool("echo", {"text": "still there"})) == ["still there"]


@pytest.mark.covers("PRO-33")
@every_version
async def test_much_talk_comes_in_order(version: str) -> None:
    heard: list[object] = []

    def on_log(level: str, data: Any, logger: str | None) -> None:
        heard.append((level, logger, data))

    def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with our_client("official", version, on_log=on_log) as client:
        assert client.protocol_version == SPOKEN[version]
        await client.set_log_level("debug")
        result = await client.call_tool("count", {"to": 3}, on_progress=on_progress)

        assert texts(result) == ["counted to 3"]
        # The official SDK sends the message of a progress in every revision.
        assert heard == [
            (1, 3, "step 1"),
            ("debug", "count", "step 1"),
            (2, 3, "step 2"),
            ("warning", "count", "step 2"),
            (3, 3, "step 3"),
            ("debug", "count", "step 3"),
        ]

        big = await client.call_tool("big", {"size": 1_000_000})
        answers = await asyncio.gather(
            *(client.call_tool("echo", {"text": f"{n} ü" * 100}) for n in range(50))
        )
        assert texts(big) == ["x" * 1_000_000]
        assert [texts(answer) for answer in answers] == [[f"{n} ü" * 100] for n in range(50)]


@pytest.mark.covers("PRO-31")
@every_version
async def test_giving_up_stops_its_handler(version: str) -> None:
    async with our_client("official", version) as client:
        assert client.protocol_version == SPOKEN[version]
        begun = asyncio.Event()
        waiting = asyncio.create_task(client.call_tool("wait", on_progress=lambda *_: begun.set()))
        await begun.wait()
        meanwhile = await client.call_tool("echo", {"text": "not held up"})
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert texts(meanwhile) == ["not held up"]
        assert texts(await client.call_tool("was_stopped")) == ["stopped"]

        with pytest.raises(RequestTimeout, match=r"Request timeout after 200ms"):
            await client.call_tool("wait", timeout=0.2)
        assert texts(await client.call_tool("was_stopped")) == ["stopped"]


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]
