"""Calls to servers that are still starting: how long they wait, and the errors."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, RpcError
from fairlead.config.upstream_settings import Rules
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.gateway import Gateway, RelaySettings, View
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.manager import MCPManager, MCPToolCache
from fairlead.upstream.memory.tool_cache import FileStore
from tests.support.gateway_servers import (
    LIMIT,
    Gate,
    config,
    joining,
    make,
    names,
    program,
    serving,
    until,
)

ERAS = ["2025-11-25", "2026-07-28"]
STAMP: dict[str, Any] = {
    "protocolVersion": ERAS[1],
    "clientCapabilities": {},
    "clientInfo": {"name": "x", "version": "0"},
}


@contextlib.asynccontextmanager
async def begun(gateway: Gateway, work: Any) -> AsyncIterator["asyncio.Task[Any]"]:
    """Start a request, and return once it waits for servers."""
    waiting = len(_waiting(gateway))
    task = asyncio.ensure_future(work)
    await until(lambda: task.done() or len(_waiting(gateway)) > waiting)
    try:
        yield task
    finally:
        task.cancel()


def _waiting(gateway: Gateway) -> list[object]:
    """Return the requests that wait for lists or for a connection."""
    events = [m.introduced for m in gateway.members.values()]
    found: list[object] = [one for event in events for one in event._waiters]
    for upstream in gateway.upstreams.values():
        found += upstream._waiting
    # requests that wait for the session's own connection
    for endpoint in gateway.endpoints.values():
        sessions = [one for client in endpoint.clients.values() for one in client.sessions.values()]
        found += [session for session in sessions if session.opening.locked()]
    return found


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", ERAS)
async def test_a_call_waits_for_a_server_that_is_still_starting(version: str) -> None:
    asks: list[tuple[str, dict[str, Any], Any]] = [
        ("tools/call", {"name": "slow_secret"}, "the secret of slow"),
        ("prompts/get", {"name": "slow_hello", "arguments": {"city": "Bonn"}}, "greets Bonn"),
        ("resources/read", {"uri": "slow://fixed"}, "fixed of slow"),
        ("resources/read", {"uri": "slow://item/7"}, "7 of slow"),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "slow_hello"},
                "argument": {"name": "city", "value": "b"},
            },
            "slow-Bonn",
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "slow://item/{key}"},
                "argument": {"name": "key", "value": ""},
            },
            "slow-key",
        ),
    ]
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        await gate.knocked.wait()
        async with MCPClient.connect_http(url, config(version)) as client:
            assert await names(client) == []  # this deadline lets lists return at once
            calls = [client.request(method, params) for method, params, _ in asks]
            async with begun(gateway, asyncio.gather(*calls)) as answers:
                assert not answers.done()
                gate.open()
                for answer, (_, _, expected) in zip(await answers, asks, strict=True):
                    assert expected in bytes(answer).decode()


async def post(url: str, tool: str, headers: Mapping[str, str] = {}) -> dict[str, Any]:
    """Send a stateless call as a client that has sent nothing before."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in STAMP.items()}
    call["params"] = {"name": tool, "arguments": {}, "_meta": meta}
    about = {
        "mcp-protocol-version": ERAS[1],
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "accept": "application/json, text/event-stream",
    }
    async with (
        aiohttp.ClientSession() as web,
        web.post(url, json=call, headers={**about, **headers}) as answer,
    ):
        text = await answer.text()
        found: dict[str, Any] = json.loads(text.partition("data: ")[2] or text)
        return found


async def call_at(url: str, version: str, tool: str, **options: Any) -> str:
    """Call a tool as a new client. Raises the error of the response."""
    if version == ERAS[1]:
        answer = await post(url, tool, **options)
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        return str(answer["result"]["content"][0]["text"])
    async with MCPClient.connect_http(url, config(version), **options) as client:
        return (await client.call(tool)).text


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_at_the_endpoint_of_a_server_waits_for_its_start(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        async with begun(gateway, call_at(f"{url}/slow", version, "secret")) as answer:
            assert not answer.done()
            gate.open()
            assert await answer == "the secret of slow"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("path", ["", "/slow"])
async def test_a_call_that_waits_too_long_gets_an_error_about_the_start(
    version: str, path: str
) -> None:
    """The timeout of the call is shorter than that of the start."""
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, relay=RelaySettings(call_timeout=0.1)) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        with pytest.raises(FairleadError) as caught:
            await call_at(f"{url}{path}", version, "secret" if path else "slow_secret")
        refused = caught.value
        if isinstance(refused, ConnectFailed):  # a session begins with a response of the server
            refused = refused.__cause__
        assert isinstance(refused, RpcError)
        assert refused.code == -32603
        assert refused.message == (
            "slow is still starting, after 0.1 s. Try again in a moment; if it always takes so "
            "long, raise `call_timeout` (seconds)"
        )
        assert refused.data == {"source": "proxy", "server": "slow", "starting": True}


