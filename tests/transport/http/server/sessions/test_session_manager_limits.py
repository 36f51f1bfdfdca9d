"""Sessions of an endpoint: limits per client, idle sessions, and restoration."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.protocol.envelope import SessionContext, SessionState, TransportContext
from fairlead.transport.client_shares import NoShareLeft
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.sessions.http_session import HttpSession
from fairlead.transport.http.server.sessions.session_manager import SessionManager
from fairlead.transport.http.server.sessions.session_store import MemorySessionStore, StoredSession
from fairlead.wire import Request, decode
from tests.support.virtual_time import VirtualTime

HELLO = decode(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')


class Server:
    """A server that accepts sessions and answers `initialize` with a version."""

    def __init__(self, version: str | None = "2025-11-25") -> None:
        self.version = version  # None: the server does not respond
        self.peers: list[ServedSession] = []

    def __call__(self, channel: Any, principal: Principal) -> "ServedSession":
        peer = ServedSession(channel, self.version)
        self.peers.append(peer)
        return peer


class ServedSession:
    def __init__(self, channel: HttpSession, version: str | None) -> None:
        self.session = SessionContext(state=SessionState.ACTIVE, protocol_version=version)
        self.heard: list[str] = []
        self.closed = False
        self._channel = channel
        self._answers = version is not None
        self._running = asyncio.ensure_future(channel.run(self._hear))

    def _hear(self, item: Any) -> None:
        self.heard.append(item.method)
        if isinstance(item, Request) and self._answers:
            self._channel.send_success(item.id, b"{}")

    async def close(self) -> None:
        self.closed = True
        await self._channel.close()
        await self._running


def at(address: str, path: str = "/mcp") -> TransportContext:
    return TransportContext(transport_type="http", peer_address=address, path=path)


async def test_a_session_is_found_only_for_its_principal(virtual_time: VirtualTime) -> None:
    manager = SessionManager(HttpSettings(), Server())
    one = manager.open(at("10.0.0.1"), "ada")
    other = manager.open(at("10.0.0.1"), ANONYMOUS)
    assert len(one.id) == 32
    assert one.id != other.id
    assert len(manager) == 2
    virtual_time.now += 5
    assert manager.get(one.id, "ada") is one
    assert (one.used, other.used) == (virtual_time.now, virtual_time.now - 5)
    for name, principal in ((one.id, "bob"), (one.id, ANONYMOUS), (other.id, "ada"), ("x", "ada")):
        assert manager.get(name, principal) is None
    await one.close()
    assert manager.get(one.id, "ada") is None
    await manager.close()
    assert len(manager) == 0
    assert manager.closing


async def test_a_client_at_its_limit_loses_an_idle_session_or_is_refused() -> None:
    server = Server()
    manager = SessionManager(HttpSettings(max_sessions_per_client=2), server)
    first, second = (manager.open(at("10.0.0.1"), ANONYMOUS) for _ in range(2))
    first.open_stream({1})
    third = manager.open(at("10.0.0.1"), ANONYMOUS)
    assert manager.get(second.id, ANONYMOUS) is None
    assert manager.get(first.id, ANONYMOUS) is first
    third.open_stream({1})
    with pytest.raises(NoShareLeft):
        manager.open(at("10.0.0.1"), ANONYMOUS)
    assert manager.open(at("10.0.0.2"), ANONYMOUS)
    assert manager.open(at("10.0.0.1"), "ada")
    await manager.close()
    assert all(peer.closed for peer in server.peers)
    assert not manager._ending


@pytest.mark.parametrize(
    ("idle", "busy", "left"), [(99, False, 1), (125, False, 0), (125, True, 1)]
)
async def test_an_unused_session_expires(
    virtual_time: VirtualTime, idle: float, busy: bool, left: int
) -> None:
    server = Server()
    manager = SessionManager(HttpSettings(session_idle=100), server)
    one = manager.open(at("10.0.0.1"), ANONYMOUS)
    if busy:
        one.open_stream({1})
    await asyncio.sleep(idle)
    assert len(manager) == left
    assert server.peers[0].closed is not bool(left)
    assert (manager._sweep is None) is not bool(left)
    await manager.close()
    assert manager._sweep is None


async def test_sessions_never_expire_if_the_idle_timeout_is_disabled(
    virtual_time: VirtualTime,
) -> None:
    manager = SessionManager(HttpSettings(session_idle=0), Server())
    manager.open(at("10.0.0.1"), ANONYMOUS)
    await asyncio.sleep(100_000)
    assert len(manager) == 1
    await manager.close()


async def test_deleting_a_session_deletes_its_events() -> None:
    manager = SessionManager(HttpSettings(), Server())
    one = manager.open(at("10.0.0.1"), ANONYMOUS)
    one.keep(one.standalone)
    one.standalone.put(b"1")
    one.standalone.put(b"2")
    assert await manager.store.after(one.id, "g", 1) == [(2, b"2")]
    assert manager._client_of(one.id) == one.client != ""
    assert manager._client_of("x") == ""
    await manager.end(one)
    assert await manager.store.after(one.id, "g", 1) is None
    await manager.close()


class Restoring:
    """An endpoint that stores its sessions, and a second endpoint that restores them."""

    def __init__(self, version: str | None = "2025-11-25", **settings: Any) -> None:
        self.store = MemorySessionStore()
        self.settings = HttpSettings(session_store=self.store, **settings)
        self.old = SessionManager(self.settings, Server())
        self.server = Server(version)
        self.new = SessionManager(self.settings, self.server)

    async def keep(self, principal: Principal = "ada") -> HttpSession:
        session = self.old.open(at("10.0.0.1"), principal)
        assert session.settle_revision()
        assert self.old.restorer is not None
        assert isinstance(HELLO, Request)
        await self.old.restorer.keep(session, HELLO)
        return session

    async def restore(self, session_id: str, **more: Any) -> HttpSession | None:
        call: Any = SimpleNamespace(context=at("10.0.0.1", more.pop("path", "/mcp")))
        return await self.new.find(call, session_id.encode(), more.pop("principal", "ada"))

    async def stored(self, session: HttpSession) -> StoredSession | None:
        assert session.key is not None
        return await self.store.load(session.key)


async def test_concurrent_requests_restore_a_session_once() -> None:
    both = Restoring()
    kept = await both.keep()
    stored = await both.stored(kept)
    assert stored is not None
    assert (stored.principal, stored.revision) == ("ada", "2025-11-25")
    assert time.time() - stored.used < 60
    await both.old.close()
    first, second = await asyncio.gather(both.restore(kept.id), both.restore(kept.id))
    assert first is second is not None
    assert (first.id, first.key, first.revision) == (kept.id, kept.key, kept.revision)
    assert both.new.get(kept.id, "ada") is first
    [peer] = both.server.peers
    assert peer.heard == ["initialize", "notifications/initialized"]
    assert await both.restore(kept.id) is first
    assert await both.restore(kept.id, principal="bob") is None
    assert both.server.peers == [peer]
    assert not first.busy
    await both.new.close()
    assert await both.stored(kept) is not None


@pytest.mark.parametrize(
    "asked",
    [{"principal": "bob"}, {"principal": ANONYMOUS}, {"path": "/other"}],
    ids=["another principal", "anonymous", "another path"],
)
async def test_a_session_is_not_restored_for_other_principals(asked: dict[str, Any]) -> None:
    both = Restoring()
    kept = await both.keep()
    await both.old.close()
    assert await both.restore(kept.id, **asked) is None
    assert await both.restore("x") is None
    assert both.server.peers == []
    await both.new.close()


@pytest.mark.parametrize(("age", "found"), [(99, True), (101, False)])
async def test_a_stored_session_is_restored_until_it_expires(age: float, found: bool) -> None:
    both = Restoring(session_kept=100)
    kept = await both.keep()
    await both.old.close()
    assert kept.key is not None
    await both.store.touch([kept.key], time.time() - age)
    assert (await both.restore(kept.id) is not None) is found
    await both.new.close()


@pytest.mark.parametrize(
    ("version", "remains"), [("2025-06-18", False), ("1999", False), (None, True)]
)
async def test_a_session_is_not_restored_if_the_server_refuses_the_handshake(
    virtual_time: VirtualTime, version: str | None, remains: bool
) -> None:
    both = Restoring(version)
    kept = await both.keep()
    await both.old.close()
    begun = virtual_time.now
    assert await both.restore(kept.id) is None
    assert virtual_time.now - begun == (30 if version is None else 0)
    assert both.server.peers[0].closed
    assert (await both.stored(kept) is not None) is remains
    assert len(both.new) == 0
    await both.new.close()


async def test_a_stored_session_is_deleted_when_it_ends_but_not_when_its_server_stops() -> None:
    both = Restoring()
    one, other, third = [await both.keep() for _ in range(3)]
    await both.old.end(one)
    await other.close()  # closed by the server, not by the client
    await both.old.close()
    assert [await both.stored(s) is not None for s in (one, other, third)] == [False, False, True]
    assert both.new.restorer is not None
    assert not await both.new.restorer.drop(third.id, "/mcp", "bob")
    assert not await both.new.restorer.drop(third.id, "/other", "ada")
    assert await both.new.restorer.drop(third.id, "/mcp", "ada")
    assert not await both.new.restorer.drop(third.id, "/mcp", "ada")
    await both.new.close()


async def test_a_session_is_not_restored_from_an_invalid_initialize_request() -> None:
    both = Restoring()
    kept = await both.keep()
    await both.old.close()
    stored = await both.stored(kept)
    assert stored is not None
    for opening in (b"odd", b'{"jsonrpc":"2.0","method":"x"}'):
        fields = {name: getattr(stored, name) for name in StoredSession.__struct_fields__}
        await both.store.save(StoredSession(**{**fields, "opening": opening}))
        assert await both.restore(kept.id) is None
    assert both.server.peers == []
    await both.new.close()


async def test_closing_cancels_a_restoration_and_keeps_the_stored_session() -> None:
    both = Restoring(None)
    kept = await both.keep()
    await both.old.close()
    restoring = asyncio.create_task(both.restore(kept.id))
    async with asyncio.timeout(5):
        while not both.server.peers:
            await asyncio.sleep(0)
        await both.new.close()
        assert await restoring is None
    assert both.server.peers[0].closed
    assert await both.stored(kept) is not None


async def test_a_failing_store_prevents_restoration_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = Restoring()
    kept = await both.keep()

    async def fail(*_: Any) -> Any:
        raise OSError("disk full")

    both.store.load = fail  # type: ignore[method-assign]
    assert await both.restore(kept.id) is None
    assert "the session store failed: OSError: disk full" in caplog.text
    await both.old.close()
    await both.new.close()


@pytest.mark.parametrize(("kept_for", "remains"), [(0, True), (100, False)])
async def test_stored_sessions_expire_unless_kept_forever(kept_for: float, remains: bool) -> None:
    both = Restoring(session_kept=kept_for)
    kept, used = await both.keep(), await both.keep()
    restorer = both.old.restorer
    assert restorer is not None
    assert kept.key is not None
    assert used.key is not None
    await both.store.touch([kept.key, used.key], time.time() - 1000)
    await restorer.touch([used.key])
    assert (await both.stored(kept) is not None) is remains
    assert await both.stored(used) is not None
    await both.old.close()
    await both.new.close()


async def test_the_store_is_updated_with_the_sessions_in_use(virtual_time: VirtualTime) -> None:
    both = Restoring(session_idle=1000)
    busy, used, idle = [await both.keep() for _ in range(3)]
    keys = [one.key for one in (busy, used, idle) if one.key is not None]
    busy.open_stream({1})

    async def told() -> list[bool]:
        """Return the sessions reported to the store since the last call."""
        found = [await both.stored(one) for one in (busy, used, idle)]
        await both.store.touch(keys, time.time() - 100)
        return [one is not None and time.time() - one.used < 50 for one in found]

    await told()
    await asyncio.sleep(251)  # slightly longer than a quarter of the idle timeout
    assert await told() == [True, True, True]
    assert both.old.get(used.id, "ada") is used
    await asyncio.sleep(249)
    assert await told() == [True, True, False]
    await asyncio.sleep(250)
    assert await told() == [True, False, False]
    await both.old.close()
    assert await told() == [True, False, False]
    await both.new.close()


async def test_closing_waits_for_sessions_that_are_ending() -> None:
    release = asyncio.Event()

    class SlowSession(ServedSession):
        async def close(self) -> None:
            await release.wait()
            await super().close()

    served: list[SlowSession] = []

    def accept(channel: Any, principal: Principal) -> SlowSession:
        served.append(SlowSession(channel, "2025-11-25"))
        return served[-1]

    manager = SessionManager(HttpSettings(max_sessions_per_client=1), accept)
    first = manager.open(at("10.0.0.1"), ANONYMOUS)
    second = manager.open(at("10.0.0.1"), ANONYMOUS)
    assert manager.get(first.id, ANONYMOUS) is None
    await asyncio.sleep(0)
    release.set()
    await manager.end(second)
    release.clear()
    manager.open(at("10.0.0.2"), ANONYMOUS)
    manager.open(at("10.0.0.2"), ANONYMOUS)
    closing = asyncio.create_task(manager.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    release.set()
    await closing
    assert all(one.closed for one in served)


async def test_a_disconnect_does_not_cancel_the_restoration() -> None:
    both = Restoring()
    kept = await both.keep()
    await both.old.close()
    first = asyncio.create_task(both.restore(kept.id))
    second = asyncio.create_task(both.restore(kept.id))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None
    with pytest.raises(asyncio.CancelledError):
        await first
    await both.new.close()


async def test_no_session_is_restored_above_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    both = Restoring(max_sessions_per_client=1)
    kept = await both.keep()
    await both.old.close()
    busy = both.new.open(at("10.0.0.1"), "ada")
    busy.open_stream({1})
    assert await both.restore(kept.id) is None
    assert "cannot restore a session: too many sessions" in caplog.text
    await both.new.close()


async def test_no_session_is_restored_without_a_store_or_after_close() -> None:
    call: Any = SimpleNamespace(context=at("10.0.0.1"))
    manager = SessionManager(HttpSettings(), Server())
    assert await manager.find(call, b"x", "ada") is None
    both = Restoring()
    kept = await both.keep()
    await both.old.close()
    found = await both.new.find(call, kept.id.encode(), "ada")
    assert found is not None
    assert await both.new.find(call, kept.id.encode(), "ada") is found
    await both.new.close()
    assert await both.new.find(call, kept.id.encode(), "ada") is None
    assert len(both.store) == 1


async def test_an_idle_session_stays_in_the_store(virtual_time: VirtualTime) -> None:
    both = Restoring(session_idle=100)
    kept = await both.keep()
    await asyncio.sleep(130)
    assert len(both.old) == 0
    assert await both.stored(kept) is not None
    assert await both.restore(kept.id) is not None
    await both.old.close()
    await both.new.close()


async def test_close_waits_for_cancelled_restorations() -> None:
    both = Restoring(None)
    kept = await both.keep()
    await both.old.close()
    restoring = asyncio.create_task(both.restore(kept.id))
    async with asyncio.timeout(5):
        while not both.server.peers:
            await asyncio.sleep(0)
        assert both.new.restorer is not None
        await both.new.restorer.close()
        assert both.server.peers[0].closed
        assert await restoring is None
    await both.new.close()


async def test_a_session_dropped_by_the_limit_is_deleted_from_the_store() -> None:
    both = Restoring(max_sessions_per_client=1)
    kept = await both.keep()
    both.old.open(at("10.0.0.1"), "ada")
    for _ in range(5):
        await asyncio.sleep(0)
    assert await both.stored(kept) is None
    await both.old.close()
    await both.new.close()
