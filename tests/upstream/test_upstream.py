"""A configured server: opening its connection, listing, and restoring the desired state."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.client.server_entry import MCPServerEntry, MCPStdioServerConfig, read_entry
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ChannelClosed, ConnectFailed, LocalResourceError, RpcError
from fairlead.protocol.revisions import NEWEST
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.startup_wait import StillStarting
from tests.support.scripted_upstream import ScriptedClient, ScriptedUpstream
from tests.support.virtual_time import VirtualTime

# Connecting


async def test_an_upstream_connects_to_its_server_lists_its_tools_and_stops_it(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        one, (client,) = scripted.upstream, scripted.clients
        assert (one.state, one.generation, one.error, one.loading) == ("connected", 1, None, False)
        assert one.settled.is_set()
        assert one.client is client
        assert [tool["name"] for tool in one.tools or ()] == ["read", "write"]
        assert client.learned == [["read", "write"]]
        assert client.transport.on_close is not None
        assert not one.busy
    assert (one.state, one.client, client.closed) == ("stopped", None, 1)
    assert client.transport.on_close is None
    assert client.transport.on_error is None
    assert one._ending == set()


async def test_the_latency_of_a_server_is_the_time_it_took_to_connect(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch)
    scripted.opening = lambda: asyncio.sleep(3)
    async with scripted:
        assert scripted.upstream.latency == 3.0


@pytest.mark.parametrize(
    ("startup_timeout", "entry_timeout", "timeout"),
    [(None, None, 20.0), (None, 5000, 5.0), (7000, 5000, 7.0), (7000, None, 7.0), (None, 0, 0.0)],
)
async def test_the_startup_timeout_overrides_the_timeouts_of_entry_and_settings(
    monkeypatch: pytest.MonkeyPatch,
    startup_timeout: float | None,
    entry_timeout: float | None,
    timeout: float,
) -> None:
    scripted = ScriptedUpstream(
        monkeypatch,
        entry=MCPStdioServerConfig(command="x", timeout=entry_timeout),
        spec={"startup_timeout": startup_timeout},
        settings={"connect_timeout": 20.0},
    )
    assert scripted.upstream.settings.connect_timeout == timeout


async def test_a_start_that_exceeds_its_timeout_is_cancelled_and_its_connection_closed(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch, spec={"startup_timeout": 5000})
    began = virtual_time.now

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # ignores the cancellation: the connection succeeds three seconds later
            await asyncio.sleep(3)

    scripted.opening = stubborn
    scripted.upstream.start()
    await scripted.upstream.settled.wait()
    assert virtual_time.now == began + 5.0
    assert 'MCP server "red" timed out after 5000ms' in str(scripted.upstream.error)
    await asyncio.sleep(10)
    assert [client.closed for client in scripted.clients] == [1]
    await scripted.upstream.stop()


async def test_variables_are_resolved_for_each_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [MCPStdioServerConfig(command="first"), MCPStdioServerConfig(command="second")]
    left = iter(entries)

    async def resolve() -> MCPServerEntry:
        return next(left)

    async with ScriptedUpstream(monkeypatch, spec={"resolve": resolve}) as scripted:
        await scripted.upstream.reconnect()
        assert [arguments[1] for arguments in scripted.opened_with] == entries


async def test_the_entry_of_a_connection_is_reported_before_its_first_message(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_in = MCPStdioServerConfig(command="x", env={"TOKEN": "secret"})
    reported: list[tuple[Any, int]] = []

    async def resolve() -> MCPServerEntry:
        return filled_in

    scripted = ScriptedUpstream(
        monkeypatch,
        spec={"resolve": resolve},
        resolved=lambda entry: reported.append((entry, len(scripted.opened_with))),
    )
    async with scripted:
        assert reported == [(filled_in, 0)]
    plain = ScriptedUpstream(monkeypatch, resolved=lambda entry: reported.append((entry, 0)))
    async with plain:
        assert reported[1:] == [(plain.upstream.spec.entry, 0)]


async def test_an_attempt_ends_if_variables_are_not_resolved_in_time(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve() -> Any:
        await asyncio.Event().wait()

    spec = {"resolve": resolve, "startup_timeout": 5000}
    scripted, began = ScriptedUpstream(monkeypatch, spec=spec), virtual_time.now
    scripted.upstream.start()
    await scripted.upstream.settled.wait()
    assert virtual_time.now == began + 5.0
    assert str(scripted.upstream.error) == ('Connection to MCP server "red" timed out after 5000ms')
    assert scripted.opened_with == []
    await scripted.upstream.stop()


async def test_a_crash_loop_suspends_a_process(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch)
    scripted.upstream.generation = 1
    scripted.errors = [ConnectFailed("it crashed") for _ in range(20)]
    scripted.upstream.start()
    await asyncio.sleep(600)
    assert scripted.upstream.state == "suspended"
    assert len(scripted.opened_with) == 6
    await scripted.upstream.stop()


async def test_a_local_resource_shortage_does_not_suspend_the_server(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch)
    scripted.errors = [LocalResourceError("too many", "file descriptors")]
    scripted.upstream.start()
    await scripted.upstream.settled.wait()
    assert scripted.upstream.state == "reconnecting"
    assert scripted.starts.shortage.error is not None
    await scripted.upstream.ready()
    assert scripted.upstream.state == "connected"
    assert scripted.starts.shortage.error is None
    await scripted.upstream.stop()


@pytest.mark.parametrize(
    ("entry", "slots"),
    [({"command": "x"}, 1), ({"type": "http", "url": "http://127.0.0.1:1"}, 2)],
    ids=["process", "http"],
)
async def test_only_processes_wait_for_a_start_slot(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], slots: int
) -> None:
    scripted = ScriptedUpstream(monkeypatch, entry=read_entry(entry))
    scripted.opening = asyncio.Event().wait  # type: ignore[assignment]
    async with scripted.starts.starting():
        scripted.upstream.start()
        await asyncio.sleep(1)
        assert len(scripted.opened_with) == slots - 1
    await asyncio.sleep(0.1)
    assert len(scripted.opened_with) == 1
    await scripted.upstream.stop()


@pytest.mark.parametrize(
    ("era", "version"),
    [("auto", "2025-06-18"), ("handshake", "latest"), ("stateless", NEWEST.value)],
)
async def test_the_era_in_the_settings_overrides_the_version_of_the_client(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, era: str, version: str
) -> None:
    config = MCPClientConfig(protocol_version="2025-06-18", name="host")
    scripted = ScriptedUpstream(monkeypatch, settings={"era": era}, config=config)
    async with scripted:
        ((name, entry, timeout, used, *_),) = scripted.opened_with
    assert (name, entry, timeout) == ("red", scripted.upstream.spec.entry, 0)
    assert (used.protocol_version, used.name) == (version, "host")


# Lists


async def test_a_server_is_loading_while_its_lists_are_requested(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool, bool]] = []
    scripted = ScriptedUpstream(monkeypatch)
    one = scripted.upstream

    def changed(upstream: Any) -> None:
        seen.append((one.state, one.loading, one.tools is not None))

    one._changed = changed
    one.lists.on_changed = changed  # type: ignore[assignment]
    async with scripted:
        pass
    assert seen == [
        ("connecting", False, False),
        ("connecting", True, False),
        ("connecting", True, True),
        ("connected", False, True),
        ("stopped", False, True),
    ]


@pytest.mark.parametrize("reason", [ChannelClosed("it ended", exit_code=1), None])
async def test_a_server_that_disconnects_while_it_is_listed_is_not_connected(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, reason: ChannelClosed | None
) -> None:
    scripted = ScriptedUpstream(monkeypatch)
    one = scripted.upstream

    def prepare(client: ScriptedClient) -> None:
        async def list_raw(method: str, member: str) -> list[Raw]:
            client.connected = False
            if reason is not None:
                client.transport.on_close(reason)
            return []

        client.list_raw = list_raw  # type: ignore[method-assign]

    scripted.prepare = prepare
    one.start()
    with pytest.raises(ConnectFailed, match='server "red" is not connected') as why:
        await one.ready()
    assert (one.state, one.loading, one.error) == ("failed", False, why.value.__cause__)
    if reason is None:
        gone = "Transport closed: the server disconnected while its tools were listed"
        assert (type(one.error), str(one.error)) == (ChannelClosed, gone)
    else:
        assert one.error is reason
    await one.stop()
    assert [client.closed for client in scripted.clients] == [1]


async def test_a_failure_to_list_tools_does_not_end_the_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        one, (client,) = scripted.upstream, scripted.clients
        tools, why = one.tools, RpcError(5, "no")

        async def refuse(method: str, member: str) -> list[Raw]:
            raise why

        client.list_raw = refuse
        scripted.states.clear()
        one.refresh_lists()
        await asyncio.sleep(1)
        assert (one.tools_error, one.tools, scripted.states) == (why, tools, ["connected"])
        del client.list_raw
        client.tools = [{"name": "new"}]
        one.refresh_lists()
        await asyncio.sleep(1)
        assert (one.tools_error, one.tools) == (None, [{"name": "new"}])


async def test_only_the_configured_kinds_of_lists_are_requested(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch, kinds=(), for_client=False) as scripted:
        (client,) = scripted.clients
        assert (client.lists_requested, scripted.upstream.tools) == ([], None)
        scripted.upstream.refresh_lists()
        await asyncio.sleep(1)
        assert client.lists_requested == []
    scripted.upstream.refresh_lists()  # has no effect without a connection
    assert client.lists_requested == []


async def test_list_kinds_added_later_are_requested_at_once_and_after_a_reconnect(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch, kinds=())
    one = scripted.upstream
    async with scripted:
        assert scripted.clients[0].lists_requested == []
        one.keep_lists((ListKind.TOOLS, ListKind.PROMPTS))
        one.keep_lists((ListKind.PROMPTS,))
        await asyncio.sleep(1)
        assert scripted.clients[0].lists_requested == ["tools/list"]
        assert one.lists.items[ListKind.PROMPTS] == []  # the server does not declare prompts
        await one.reconnect()
        assert scripted.clients[1].lists_requested == ["tools/list"]
    # Without a connection, added lists are requested on the next connection.
    one.keep_lists((ListKind.RESOURCES,))
    assert one.lists.kinds == (ListKind.TOOLS, ListKind.PROMPTS, ListKind.RESOURCES)


async def test_notifications_are_reported_and_update_the_lists(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, Any]] = []

    def on_notification(method: str, params: dict[str, Any]) -> None:
        heard.append((method, params))

    callbacks = {"on_notification": on_notification, "on_roots": None}
    async with ScriptedUpstream(monkeypatch, callbacks=callbacks) as scripted:
        (client,) = scripted.clients
        given: Any = scripted.opened_with[0][4]
        assert given["on_roots"] is None
        client.tools = [{"name": "new"}]
        given["on_notification"]("notifications/tools/list_changed", {"a": 1})
        await asyncio.sleep(1)
        assert scripted.upstream.tools == [{"name": "new"}]
        note = ("notifications/tools/list_changed", {"a": 1})
        assert (heard, scripted.notifications) == ([note], [("red", *note)])


# The desired state


async def test_subscriptions_and_the_log_level_are_restored_after_a_reconnect(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        one = scripted.upstream
        await one.set_log_level("debug")
        await one.subscribe("a:1")
        await one.subscribe("a:2")
        await one.unsubscribe("a:2")
        await one.reconnect()
        assert sorted(scripted.clients[1].requests) == [("+", "a:1"), ("level", "debug")]
        assert scripted.clients[0].requests[-1] == ("-", "a:2")
    await one.unsubscribe("a:1")  # without a connection, only the desired state changes
    await one.set_log_level("info")
    assert (one.wanted.uris, one.wanted.log_level) == ({}, "info")


async def test_a_subscription_that_the_server_refuses_is_not_restored(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:

        async def refuse(uri: str) -> None:
            raise RpcError(-32602, "no such resource")

        scripted.clients[0].subscribe = refuse
        with pytest.raises(RpcError, match="no such resource"):
            await scripted.upstream.subscribe("a:1")
        assert scripted.upstream.wanted.uris == {}


# The default connection for clients


@pytest.fixture
def server() -> MCPServer:
    """Return a real server with a tool."""
    server = MCPServer("red", rate_limit_rate=0, instructions="Use red.")
    server.tool(name="paint")(lambda: "red")
    return server


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, server: MCPServer) -> Callable[..., ScriptedUpstream]:
    """Return a function that creates an upstream of the server."""

    async def connect(
        name: str, entry: Any, timeout: float, config: MCPClientConfig, callbacks: Any
    ) -> MCPClient:
        return await MCPClient.connect_inprocess(server, config, **callbacks)

    def make(*, lazy: bool = False, **settings: Any) -> ScriptedUpstream:
        scripted = ScriptedUpstream(monkeypatch, settings=settings, lazy=lazy, kinds=ListKind)
        scripted.connect = connect
        return scripted

    return make


class FakeSession:
    """A fake client session that counts how often it was detached."""

    def __init__(self) -> None:
        self.detached = 0

    def detach(self) -> None:
        self.detached += 1


@pytest.mark.parametrize("first", [True, False], ids=["served first", "connected first"])
async def test_clients_use_the_default_connection_of_an_upstream(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream], first: bool
) -> None:
    scripted = served()
    one = scripted.upstream
    if first:
        one.serve_clients(())
        assert (one.current, one.pool.all_connections) == (None, [])
    async with scripted:
        if not first:
            assert (one.current, one.pool.default) == (None, None)
            one.serve_clients(())
        default = await one.default_connection()
        assert (one.current, one.pool.all_connections, one.pool.default) == (
            default,
            [default],
            one,
        )
        assert default.peer is scripted.clients[0].transport.peer
        assert default.borrowed
        assert one.pool.opener.speaks_stateless is default.stateless
        assert [tool["name"] for tool in one.tools or ()] == ["paint"]
    assert (one.current, one.pool.all_connections) == (None, [])


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_the_default_connection_has_the_era_of_the_settings(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream], era: str
) -> None:
    scripted = served(era=era)
    scripted.upstream.serve_clients(())
    async with scripted:
        default = await scripted.upstream.default_connection()
        assert default.stateless is (era == "stateless")


@pytest.mark.parametrize(
    ("share", "client_calls", "our_calls", "goes_to_client"),
    [
        ("all", False, False, True),
        ("all", False, True, True),
        ("alike", False, False, False),
        ("alike", True, False, True),
        ("alike", True, True, False),  # ambiguous, because the request may belong to either call
        ("alike", False, True, False),
        ("session", True, False, True),
    ],
)
async def test_a_server_request_is_sent_to_the_client_whose_call_is_pending(
    virtual_time: VirtualTime,
    served: Callable[..., ScriptedUpstream],
    share: str,
    client_calls: bool,
    our_calls: bool,
    goes_to_client: bool,
) -> None:
    scripted = served(share=share)
    one = scripted.upstream
    one.serve_clients(())
    async with scripted:
        default, request = await one.default_connection(), cast(Any, object())
        calls: Any = {1: object()} if client_calls else {}
        default.calls.update(calls)
        with one.in_use() if our_calls else contextlib.nullcontext():
            handler = scripted.clients[0].transport.answer_with(request)
        assert handler == (default.request_received if goes_to_client else None)
        default.calls.clear()


async def test_client_and_default_connection_both_receive_notifications(
    virtual_time: VirtualTime, server: MCPServer, served: Callable[..., ScriptedUpstream]
) -> None:
    seen: list[str] = []

    async def interceptor(exchange: Any, proceed: Any) -> Any:
        seen.append(exchange.method)
        return await proceed(exchange)

    scripted = served(era="handshake")
    scripted.upstream.serve_clients((interceptor,))
    async with scripted:
        server.tool(name="mix")(lambda: "pink")
        await asyncio.sleep(1)
        method = "notifications/tools/list_changed"
        assert seen == [method]
        assert [told[:2] for told in scripted.notifications] == [("red", method)]
        assert [tool["name"] for tool in scripted.upstream.tools or ()] == ["paint", "mix"]


async def test_sessions_are_detached_from_a_default_connection_that_is_lost(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    scripted, lost = served(), list[Any]()
    one = scripted.upstream
    one.pool.on_lost = lambda *of: lost.append(of)
    one.serve_clients(())
    async with scripted:
        default = await one.default_connection()
        session: Any = FakeSession()
        default.sessions[session] = None
        await default.peer.close("the pipe broke")
        assert (one.state, one.current, session.detached) == ("reconnecting", None, 1)
        assert (default.sessions, lost) == ({}, [(default, default.peer.end, [session])])
        other = await one.default_connection()
        assert other is not default
        assert (one.pool.all_connections, len(lost)) == ([other], 1)


async def test_the_connections_of_an_upstream_are_described_as_plain_data(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    scripted = served(era="stateless")
    scripted.upstream.serve_clients(())
    assert scripted.upstream.describe_connections() == []
    async with scripted:
        default = await scripted.upstream.default_connection()
        default.used = virtual_time.now - 7.04
        session: Any = FakeSession()
        default.sessions[session] = None
        assert scripted.upstream.describe_connections() == [
            {
                "default": True,
                "revision": NEWEST.value,
                "capabilities": {},
                "principal": None,
                "exclusive": False,
                "sessions": 1,
                "calls": 0,
                "idle_s": 7.0,
            }
        ]


async def test_instructions_are_available_only_while_the_server_is_connected(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    scripted = served()
    assert scripted.upstream.instructions is None
    async with scripted:
        assert scripted.upstream.instructions == "Use red."
    assert scripted.upstream.instructions is None


async def test_a_process_is_checked_for_a_hang_when_a_client_cancels_its_call(
    virtual_time: VirtualTime,
    served: Callable[..., ScriptedUpstream],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted, checked = served(), list[Any]()
    scripted.upstream.serve_clients(())
    async with scripted:
        monkeypatch.setattr(
            scripted.upstream._liveness, "check_hang", lambda *of: checked.append(of)
        )
        default = await scripted.upstream.default_connection()
        default.on_unanswered()
        assert [of[0] for of in checked] == [default.peer]


async def test_a_lazy_server_that_clients_use_is_not_stopped(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    scripted = served(lazy=True, idle_close=100.0)
    one = scripted.upstream
    one.serve_clients(())
    async with scripted:
        default = await one.default_connection()
        default.stream_count += 1
        assert one.busy
        await asyncio.sleep(500)
        assert one.state == "connected"
        default.stream_count -= 1
        default.used = virtual_time.now
        assert not one.busy
        await asyncio.sleep(99)
        assert one.state == "connected"
        await asyncio.sleep(2)
        assert (one.state, one.current) == ("idle", None)


async def test_changed_settings_apply_to_the_open_default_connection(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    scripted = served(lazy=True, idle_close=1000.0)
    one = scripted.upstream
    async with scripted:
        changed = UpstreamSettings(idle_close=100.0, health_interval=60)
        one.update_settings(changed, one.spec)
        began = one.answered
        await asyncio.sleep(70)
        assert (one.state, one.answered > began) == ("connected", False)
        await asyncio.sleep(31)
        assert one.state == "idle"


@pytest.mark.parametrize(
    ("call_timeout", "seconds", "setting"),
    [(2.0, 2.0, "`call_timeout`"), (0.0, 20.0, "`timeout`"), (60.0, 20.0, "`timeout`")],
)
async def test_a_call_waits_for_a_start_at_most_as_long_as_its_own_timeout(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    call_timeout: float,
    seconds: float,
    setting: str,
) -> None:
    async def resolve() -> MCPServerEntry:
        await asyncio.sleep(15)  # resolving and connecting each take less than 20 seconds
        return MCPStdioServerConfig(command="x")

    settings = {"connect_timeout": 20.0, "call_timeout": call_timeout}
    scripted = ScriptedUpstream(monkeypatch, spec={"resolve": resolve}, settings=settings)
    scripted.opening = lambda: asyncio.sleep(15)
    one, began = scripted.upstream, virtual_time.now
    one.serve_clients(())
    one.start()
    with pytest.raises(StillStarting, match=f"still starting, after {seconds:g} s.*{setting}"):
        await one.default_connection()
    assert virtual_time.now == began + seconds
    await one.stop()


async def test_calls_to_a_server_that_failed_get_the_reason_at_once(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedUpstream(monkeypatch)
    scripted.upstream.serve_clients(())
    scripted.errors = [ConnectFailed("no such file")]
    scripted.upstream.start()
    await scripted.upstream.settled.wait()
    began = virtual_time.now
    with pytest.raises(ConnectFailed, match='server "red" is not connected: no such file'):
        await scripted.upstream.default_connection()
    assert virtual_time.now == began
    await scripted.upstream.stop()


async def test_stopping_an_upstream_closes_its_pool(
    virtual_time: VirtualTime, served: Callable[..., ScriptedUpstream]
) -> None:
    async with served() as scripted:
        await scripted.upstream.reconnect()
        assert not scripted.upstream.pool.opener.closed
    assert scripted.upstream.pool.opener.closed