async def test_the_start_of_a_server_has_the_timeout_of_its_entry() -> None:
    """The time in the queue for a slot counts, so a call may fail before the start begins."""
    manager = MCPManager(on_roots=None, rules=Rules(connect_timeout=30), max_starts=1)
    async with asyncio.timeout(LIMIT), manager, Gateway(manager) as gateway, Gate() as gate:
        await gateway.connect({"first": gate.program("first")})
        await gate.knocked.wait()  # holds the only slot
        await gateway.connect({"second": {**program("second"), "timeout": 100}})
        async with joining(gateway) as client:
            with pytest.raises(RpcError, match=r"still starting, after 0\.1 s.* `timeout`"):
                await client.call_tool("second_secret", {})


async def test_a_failed_start_ends_the_wait() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": {**gate.program("slow"), "timeout": 300}})
        async with joining(gateway) as client:
            with pytest.raises(RpcError) as caught:
                await client.call_tool("slow_secret", {})
        # Both limits are equal, so either of them may end the wait.
        assert "slow is still starting" in caught.value.message or (
            caught.value.message == "Unknown tool: slow_secret; slow is not connected"
        )


async def test_calls_do_not_wait_for_servers_that_cannot_have_the_item() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, views={"bob": View(servers=("red",))}) as gateway,
        Gate() as gate,
        serving(make("red")) as red,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
    ):
        await gateway.connect({"slow": gate.program("slow"), "red": {"url": red}})
        await gateway.members["red"].introduced.wait()
        async with joining(gateway) as client:
            for name in ("red_nothing", "slo_secret"):
                with pytest.raises(RpcError, match=f"Unknown tool: {name}$"):
                    await client.call_tool(name, {})
            assert (await client.call("red_secret")).text == "the secret of red"
        who = {"Authorization": "Bearer b"}
        async with MCPClient.connect_http(url, config(), headers=who) as client:
            with pytest.raises(RpcError, match="Unknown tool: slow_secret$"):
                await client.call_tool("slow_secret", {})
            with pytest.raises(RpcError, match="Resource not found"):
                await client.read_resource("slow://fixed")


async def test_a_call_of_a_renamed_tool_waits_for_its_server() -> None:
    view = View(rename={"slow_secret": "mystery"})
    async with asyncio.timeout(LIMIT), Gateway(deadline=0, view=view) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with joining(gateway) as client, begun(gateway, client.call("mystery")) as call:
            assert not call.done()
            gate.open()
            assert (await call).text == "the secret of slow"


async def test_a_call_uses_the_view_at_the_end_of_its_wait() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with (
            joining(gateway) as client,
            begun(gateway, client.call_tool("slow_secret", {})) as call,
            begun(gateway, client.read_resource("slow://fixed")) as read,
        ):
            assert not call.done()
            assert not read.done()
            gateway.show({}, View(deny=("slow_secret", "slow://*")))
            gate.open()
            with pytest.raises(RpcError, match="Unknown tool: slow_secret$"):
                await call
            with pytest.raises(RpcError, match="Resource not found: slow://fixed$"):
                await read


async def test_removing_a_starting_server_ends_the_wait() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with (
            joining(gateway) as client,
            begun(gateway, client.call_tool("slow_secret", {})) as call,
        ):
            await gateway.disconnect("slow")
            with pytest.raises(RpcError, match="Unknown tool: slow_secret$"):
                await call


