"""Interceptors that change messages or inject faults, tested at both ends."""

import asyncio
from typing import Annotated, Any

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.errors import FairleadError, RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.actions import Delay, Fault, Inject, Mock, Redact, Rename
from fairlead.server import Header
from tests.support.gateway_servers import BOTH, LIMIT, config, joining, make, program, serving
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene

SECRET = "hunter2-hunter2"


async def opened(place: Scene, capabilities: Any = None) -> tuple[Client, Server]:
    client = await place.session(capabilities)
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


class Noted:
    """An interceptor that collects the notes of other interceptors."""

    def __init__(self) -> None:
        self.did: list[str] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        finally:
            self.did += exchange.did or []


@pytest.mark.parametrize(
    ("overwrite", "seen"),
    [(True, {"a": 9, "c": 3, "big": 1.50}), (False, {"a": 1, "c": 3, "big": 1.50})],
)
async def test_injected_arguments_replace_given_arguments_only_if_overwrite_is_set(
    overwrite: bool, seen: dict[str, Any]
) -> None:
    noted, inject = Noted(), Inject({"a": 9, "c": 3}, overwrite=overwrite)
    async with scene(interceptors=[noted, inject]) as place:
        client, server = await opened(place)
        client.ask("tools/call", {"name": "x", "arguments": {"a": 1, "big": 1.50}, "more": [1]})
        request = await server.method("tools/call")
        assert request["params"] == {"name": "x", "arguments": seen, "more": [1]}
        client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        assert request["params"]["arguments"] == {"a": 9, "c": 3}
        client.ask("tools/call", {"name": "x", "arguments": [1]})
        request = await server.method("tools/call")
        assert request["params"]["arguments"] == [1]
    assert noted.did == ["injected: a, c", "injected: a, c"]


async def test_a_renamed_tool_has_its_new_name_in_lists_and_calls() -> None:
    noted, rename = Noted(), Rename({"read": "look", "hello": "greet"})
    async with scene(interceptors=[noted, rename]) as place:
        client, server = await opened(place)
        listing = client.ask("tools/list")
        tools = [{"name": "read", "inputSchema": {"n": 1.0}}, {"name": "write"}]
        server.reply(await server.method("tools/list"), {"tools": tools, "more": 1})
        result = (await client.answer_to(listing))["result"]
        assert [tool["name"] for tool in result["tools"]] == ["look", "write"]
        assert result["more"] == 1
        client.ask("tools/call", {"name": "look", "arguments": {"x": 1}})
        request = await server.method("tools/call")
        assert request["params"] == {"name": "read", "arguments": {"x": 1}}
        gone = await client.answer_to(client.ask("tools/call", {"name": "read"}))
        assert gone["error"]["message"] == "Unknown tool: read"
        about = {"name": "city", "value": "B"}
        ref = {"type": "ref/prompt", "name": "greet"}
        client.ask("completion/complete", {"ref": ref, "argument": about})
        request = await server.method("completion/complete")
        assert request["params"]["ref"] == {"type": "ref/prompt", "name": "hello"}
    assert sorted(noted.did) == [
        *("blocked: Unknown tool: read", "renamed in the list"),
        *("renamed to hello", "renamed to read"),
    ]
    with pytest.raises(ValueError, match="same new name"):
        Rename({"a": "c", "b": "c"})


