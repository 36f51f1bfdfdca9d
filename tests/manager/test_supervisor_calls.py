"""Calls to a supervised server: what waits, what is sent again, and what is the end of it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import MCPClientConfig
from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPStdioServerConfig,
)
from fairlead.errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
)
from fairlead.manager import supervisor as module
from fairlead.manager.supervisor import Rules, Supervisor
from fairlead.transport.channel import SharedStream
from fairlead.upstream.start_limiter import StartLimiter
from tests.support.virtual_time import VirtualTime


class FakePeer:
    def __init__(self, client: "FakeClient") -> None:
        self._client = client
        self.channel = SharedStream()
        self.connected = True
        self.reasons: list[str] = []

    async def close(self, why: str, *, public: str) -> None:
        self.reasons.append(why)


class FakeClient:
    """A connection that does as it is told."""

    def __init__(self) -> None:
        self.connected = True
        self.closed = 0
        self.server: dict[str, Any] = {"capabilities": {}}
        self.transport = SimpleNamespace(peer=FakePeer(self), on_close=None, on_error=None)
        self.outcomes: list[Any] = []
        self.asked: list[tuple[str, Any]] = []

    async def call_tool(
        self, tool: str, arguments: Any, timeout: float | None, **options: Any
    ) -> dict[str, Any]:
        self.asked.append((tool, arguments))
        outcome = self.outcomes.pop(0) if self.outcomes else {"by": id(self)}
        if isinstance(outcome, BaseException):
            raise outcome
        if callable(outcome):
            return await outcome()  # type: ignore[no-any-return]
        return outcome  # type: ignore[no-any-return]

    async def list_tools(self, *, cache: bool) -> list[dict[str, Any]]:
        assert not cache
        return [{"name": "read", "annotations": {"readOnlyHint": True}}, {"name": "write"}]

    async def subscribe(self, uri: str) -> None:
        self.asked.append(("+", uri))

    async def unsubscribe(self, uri: str) -> None:
        self.asked.append(("-", uri))

    async def set_log_level(self, level: str) -> None:
        self.asked.append(("level", level))

    async def close(self) -> None:
        self.closed += 1
        self.connected = False


class Place:
    """A supervisor, and the connections that it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **about: Any) -> None:
        self.clients: list[FakeClient] = []
        self.errors: list[Exception] = []  # of the next attempts
        self.states: list[str] = []
        self.entry: MCPServerEntry = about.pop("entry", MCPStdioServerConfig(command="x"))
        self.opening: Callable[[], Awaitable[None]] | None = None
        monkeypatch.setattr(module, "open_client", self._open)
        rules = Rules(health_interval=0, **about.pop("rules", {}))
        self.one = Supervisor(
            "red",
            self._resolve,
            slots=StartLimiter(1),
            rules=rules,
            config=MCPClientConfig(),
            callbacks={},
            changed=lambda supervisor: self.states.append(supervisor.state),
            told=lambda *of: None,
            **about,
        )

    async def _resolve(self) -> MCPServerEntry:
        return self.entry

    async def _open(self, *_: Any) -> FakeClient:
        if self.opening is not None:
            await self.opening()
        if self.errors:
            raise self.errors.pop(0)
        client = FakeClient()
        self.clients.append(client)
        return client

    async def __aenter__(self) -> "Place":
        self.one.start()
        async with asyncio.timeout(100):
            await self.one.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.one.state != "stopped":
            await self.one.stop()
        elif self.one._ending:
            await asyncio.wait(self.one._ending)


def lost(*, delivered: bool) -> ChannelClosed:
    return ChannelClosed("lost", delivered=delivered)


