"""The complete gateway: servers, endpoints, closing, and public interface."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead import RpcError, __version__
from fairlead.config.upstream_settings import Share
from fairlead.errors import ConfigError
from fairlead.gateway import Gateway, GatewaySettings, RelaySettings, View
from fairlead.gateway.catalog.target_resolver import TargetResolver
from fairlead.gateway.operations.observability import Observability
from fairlead.interceptor import Answer, Exchange, InterceptorBase, Proceed
from fairlead.manager import MCPManager
from fairlead.observe.metrics import Metrics
from fairlead.policy.actions.tool_lock import ToolLock
from fairlead.policy.tool_lock.lock_file import ToolLockData
from fairlead.protocol.caller import ANONYMOUS
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.transport.memory import memory_pair
from fairlead.transport.stdio import own_stdio
from fairlead.wire import Message, Notification, Request, Success, to_json
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    Ears,
    joining,
    make,
    names,
    program,
    serving,
    until,
)
from tests.support.scripted_stdio_server import program as scripted_program
from tests.support.single_exchange import exchange


async def test_clients_of_both_eras_are_notified_of_added_and_removed_servers() -> None:
    old, new = Ears(), Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway() as gateway,
        joining(gateway, BOTH[0], on_notification=old) as handshake,
        joining(gateway, BOTH[1], on_notification=new) as stateless,
    ):
        await stateless.listen("tools", "resources", "prompts")
        await gateway.connect({"red": {"url": red}})
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        await until(lambda: gateway.is_ready)
        await gateway.connect({"blue": {"url": blue}})
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        assert "blue_who" in await names(handshake)
        old.drain(), new.drain()
        await gateway.disconnect("red")
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        for client in (handshake, stateless):
            assert not [name for name in await names(client) if name.startswith("red")]
            with pytest.raises(RpcError):
                await client.call_tool("red_who", {})
            assert (await client.call("blue_who")).text.startswith("blue")
        # Connect the server again with the same name.
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        assert (await handshake.call("red_who")).text.startswith("red")


async def test_invalid_entries_and_existing_server_names_are_rejected_without_effect() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        with pytest.raises(ConfigError):
            await gateway.connect({"red": {"url": red}, "bad": {"command": 7}})
        assert not gateway.members
        await gateway.connect({"red": {"url": red}})
        with pytest.raises(ConfigError, match="already"):
            await gateway.connect({"red": {"url": red}})
        async with joining(gateway) as client:
            assert (await client.call("red_who")).text.startswith("red")


async def test_disconnecting_one_server_does_not_end_input_requests_of_another() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def on_elicit(question: object) -> dict[str, object]:
        asked.set()
        await go_on.wait()
        return {"action": "accept", "content": {"value": "Ada"}}

    async with asyncio.timeout(LIMIT), serving(make("blue")) as blue, Gateway() as gateway:
        await gateway.connect({"red": program("red"), "blue": {"url": blue}})
        async with joining(gateway, BOTH[1], on_elicit=on_elicit) as client:
            await until(lambda: gateway.is_ready)
            call = asyncio.create_task(client.call("red_ask"))
            await asked.wait()
            await gateway.disconnect("blue")
            go_on.set()
            assert (await call).text.startswith("Ada to red")


async def test_tools_of_servers_with_unusual_names_are_listed_and_callable() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"a#2": {"url": red}, "b c/d": {"url": red}})
        async with joining(gateway) as client:
            assert {"a_2_who", "b_c_d_who"} <= set(await names(client))
            assert (await client.call("b_c_d_who")).text.startswith("red")


async def test_closing_a_gateway_does_not_close_servers_of_a_given_manager() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, MCPManager() as manager:
        async with Gateway(manager) as gateway:
            await gateway.connect({"red": {"url": red}})
            async with joining(gateway) as client:
                await until(lambda: gateway.is_ready)
                assert (await client.call("red_who")).text.startswith("red")
        assert manager.get_connected_servers() == ["red"]


@pytest.mark.parametrize(("share", "processes"), [("all", 1), ("alike", 1), ("session", 3)])
async def test_sessions_share_a_server_process_or_have_their_own_depending_on_share(
    share: Share, processes: int
) -> None:
    relay = RelaySettings(share=share)
    async with asyncio.timeout(LIMIT), Gateway(relay=relay) as gateway:
        await gateway.connect({"red": program("red")})
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(joining(gateway)) for _ in range(3)]
            await until(lambda: gateway.is_ready)
            pids = {(await client.call("red_who")).text for client in clients}
            assert len(pids) == processes


async def test_a_call_right_after_a_crash_is_answered_by_the_next_process() -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, BOTH[1]) as client:
            process = (await client.call("red_who")).text
            with pytest.raises(RpcError, match="exited with code 3"):
                await client.call("red_die")
            assert (await client.call("red_who")).text != process


# Closing a gateway


class RawClient:
    """A client at the other end of a channel that sends messages and keeps the received ones."""

    def __init__(self) -> None:
        self.channel, self.other = memory_pair()
        self.came: asyncio.Queue[Message] = asyncio.Queue()
        self.reading = asyncio.create_task(self.channel.run(self.came.put_nowait))

    def ask(self, method: str, params: Any) -> None:
        self.channel.send(Request(7, method, Raw(to_json(params))))

    async def end(self) -> None:
        async with asyncio.timeout(LIMIT):
            await asyncio.wait({self.reading})


async def test_closing_a_gateway_closes_client_connections_at_every_endpoint() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red:
        gateway = Gateway()
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        merged, alone, background = RawClient(), RawClient(), RawClient()
        served = asyncio.create_task(gateway.serve(merged.other))
        gateway.endpoints["red"].attach(alone.other, ANONYMOUS)
        peer = gateway.attach(background.other, "ada")
        await asyncio.sleep(0)
        assert (gateway.clients, len(gateway.sessions())) == (3, 3)
        assert [one["principal"] for one in gateway.sessions()].count("ada") == 1
        assert peer.connected
        await gateway.close()
        for client in (merged, alone, background):
            await client.end()
        await served
        assert (gateway.clients, gateway.members, gateway.endpoints) == (0, {}, {})
        assert gateway.upstreams.connected() == []
        await gateway.close()  # closing again is safe


async def test_closing_a_gateway_answers_listeners_before_their_connections_end() -> None:
    stamp = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    async with asyncio.timeout(LIMIT):
        gateway, client = Gateway(), RawClient()
        gateway.attach(client.other, ANONYMOUS)
        params = {"notifications": {"toolsListChanged": True}, "_meta": stamp}
        client.ask("subscriptions/listen", params)
        acknowledged = await client.came.get()
        assert isinstance(acknowledged, Notification)
        await gateway.close()
        await client.end()
        answer = client.came.get_nowait()
        assert isinstance(answer, Success)
        assert answer.id == 7


ASKING = """
for request in requests():
    if request.get("method") == "tools/list":
        answer(request, {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif request.get("method") == "tools/call":
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form})
    elif "id" in request and "method" in request:
        refuse(request)