@pytest.mark.parametrize("version", BOTH)
async def test_a_gateway_applies_changes_to_names_arguments_and_results(version: str) -> None:
    class OnlyFor:
        """An interceptor that applies another one to a single tool."""

        def __init__(self, tool: str, inner: Interceptor) -> None:
            self.tool, self.inner = tool, inner

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            if exchange.method == "tools/call" and exchange.target == self.tool:
                return await self.inner(exchange, proceed)
            return await proceed(exchange)

    text = "hidden"
    # The tool has an output schema, so its result needs structured content.
    hidden = {"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}}
    interceptors = [
        Rename({"one_speak": "say"}),
        OnlyFor("one_speak", Inject({"text": "injected"})),
        OnlyFor("one_secret", Mock(hidden)),
        OnlyFor("one_who", Mock(error={"code": -32055, "message": "nobody"})),
    ]
    async with asyncio.timeout(LIMIT), Gateway(interceptors=interceptors) as gateway:
        await gateway.connect({"one": program("one")})
        async with joining(gateway, version) as client:
            names = [tool["name"] for tool in await client.list_tools()]
            assert "say" in names
            assert "one_speak" not in names
            spoken = await client.call_tool("say", {"text": "said"})
            assert spoken["content"][0]["text"] == "injected"
            mocked = await client.call_tool("one_secret", {})
            assert mocked["content"][0]["text"] == "hidden"
            with pytest.raises(RpcError) as refused:
                await client.call_tool("one_who", {})
            assert (refused.value.code, refused.value.message) == (-32055, "nobody")


@pytest.mark.parametrize("version", BOTH)
async def test_renames_apply_only_at_the_merged_endpoint_and_injections_at_both(
    version: str,
) -> None:
    interceptors = [Rename({"one_speak": "say"}), Inject({"text": "injected"})]
    gateway = Gateway(interceptors=interceptors)
    async with asyncio.timeout(LIMIT), serving(make("one")) as behind, gateway:
        await gateway.connect({"one": {"type": "http", "url": behind}})
        async with serving(gateway) as url:
            for place, name in ((url, "say"), (f"{url}/one", "speak")):
                async with MCPClient.connect_http(place, config(version)) as client:
                    assert name in [tool["name"] for tool in await client.list_tools()]
                    spoken = await client.call_tool(name, {"text": "said"})
                    assert spoken["content"][0]["text"] == "injected"


@pytest.mark.covers("OBS-05")
async def test_secrets_are_redacted_only_for_the_configured_side() -> None:
    async with scene(interceptors=[Redact(to="client")]) as place:
        client, server = await opened(place, ASKED)
        call = client.ask("tools/call", {"name": "x", "arguments": {"password": SECRET}})
        request = await server.method("tools/call")
        assert request["params"]["arguments"]["password"] == SECRET
        server.tell("notifications/message", {"level": "info", "data": f"token={SECRET}"})
        server.ask("elicitation/create", {"message": f"Bearer {SECRET}"}, "q")
        text = {"type": "text", "text": f"https://me:{SECRET}@host/"}
        server.reply(request, {"content": [text], "structuredContent": {"apiKey": SECRET}})
        result = (await client.answer_to(call))["result"]
        assert result["structuredContent"] == {"apiKey": "[REDACTED]"}
        assert result["content"][0]["text"] == "https://me:[REDACTED]@host/"
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.refuse(request, -32000, f"bad password={SECRET}", {"cookie": SECRET, "n": 1})
        error = (await client.answer_to(call))["error"]
        assert error["message"] == "bad password=[REDACTED]"
        assert error["data"] == {"cookie": "[REDACTED]", "n": 1}
        heard = str(client.skipped)
        assert SECRET not in heard
        assert heard.count("[REDACTED]") == 2
    async with scene(interceptors=[Redact(to="server", names=["pin"])]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x", "arguments": {"pin": 12345678}})
        request = await server.method("tools/call")
        assert request["params"] == {"name": "x", "arguments": {"pin": "[REDACTED]"}}
        server.reply(request, {"content": [], "token": SECRET})
        assert (await client.answer_to(call))["result"]["token"] == SECRET


async def test_a_mocked_result_has_the_format_of_the_callers_era() -> None:
    mock = Mock({"content": []})
    for era in ("handshake", "stateless"):
        async with scene(era, interceptors=[_Calls(mock)]) as place:
            client = await place.client()
            if era == "handshake":
                await client.initialize()
                answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
                assert answer["result"] == {"content": []}
            else:
                answer = await client.answer_to(client.stateless("tools/call", {"name": "x"}))
                assert answer["result"] == {"resultType": "complete", "content": []}
    for wrong in (
        {},
        {"result": "x", "error": {"code": 1}},
        {"error": {"code": "x"}},
        {"error": {"code": 1, "why": "x"}},
    ):
        with pytest.raises(ValueError):
            Mock(**wrong)


async def test_a_mocked_error_contains_its_data_or_the_source() -> None:
    error = {
        "code": -32042,
        "message": "Look here",
        "data": {"elicitations": [{"url": "https://x"}]},
    }
    async with scene(interceptors=[_Calls(Mock(error=error))]) as place:
        client, server = await opened(place)
        assert (await client.answer_to(client.ask("tools/call", {"name": "x"})))["error"] == error
        client.tell("notifications/vendor")
        await client.sync()
        assert all(one["method"] != "notifications/vendor" for one in server.seen)
    async with scene(interceptors=[_Calls(Mock(error={"code": 7}))]) as place:
        client, _ = await opened(place)
        answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
        assert answer["error"] == {"code": 7, "message": "Refused", "data": {"source": "proxy"}}


class _Calls:
    """An interceptor that applies another one to calls and vendor notifications only."""

    def __init__(self, inner: Interceptor) -> None:
        self._inner = inner

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method in ("tools/call", "notifications/vendor"):
            return await self._inner(exchange, proceed)
        return await proceed(exchange)


async def test_delayed_messages_are_delivered_in_order() -> None:
    noted = Noted()
    async with scene(interceptors=[noted, _Calls(Delay(0.05))]) as place:
        client, server = await opened(place)
        began = asyncio.get_running_loop().time()
        client.tell("notifications/vendor", {"n": 1})
        client.tell("notifications/other", {"n": 2})
        assert (await server.read())["params"] == {"n": 1}
        assert asyncio.get_running_loop().time() - began >= 0.045
        assert (await server.read())["params"] == {"n": 2}
    assert noted.did == ["delayed 0.05 s"]


async def test_each_fault_has_its_documented_effect_on_both_ends() -> None:
    async with scene(interceptors=[_Calls(Fault("duplicate"))]) as place:
        client, server = await opened(place)
        client.tell("notifications/vendor", {"n": 1})
        assert (await server.read())["params"] == (await server.read())["params"] == {"n": 1}
        call = client.ask("tools/call", {"name": "x"})
        for n in (1, 2):
            server.reply(await server.method("tools/call"), {"n": n})
        assert (await client.answer_to(call))["result"] == {"n": 2}
    async with scene(interceptors=[_Calls(Fault("corrupt"))]) as place:
        client, server = await opened(place)
        client.tell("notifications/vendor", {"n": 1})
        assert (await server.read())["params"] == {"corrupt": True}
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"content": []})
        assert (await client.answer_to(call))["result"] == {"corrupt": True}
    async with scene(interceptors=[_Calls(Fault("error"))]) as place:
        client, server = await opened(place)
        answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
        assert answer["error"]["message"] == "Injected fault"
    async with scene(interceptors=[_Calls(Fault("slow", seconds=0.05))]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"n": 1})
        began = asyncio.get_running_loop().time()
        assert (await client.answer_to(call))["result"] == {"n": 1}
        assert asyncio.get_running_loop().time() - began >= 0.04