async def test_a_server_is_connected_used_and_ended(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one, (client,) = place.one, place.clients
        assert (one.state, one.generation, one.error, one.loading) == ("connected", 1, None, False)
        assert one.settled.is_set()
        assert one.client is client
        assert [tool["name"] for tool in one.tools or ()] == ["read", "write"]
        assert await one.call("write", {"a": 1}) == {"by": id(client)}
        assert client.asked == [("write", {"a": 1})]
        assert not one.busy
    assert (one.state, one.client, client.closed) == ("stopped", None, 1)
    assert client.transport.on_close is None
    assert one._ending == set()
    with pytest.raises(ConnectFailed, match='server "red" is not connected: it was disconnected'):
        await one.ready()
    with pytest.raises(ConnectFailed, match="it was disconnected"):
        await one.reconnect()
    one._become("connected")
    assert one.state == "stopped"  # for good


@pytest.mark.parametrize(
    ("tool", "failure", "again"),
    [
        ("read", lost(delivered=True), True),
        ("write", lost(delivered=True), False),
        ("write", lost(delivered=False), True),
        ("write", ConnectFailed("away"), True),
        ("read", RpcError(5, "no"), False),
    ],
    ids=["read", "write", "write that was not sent", "away", "refused"],
)
async def test_a_call_is_sent_once_more_where_that_can_do_no_harm(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    failure: Exception,
    again: bool,
) -> None:
    async with Place(monkeypatch) as place:
        first = place.clients[0]

        async def fails() -> None:
            first.connected = isinstance(failure, RpcError)
            raise failure

        first.outcomes = [fails]
        if again:
            answer = await place.one.call(tool, {})
            assert answer == {"by": id(place.clients[1])}
            assert (place.one.generation, first.closed) == (2, 1)
        else:
            with pytest.raises(type(failure)):
                await place.one.call(tool, {})
        assert len(first.asked) == 1
        assert not place.one.busy


async def test_a_call_is_sent_once_more_and_no_third_time(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        place.clients[0].outcomes = [lost(delivered=False), lost(delivered=False), {}]
        with pytest.raises(ChannelClosed):
            await place.one.call("write", {})
        assert len(place.clients[0].asked) == 2  # over HTTP each answer has its own way


async def test_a_call_that_a_stop_ends_says_so(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one = place.one

        async def stopped() -> None:
            one.halt()
            raise lost(delivered=False)

        place.clients[0].outcomes = [stopped]
        with pytest.raises(ChannelClosed, match='server "red" was disconnected') as ended:
            await one.call("read", {})
        assert (ended.value.public, ended.value.delivered) == ("was disconnected", False)


@pytest.mark.parametrize(
    ("failure", "checked"),
    [
        (RequestTimeout(5.0, "x"), True),
        (RetriesExhausted("tired"), True),
        (RpcError(5, "no"), False),
    ],
    ids=["timeout", "tired", "refused"],
)
async def test_a_call_that_was_given_up_is_a_reason_to_look(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, failure: Exception, checked: bool
) -> None:
    looked: list[Any] = []
    async with Place(monkeypatch) as place:
        monkeypatch.setattr(place.one._liveness, "check_hang", lambda *of: looked.append(of))
        place.clients[0].outcomes = [failure]
        with pytest.raises(type(failure)):
            await place.one.call("read", {})
        assert bool(looked) is checked
        assert place.one.state == "connected"


async def test_a_time_limit_is_for_everything_together(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    async with Place(monkeypatch) as place:
        monkeypatch.setattr(place.one._liveness, "check_hang", lambda *of: looked.append(of))
        place.clients[0].outcomes = [asyncio.Event().wait]
        began = virtual_time.now
        with pytest.raises(RequestTimeout):
            await place.one.call("read", {}, timeout=7.0)
        assert virtual_time.now == began + 7.0
        assert len(looked) == 1
        assert not place.one.busy


@pytest.mark.parametrize(
    ("entry", "looked"),
    [(MCPStdioServerConfig(command="x"), 1), (MCPHttpServerConfig(url="http://x"), 0)],
    ids=["process", "http"],
)
async def test_only_a_process_of_ours_is_looked_at(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    entry: MCPServerEntry,
    looked: int,
) -> None:
    found: list[Any] = []
    async with Place(monkeypatch, entry=entry) as place:
        one = place.one
        monkeypatch.setattr(one._liveness, "check_hang", lambda *of: found.append(of))
        one.check_hang(None)
        other: Any = FakeClient()
        one.check_hang(other)
        assert found == []
        one.check_hang(one.client)
        assert len(found) == looked
        one._lost = True
        one.check_hang(one.client)
        assert len(found) == looked
        one._lost = False


async def test_a_process_that_hangs_is_replaced_and_who_waits_hears_why(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one, (client,) = place.one, place.clients
        one._hangs(one.client, "it hangs: no answer")  # type: ignore[arg-type]
        assert one.state == "reconnecting"
        await one.ready()
        assert client.transport.peer.reasons == ["it hangs: no answer"]
        assert (client.closed, len(place.clients), one.state) == (1, 2, "connected")


async def test_a_connection_is_lost_once(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one = place.one
        client: Any = place.clients[0]
        other: Any = FakeClient()
        one.lose(other, None)
        assert one.state == "connected"
        one.lose(client, LocalResourceError("too many", "file descriptors"))
        assert one.state == "connected"  # it is as good as before
        place.states.clear()
        why = ChannelClosed("gone")
        one.lose(client, why)
        one.lose(client, ChannelClosed("again"))
        assert (one.state, one.error, place.states) == ("reconnecting", why, ["reconnecting"])
        await one.ready()
        assert one.generation == 2


async def test_what_a_server_was_asked_for_is_asked_again(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one = place.one
        await one.set_log_level("debug")
        await one.subscribe("a:1")
        await one.subscribe("a:2")
        await one.unsubscribe("a:2")
        await one.reconnect()
        assert sorted(place.clients[1].asked) == [("+", "a:1"), ("level", "debug")]
        assert place.clients[0].asked[-1] == ("-", "a:2")
    await one.unsubscribe("a:1")  # there is no connection any more
    await one.set_log_level("info")


async def test_nobody_uses_a_lazy_server_so_it_is_stopped(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch, lazy=True, rules={"idle_stop": 100.0}) as place:
        one, (client,) = place.one, place.clients

        async def slow() -> dict[str, Any]:
            await asyncio.sleep(150)
            return {}

        await asyncio.sleep(99)
        assert one.state == "connected"
        client.outcomes = [slow]
        await one.call("read", {})
        assert one.state == "connected"
        await asyncio.sleep(99)
        assert one.state == "connected"
        await asyncio.sleep(2)
        assert (one.state, client.closed, one.client) == ("idle", 1, None)
        assert one.settled.is_set()
        assert await one.call("read", {}) == {"by": id(place.clients[1])}
        assert one.state == "connected"


async def test_a_server_that_is_not_lazy_is_never_stopped(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch, rules={"idle_stop": 100.0}) as place:
        await asyncio.sleep(10_000)
        assert place.one.state == "connected"


async def test_a_lazy_server_waits_until_it_is_needed(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(monkeypatch, lazy=True)
    place.one.start(now=False)
    await asyncio.sleep(10)
    assert (place.one.state, place.clients, place.one.settled.is_set()) == ("idle", [], True)
    await place.one.ready()
    assert place.states[:1] == ["connecting"]
    await place.one.stop()


@pytest.mark.parametrize(
    ("error", "generation", "comes_back"),
    [
        (ConnectFailed("no"), 1, True),
        (ConnectFailed("no"), 0, False),
        (OSError("no"), 1, True),
        (HttpError(503), 1, True),
        (HttpError(401), 1, False),
        (HttpError(403), 1, False),
        (HttpError(402), 1, True),
        (ConfigError("no"), 1, False),
        (ZeroDivisionError(), 1, False),
    ],
    ids=["lost", "never", "os", "503", "401", "403", "402", "config", "bug"],
)
async def test_what_was_connected_once_may_be_back_soon(
    monkeypatch: pytest.MonkeyPatch, error: Exception, generation: int, comes_back: bool
) -> None:
    one = Place(monkeypatch).one
    one.generation = generation
    assert one._comes_back(error) is comes_back


@pytest.mark.parametrize("error", [ConnectFailed("no such file"), ConfigError("wrong")])
async def test_a_server_that_never_came_has_failed_and_may_be_asked_for_again(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, error: FairleadError
) -> None:
    place = Place(monkeypatch)
    one = place.one
    place.errors = [error]
    one.start()
    await asyncio.sleep(100)
    assert (one.state, one.error, one.settled.is_set()) == ("failed", error, True)
    with pytest.raises(ConnectFailed, match=f'server "red" is not connected: {error}') as why:
        await one.ready()
    assert why.value.__cause__ is error
    await one.reconnect()
    assert (one.state, one.error) == ("connected", None)
    await one.stop()


async def test_a_start_that_takes_too_long_is_given_up_and_ended(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(monkeypatch, timeout=5.0)
    began = virtual_time.now

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(3)  # to end it takes a while, and it comes nevertheless

    place.opening = stubborn
    place.one.start()
    await place.one.settled.wait()
    assert virtual_time.now == began + 5.0
    assert 'MCP server "red" timed out after 5000ms' in str(place.one.error)
    await asyncio.sleep(10)
    assert [client.closed for client in place.clients] == [1]
    await place.one.stop()


async def test_a_shortage_of_this_machine_is_no_failure_of_the_server(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(monkeypatch)
    place.errors = [LocalResourceError("too many", "file descriptors")]
    place.one.start()
    await place.one.settled.wait()
    assert place.one.state == "reconnecting"
    assert place.one._slots.shortage.error is not None
    await place.one.ready()
    assert place.one.state == "connected"
    assert place.one._slots.shortage.error is None
    await place.one.stop()


async def test_tools_are_listed_again_when_that_is_asked_for(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one = place.one
        why = RpcError(5, "no")
        place.states.clear()
        one.not_listed(why)
        assert (one.tools_error, len(one.tools or ()), place.states) == (why, 2, ["connected"])
        one.tools = None
        await one.refresh()
        assert (one.tools_error, len(one.tools or ())) == (None, 2)


async def test_an_owner_that_ends_leaves_nobody_waiting(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(monkeypatch) as place:
        one = place.one
        assert one._owner is not None
        one._owner.cancel()
        await asyncio.sleep(1)
        assert (one.state, str(one.error)) == ("failed", "it was cancelled")
        assert one._owner is None
        with pytest.raises(ConnectFailed, match="it was cancelled"):
            await one.ready()
    assert [client.closed for client in place.clients] == [1]