async def test_calls_during_a_start_do_not_open_the_circuit() -> None:
    settings = RelaySettings(call_timeout=0.05)
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, failure_threshold=1, relay=settings) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        for _ in range(3):
            with pytest.raises(RpcError, match="still starting"):
                await call_at(f"{url}/slow", ERAS[1], "secret")
        assert gateway.members["slow"].upstreams[0].health.breaker.state == "closed"


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_goes_to_the_replica_that_starts_first(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as never,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": [never.program("one"), gate.program("two")]})
        async with (
            MCPClient.connect_http(url, config(version)) as client,
            begun(gateway, client.call("slow_secret")) as call,
        ):
            assert not call.done()
            gate.open()
            assert (await call).text == "the secret of two"


async def test_calls_wait_for_a_failed_server_that_is_reconnected(tmp_path: Path) -> None:
    late = tmp_path / "late.py"
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        entry = gate.program("slow")
        script, *rest = entry["args"]
        await gateway.connect({"slow": {**entry, "args": [str(late), *rest]}})
        await until(lambda: gateway.upstreams["slow"].state == "failed")
        late.write_text(f"import runpy\nrunpy.run_path({script!r}, run_name='__main__')\n")
        async with joining(gateway) as client:
            with pytest.raises(RpcError, match="slow is not connected"):
                await client.call_tool("slow_secret", {})
            again = asyncio.create_task(gateway.upstreams["slow"].reconnect())
            await gate.knocked.wait()
            async with begun(gateway, client.call("slow_secret")) as call:
                assert not call.done()
                gate.open()
                assert (await call).text == "the secret of slow"
            await again


async def test_calls_of_new_tools_wait_although_remembered_tools_are_listed(
    tmp_path: Path,
) -> None:

    def managed() -> MCPManager:
        return MCPManager(on_roots=None, cache=MCPToolCache(FileStore(tmp_path)))

    async with asyncio.timeout(LIMIT), Gate() as gate:
        entry = gate.program("slow")
        async with managed() as manager, Gateway(manager, deadline=0) as gateway:
            await gateway.connect({"slow": entry})
            gate.open()
            await until(lambda: gateway.is_ready)
        gate.shut()
        async with managed() as manager, Gateway(manager, deadline=0) as gateway:
            await gateway.connect({"slow": entry})
            async with joining(gateway) as client:
                assert "slow_secret" in await names(client)
                asking = client.get_prompt("slow_hello", {"city": "Bonn"})
                async with begun(gateway, asking) as prompt:
                    assert not prompt.done()
                    await gate.knocked.wait()
                    gate.open()
                    assert "greets Bonn" in str(await prompt)


async def test_call_tool_waits_for_a_starting_server() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0, search=True) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with joining(gateway) as client:
            wanted = {"name": "slow_secret", "arguments": {}}
            async with begun(gateway, client.call("call_tool", wanted)) as call:
                assert not call.done()
                gate.open()
                assert (await call).text == "the secret of slow"


class Deny:
    """An interceptor that refuses tools by their merged names."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target is not None and fnmatchcase(exchange.target, self._pattern):
            raise RpcError(-32602, "denied")
        return await proceed(exchange)


@pytest.mark.parametrize("version", ERAS)
async def test_calls_during_a_start_do_not_bypass_interceptors(version: str) -> None:
    """Interceptors compare merged names, which are unknown until the server has listed tools."""
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, interceptors=[Deny("slow_secret")]) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        async with begun(gateway, call_at(f"{url}/slow", version, "secret")) as answer:
            assert not answer.done()
            gate.open()
            with pytest.raises(RpcError, match="denied"):
                await answer


@pytest.mark.parametrize("version", ERAS)
async def test_calls_during_a_start_do_not_bypass_views(version: str) -> None:
    views = {"bob": View(deny=("slow_secret",))}
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, views=views) as gateway,
        Gate() as gate,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        who = {"Authorization": "Bearer b"}
        door = f"{url}/slow"
        async with (
            begun(gateway, call_at(door, version, "who", headers=who)) as allowed,
            begun(gateway, call_at(door, version, "secret", headers=who)) as denied,
        ):
            assert not allowed.done()
            assert not denied.done()
            gate.open()
            assert (await allowed).startswith("slow")
            with pytest.raises(RpcError, match="Unknown tool: secret"):
                await denied
