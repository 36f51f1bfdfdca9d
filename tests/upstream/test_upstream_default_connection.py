"""The default connection of a real process, its replacement, and the sessions that used it."""

import asyncio
from typing import Any

import pytest

from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ChannelClosed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.relay.client_session import ClientSession
from fairlead.relay.relay import Relay
from fairlead.upstream.connection.server_events import EventReceiver
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream
from tests.support.gateway_servers import LIMIT, program, until


def make(entry: dict[str, Any], *, lazy: bool = False, **settings: Any) -> Upstream:
    spec, given = ServerSpec(entry=read_entry(entry)), UpstreamSettings(**settings)
    upstream = Upstream("red", spec, given, starts=StartLimiter(), lazy=lazy)
    upstream.serve_clients(())
    return upstream


async def test_a_lazy_process_is_started_again_for_the_next_client() -> None:
    upstream = make(program("red"), lazy=True, idle_close=0.05, health_interval=0)
    lost: list[UpstreamConnection] = []

    def on_lost(
        connection: UpstreamConnection, end: ChannelClosed, sessions: list[EventReceiver]
    ) -> None:
        lost.append(connection)

    upstream.pool.on_lost = on_lost
    async with asyncio.timeout(LIMIT):
        upstream.start()
        first = await upstream.default_connection()
        assert await upstream.default_connection() is first
        await until(lambda: upstream.state == "idle")
        second = await upstream.default_connection()
        assert second is not first
        assert (first.alive, lost) == (False, [first])
        await upstream.stop()


# Sessions of a default connection that was lost


class FakePeer:
    """A fake peer of a client that may be disconnected or may not have finished its handshake."""

    def __init__(self, *, connected: bool = True, caller: Any = "caller") -> None:
        self.connected = connected
        self.conversation = self
        self.peer = caller


class FakeSession(ClientSession):
    def __init__(self, *, news: bool = True, introduction: Any = b"{}", **peer: Any) -> None:
        super().__init__(ANONYMOUS)
        self.peer = FakePeer(**peer)  # type: ignore[assignment]
        self.uris = set()
        self.introduction = introduction
        self._news = news

    def takes(self, note: Any) -> bool:
        return self._news


async def test_only_listening_sessions_of_a_lost_connection_move_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = make({"command": "x"})
    relay, joined = Relay(upstream), list[Any]()

    async def reconnect(session: Any, caller: Any) -> None:
        joined.append((session, caller))

    monkeypatch.setattr(relay._sessions, "reconnect", reconnect)
    channel: Any = FakePeer()
    connection: Any = UpstreamConnection.__new__(UpstreamConnection)
    vars(connection).update(borrowed=True, ending=False, changes=None, sessions={})
    connection.peer = channel
    sessions = [
        FakeSession(),
        FakeSession(news=False),
        FakeSession(connected=False),
        FakeSession(introduction=None),
        FakeSession(caller=None),
        FakeSession(),
    ]
    for session in sessions:
        session.connection = connection
        connection.sessions[session] = None
    channel.end = None
    upstream._take_from_clients()  # has no effect, because no default connection is open
    upstream._default = connection
    upstream._take_from_clients()
    assert (upstream.current, connection.sessions) == (None, {})
    assert {session.connection for session in sessions} == {None}
    # a request of this session has already assigned a connection
    sessions[5].connection = connection
    await relay.readopt_sessions()
    await relay.readopt_sessions()
    assert joined == [(sessions[0], "caller")]
    await relay.close()
