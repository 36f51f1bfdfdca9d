"""Tests of the validation of arguments against the schemas in a tool list."""

from typing import Any

import msgspec
import pytest

from fairlead.errors import RpcError
from fairlead.policy.actions import SchemaCheck
from fairlead.protocol.caller import principal_from
from tests.support.raw_relay import Client, Server, scene
from tests.support.single_exchange import Behind, exchange

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 9}, "word": {"enum": ["a", "b"]}},
    "required": ["n"],
    "additionalProperties": False,
}


async def listed(client: Client, server: Server, *tools: dict[str, Any]) -> None:
    call = client.ask("tools/list")
    server.reply(await server.method("tools/list"), {"tools": list(tools)})
    await client.answer_to(call)


@pytest.mark.covers("OBS-08")
async def test_arguments_are_validated_against_the_listed_schema() -> None:
    async with scene(interceptors=[SchemaCheck()]) as place:
        client = await place.session()
        server = await place.server()

        async def call(arguments: Any, name: str = "count") -> Any:
            asked = client.ask("tools/call", {"name": name, "arguments": arguments})
            marker = client.ask("vendor/marker")
            request = await server.until(lambda m: "id" in m)
            if request["method"] == "tools/call":
                server.reply(request, {"content": []})
                request = await server.until(lambda m: "id" in m)
            answer = next((m for m in client.skipped if m.get("id") == asked), None)
            answer = answer or await client.answer_to(asked)
            server.reply(request, {})
            await client.answer_to(marker)
            return answer

        assert "result" in await call({"n": "no tool list was received yet"})
        await listed(client, server, {"name": "count", "inputSchema": SCHEMA})
        assert "result" in await call({"n": 3})
        error = (await call({"n": "swordfish", "word": "tuna-fish", "more": 1}))["error"]
        assert error["code"] == -32602
        assert error["message"] == "Invalid arguments: n, word, more"
        assert [one["field"] for one in error["data"]["errors"]] == ["n", "word", "more"]
        assert "fish" not in str(error), "the value may be secret"
        assert "result" in await call({"n": "x"}, "another")
        server.tell("notifications/tools/list_changed")
        await client.method("notifications/tools/list_changed")
        assert "result" in await call({"n": "the schema was dropped"})
        bad = {"name": "count", "inputSchema": {"type": "nonsense"}}
        await listed(client, server, bad)
        assert "result" in await call({"n": "x"}), "an invalid schema refuses no call"


async def test_calls_of_unlisted_tools_can_be_refused() -> None:
    async with scene(interceptors=[SchemaCheck(unknown="refuse")]) as place:
        client = await place.session()
        server = await place.server()
        answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
        assert answer["error"]["message"] == "Unknown tool: x"
        await listed(client, server, {"name": "x", "inputSchema": {"type": "object"}})
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(call)


@pytest.mark.parametrize(("wrong", "told"), [(9, 9), (10, 10), (11, 10)])
async def test_the_error_for_an_invalid_call_lists_at_most_ten_problems(
    wrong: int, told: int
) -> None:
    check = SchemaCheck()
    numbers = {f"n{number}": {"type": "integer"} for number in range(20)}
    tool = {"name": "count", "inputSchema": {"type": "object", "properties": numbers}}
    await check(exchange("tools/list"), Behind(msgspec.json.encode({"tools": [tool]})))
    arguments = {f"n{number}": "x" for number in range(wrong)}
    call = exchange("tools/call", {"name": "count", "arguments": arguments})
    with pytest.raises(RpcError) as refused:
        await check(call, Behind())
    assert len(refused.value.data["errors"]) == told
    assert call.did == ["blocked: invalid arguments"]


async def test_tool_lists_of_at_most_a_thousand_principals_are_kept() -> None:
    check = SchemaCheck(unknown="refuse")
    tool = {"name": "count", "inputSchema": {"type": "object"}}
    page = Behind(msgspec.json.encode({"tools": [tool]}))
    everybody = [principal_from(f"user {number}") for number in range(1001)]
    for principal in everybody[:1000]:
        await check(exchange("tools/list", principal=principal), page)
    call = {"name": "count", "arguments": {}}
    assert await check(exchange("tools/call", call, principal=everybody[0]), Behind()) == b"{}"
    await check(exchange("tools/list", principal=everybody[1000]), page)
    with pytest.raises(RpcError, match="Unknown tool: count"):
        await check(exchange("tools/call", call, principal=everybody[0]), Behind())
    for principal in everybody[1:]:
        assert await check(exchange("tools/call", call, principal=principal), Behind()) == b"{}"
