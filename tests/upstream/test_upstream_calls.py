"""Calls over the default connection: waiting, retries and failures."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
)
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.scripted_upstream import ScriptedUpstream
from tests.support.virtual_time import VirtualTime


def lost(*, delivered: bool) -> ChannelClosed:
    return ChannelClosed("lost", delivered=delivered)


def exhausted(cause: Exception) -> RetriesExhausted:
    error = RetriesExhausted("tired", delivered=False)
    error.__cause__ = cause
    return error


async def test_an_upstream_call_is_sent_over_its_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        (client,) = scripted.clients
        await asyncio.sleep(5)
        assert await scripted.calls.call("write", {"a": 1}) == {"by": id(client)}
        assert client.requests == [("write", {"a": 1})]
        assert scripted.upstream.answered == virtual_time.now
        assert not scripted.upstream.busy
    with pytest.raises(
        ConnectFailed, match='server "red" is not connected: the server was disconnected'
    ):
        await scripted.calls.call("write", {})


@pytest.mark.parametrize(
    ("tool", "failure", "again"),
    [
        ("read", lost(delivered=True), True),
        ("write", lost(delivered=True), False),
        ("write", lost(delivered=False), True),
        ("write", ConnectFailed("away"), True),
        ("write", exhausted(ConnectFailed("away")), True),
        ("read", RpcError(5, "no"), False),
    ],
    ids=["read", "write", "write that was not sent", "away", "away for long", "refused"],
)
async def test_a_call_is_repeated_only_if_repeating_it_is_safe(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    failure: Exception,
    again: bool,
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        first = scripted.clients[0]

        async def fails() -> None:
            first.connected = isinstance(failure, RpcError)
            raise failure

        first.outcomes = [fails]
        if again:
            answer = await scripted.calls.call(tool, {})
            assert answer == {"by": id(scripted.clients[1])}
            assert (scripted.upstream.generation, first.closed) == (2, 1)
        else:
            with pytest.raises(type(failure)):
                await scripted.calls.call(tool, {})
        assert len(first.requests) == 1
        assert not scripted.upstream.busy


async def test_a_call_is_sent_at_most_twice(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        (client,) = scripted.clients
        client.outcomes = [lost(delivered=False), lost(delivered=False), {}]
        with pytest.raises(ChannelClosed):
            await scripted.calls.call("write", {})
        # Over HTTP each response has its own connection, so the client is not replaced.
        assert (len(client.requests), len(scripted.clients)) == (2, 1)


async def test_a_call_interrupted_by_a_stop_fails_with_the_reason_for_the_stop(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:

        async def stopped() -> None:
            scripted.upstream.halt()
            raise lost(delivered=False)

        scripted.clients[0].outcomes = [stopped]
        with pytest.raises(ChannelClosed, match='server "red" was disconnected') as ended:
            await scripted.calls.call("read", {})
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
async def test_the_process_is_checked_for_a_hang_after_a_call_without_a_response(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, failure: Exception, checked: bool
) -> None:
    checks: list[Any] = []
    async with ScriptedUpstream(monkeypatch) as scripted:
        one = scripted.upstream
        monkeypatch.setattr(one._liveness, "check_hang", lambda *of: checks.append(of))
        scripted.clients[0].outcomes = [failure]
        with pytest.raises(type(failure)):
            await scripted.calls.call("read", {})
        assert bool(checks) is checked
        assert one.state == "connected"


async def test_a_call_without_a_response_times_out_and_the_process_is_checked(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    async with ScriptedUpstream(monkeypatch) as scripted:
        one = scripted.upstream
        monkeypatch.setattr(one._liveness, "check_hang", lambda *of: checks.append(of))
        scripted.clients[0].outcomes = [asyncio.Event().wait]
        began = virtual_time.now
        with pytest.raises(RequestTimeout) as late:
            await scripted.calls.call("read", {}, timeout=7.0)
        assert (late.value.seconds, late.value.method) == (7.0, "tools/call")
        assert virtual_time.now == began + 7.0
        assert len(checks) == 1
        assert not one.busy


async def test_the_timeout_of_a_call_includes_the_wait_for_a_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted, began = ScriptedUpstream(monkeypatch), virtual_time.now
    scripted.opening = lambda: asyncio.sleep(10)
    scripted.upstream.start()
    with pytest.raises(RequestTimeout):
        await scripted.calls.call("read", {}, timeout=7.0)
    assert virtual_time.now == began + 7.0
    assert await scripted.calls.call("read", {}, timeout=7.0) == {"by": id(scripted.clients[0])}
    await scripted.upstream.stop()


async def test_a_timeout_of_an_inner_request_is_not_reported_as_a_call_timeout(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        inner = RequestTimeout(2.0, "sampling/createMessage")
        scripted.clients[0].outcomes = [inner]
        with pytest.raises(RequestTimeout) as raised:
            await scripted.calls.call("read", {}, timeout=7.0)
        assert raised.value is inner


async def test_a_lazy_server_is_connected_by_a_call_and_stopped_when_idle(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"idle_close": 100.0}
    async with ScriptedUpstream(monkeypatch, lazy=True, settings=settings) as scripted:
        one, (client,) = scripted.upstream, scripted.clients

        async def slow() -> dict[str, Any]:
            await asyncio.sleep(150)
            return {}

        await asyncio.sleep(99)
        assert one.state == "connected"
        client.outcomes = [slow]
        await scripted.calls.call("read", {})
        assert one.state == "connected"
        await asyncio.sleep(99)
        assert one.state == "connected"
        await asyncio.sleep(2)
        assert (one.state, client.closed, one.client) == ("idle", 1, None)
        assert one.settled.is_set()
        assert await scripted.calls.call("read", {}) == {"by": id(scripted.clients[1])}
        assert one.state == "connected"


async def test_a_read_only_request_is_repeated_after_a_lost_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        used: list[Any] = []

        async def fetch(client: Any) -> str:
            used.append(client)
            if len(used) == 1:
                client.connected = False
                raise lost(delivered=True)
            return "text"

        assert await scripted.calls.read("resources/read", fetch) == "text"
        assert used == scripted.clients
        assert len(used) == 2


async def test_subscriptions_are_restored_after_a_reconnect(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        await scripted.calls.subscribe("a:1")
        assert scripted.clients[0].requests == [("+", "a:1")]
        await scripted.upstream.reconnect()
        assert scripted.clients[1].requests == [("+", "a:1")]


async def test_tools_are_listed_again_when_requested(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        one, (client,) = scripted.upstream, scripted.clients
        one.lists.fail(ListKind.TOOLS, RpcError(5, "no"))
        client.tools = [{"name": "new"}]
        scripted.states.clear()
        await scripted.calls.refresh_tools()
        assert (one.tools_error, one.tools) == (None, [{"name": "new"}])
        assert scripted.states == ["connected"]


async def test_the_client_receives_tools_that_were_listed_on_request(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client needs the schemas of listed tools to validate results."""
    async with ScriptedUpstream(monkeypatch) as scripted:
        (client,) = scripted.clients
        client.tools = [{"name": "new"}]
        await scripted.calls.refresh_tools()
        assert client.learned == [["read", "write"], ["new"]]


async def test_the_previous_tools_are_kept_if_they_cannot_be_listed_again(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream(monkeypatch) as scripted:
        one, tools = scripted.upstream, scripted.upstream.tools

        async def refuse(method: str, member: str) -> list[Raw]:
            raise RpcError(5, "no")

        scripted.clients[0].list_raw = refuse
        with pytest.raises(RpcError, match="no"):
            await scripted.calls.refresh_tools()
        assert one.tools is tools