async def test_a_dropped_request_stays_unanswered_until_it_is_cancelled() -> None:
    async with scene(interceptors=[_Calls(Fault("drop"))]) as place:
        client, server = await opened(place)
        client.tell("notifications/vendor", {"n": 1})
        call = client.ask("tools/call", {"name": "x"})
        client.tell("notifications/cancelled", {"requestId": call})
        client.tell("notifications/other", {"n": 2})
        assert (await server.method("notifications/other"))["params"] == {"n": 2}
        await client.sync()
        assert client.skipped == []
        assert "tools/call" not in [m["method"] for m in server.seen]


async def test_a_cut_fault_ends_the_connection() -> None:
    async with scene(interceptors=[_Calls(Fault("cut"))]) as place:
        client, _ = await opened(place)
        client.ask("tools/call", {"name": "x"})
        while line := await client.line():
            assert b"fault" in line
        another = await place.session()
        await another.sync()


async def test_a_fault_occurs_with_its_probability() -> None:
    fault = Fault("error", 0.5, seed=7)
    async with asyncio.timeout(LIMIT), Gateway(interceptors=[_Calls(fault)]) as gateway:
        await gateway.connect({"one": program("one")})
        async with joining(gateway) as client:
            outcomes = []
            for _ in range(40):
                try:
                    await client.call_tool("one_secret", {})
                    outcomes.append(True)
                except FairleadError:
                    outcomes.append(False)
    assert 8 < sum(outcomes) < 32
    with pytest.raises(ValueError):
        Fault("error", 2.0)


@pytest.mark.parametrize("listed", [True, False])
async def test_an_injected_argument_also_changes_its_header(listed: bool) -> None:
    server = MCPServer("behind", rate_limit_rate=0)

    @server.tool()
    def where(region: Annotated[str, "Where", Header("Region")] = "") -> str:
        return f"in {region}"

    async with asyncio.timeout(LIMIT), serving(server) as behind:
        relay = Relay({"type": "http", "url": behind}, interceptors=[Inject({"region": "south"})])
        async with serving(relay) as url:
            async with MCPClient.connect_http(url, config("auto")) as client:
                if listed:
                    await client.list_tools()
                result = await client.call_tool("where", {"region": "north"})
                assert result["content"][0]["text"] == "in south"