"""


async def test_closing_a_gateway_ends_calls_that_wait_for_input(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def on_elicit(question: object) -> dict[str, object]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    command, *args = scripted_program(tmp_path, ASKING, stateless=False)
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": {"command": command, "args": args}})
        async with joining(gateway, BOTH[1], on_elicit=on_elicit) as client:
            await until(lambda: gateway.is_ready)
            call = asyncio.create_task(client.call("red_ask"))
            await asked.wait()
            assert len(gateway.parked) == 1
            upstream = gateway.upstreams["red"]
            assert list(upstream.pool.all_connections)
            await gateway.close()
            assert (len(gateway.parked), list(upstream.pool.all_connections)) == (0, [])
            call.cancel()
            await asyncio.wait({call})


async def test_closing_a_gateway_cancels_its_background_tasks() -> None:
    async with asyncio.timeout(LIMIT):
        gateway = Gateway()
        task = gateway._tasks.start(asyncio.Event().wait())
        await gateway.close()
        assert task.cancelled()


async def test_a_manager_keeps_no_reference_to_a_closed_gateway() -> None:
    async with MCPManager() as manager:
        gateway = Gateway(manager, observing=Observability(metrics=Metrics()))
        gone = weakref.ref(gateway.catalog)
        await gateway.close()
        del gateway
        gc.collect()
        assert gone() is None


# Public interface


class Passing(InterceptorBase):
    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


def test_interceptors_run_in_the_documented_order() -> None:
    mine, other = Passing(), Passing()
    assert Gateway().interceptors == ()
    resolver, *given = Gateway(interceptors=[mine, other]).interceptors
    assert isinstance(resolver, TargetResolver)
    assert given == [mine, other]
    lock = ToolLockData()
    observing = Observability(journal=Journal(), lock=lock)
    kinds = [type(one) for one in Gateway(interceptors=[mine], observing=observing).interceptors]
    assert kinds == [Journaling, TargetResolver, Passing, ToolLock]
    only_journal = Gateway(observing=Observability(journal=Journal())).interceptors
    assert [type(one) for one in only_journal] == [Journaling]
    only_lock = Gateway(observing=Observability(lock=lock)).interceptors
    assert [type(one) for one in only_lock] == [TargetResolver, ToolLock]


def test_gateway_settings_can_be_passed_as_an_object_or_as_keywords() -> None:
    settings = GatewaySettings(name="harbour", page_size=3)
    assert Gateway(settings=settings).settings is settings
    assert Gateway(name="harbour", page_size=3).settings == settings
    assert Gateway(settings=settings).info == {"name": "harbour", "version": __version__}
    manager = MCPManager()
    assert Gateway(manager).upstreams is manager.upstreams


async def test_the_server_of_a_call_is_resolved_after_waiting_for_its_start() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway(deadline=0) as one:
        await one.connect({"red": {"url": red}})
        call = exchange("tools/call", {"name": "red_who"})
        assert one.server_of(call) is None
        await one.wait_until_known(call)
        assert one.server_of(call) == "red"


async def test_interceptors_process_notifications_from_the_gateway_itself() -> None:
    seen: list[str] = []

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange.method)
        return await proceed(exchange)

    ears, changed = Ears(), "notifications/tools/list_changed"
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[look]) as gateway,
        joining(gateway, BOTH[0], on_notification=ears),
    ):
        await gateway.connect({"red": {"url": red}})
        await ears.hear(changed)
        assert changed in seen


async def test_search_tools_exist_only_if_search_is_enabled() -> None:
    call = exchange("tools/call", {"name": "search_tools", "arguments": {"query": "x"}})
    answer = await Gateway(search=True).handler(call)
    assert b"None of 0 tools matches" in bytes(answer or b"")
    with pytest.raises(RpcError, match="Unknown tool: search_tools"):
        await Gateway().handler(call)


async def test_the_listed_method_waits_until_all_servers_have_listed_their_items() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway(deadline=LIMIT) as one:
        await one.connect({"red": {"url": red}})
        assert not one.is_ready
        await one.listed()
        assert one.is_ready
        assert [server["name"] for server in one.status()["servers"]] == ["red"]
        call = exchange("tools/call", {"name": "red_who"})
        await one.wait_until_known(call)
        assert one.server_of(call) == "red"


async def test_the_reload_request_calls_the_registered_function() -> None:
    gateway, reloads = Gateway(), []

    async def reload() -> None:
        reloads.append(1)

    await gateway._reload()
    gateway.reload = reload
    await gateway._reload()
    assert reloads == [1]


async def test_http_apps_serve_added_servers_and_stop_serving_removed_ones() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        app, other = gateway.create_http_app(), gateway.create_http_app(path="/all")

        def served(app: Any) -> set[str]:
            return set(app._others)

        assert served(app) == {"/mcp/red"}
        await gateway.connect({"blue": {"url": red}})
        assert served(app) == {"/mcp/red", "/mcp/blue"}
        assert served(other) == {"/all/red", "/all/blue"}
        await gateway.disconnect("red")
        assert served(app) == {"/mcp/blue"}
        gateway.http_ended(app)
        await gateway.disconnect("blue")
        assert (served(app), served(other)) == ({"/mcp/blue"}, set())


async def test_new_views_replace_the_settings_and_are_reported_to_interceptors() -> None:
    told: list[str] = []

    class Keeping(Passing):
        def views_changed(self) -> None:
            told.append("views")

    gateway = Gateway(interceptors=[Keeping()])
    changes, view = gateway.catalog.changes, View(servers=())
    gateway.show({}, view)
    assert told == ["views"]
    assert gateway.settings.view is view
    assert gateway.catalog.changes == changes + 1


async def test_a_gateway_on_stdio_is_served_until_its_streams_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = RawClient()

    @contextlib.asynccontextmanager
    async def open_stdio() -> AsyncIterator[Any]:
        yield client.other

    monkeypatch.setattr(own_stdio, "open_stdio", open_stdio)
    gateway = Gateway()
    serving = asyncio.create_task(gateway.run_stdio())
    async with asyncio.timeout(LIMIT):
        await until(lambda: gateway.clients == 1)
        assert not serving.done()
        await client.channel.close()
        await serving
    assert gateway.clients == 0


def test_the_default_port_of_a_gateway_is_8765() -> None:
    assert Gateway.port == 8765


@pytest.mark.parametrize("wrong", ["server.py", {"a": {"command": "uvx"}}, 5])
async def test_the_error_for_servers_passed_as_the_manager_names_the_correct_call(
    wrong: Any,
) -> None:
    with pytest.raises(TypeError, match=r"^manager must be an MCPManager, .*gateway\.connect\("):
        Gateway(wrong)
    if not isinstance(wrong, dict):
        async with Gateway(search=False) as gateway:
            with pytest.raises(TypeError, match="^servers must be a dict with the entry of each"):
                await gateway.connect(wrong)
