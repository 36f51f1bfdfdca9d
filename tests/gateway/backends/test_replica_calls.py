"""One server behind a gateway: what is counted of its calls, and who is left when it is lost."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ChannelClosed, CircuitOpenError, ConnectFailed, RpcError
from fairlead.gateway.backends.replica import Replica
from fairlead.gateway.backends.startup_calls import StillStarting
from fairlead.interceptor.circuit_breaker import CircuitBreaker
from fairlead.manager.server_spec import ServerSpec, read_spec
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.relay_settings import RelaySettings
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.upstream.start_limiter import StartLimiter
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


class FakeManager:
    """A manager with one server."""

    def __init__(self) -> None:
        self.status = "connected"
        self.start_limiter = StartLimiter()
        self.supervisor: Any = SimpleNamespace(timeout=5.0, client=None, checked=[])
        self.supervisor.check_hang = self.supervisor.checked.append
        self.hangs = False

    def describe(self) -> dict[str, Any]:
        return {} if self.supervisor is None else {"red": self.supervisor}

    def get_connection_status(self, name: str) -> str:
        return self.status

    async def wait_for_connection(self, name: str) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        raise ConnectFailed("away")


class Place:
    def __init__(self, **settings: Any) -> None:
        self.manager: Any = FakeManager()
        spec: ServerSpec = read_spec({"command": "x"}, None)
        relay = RelaySettings(**settings)
        self.quota = SubscriptionQuota()
        self.parked = ParkedCalls(relay)
        breaker = CircuitBreaker(failure_threshold=2, reset_timeout=30, name="red")
        self.replica = Replica("red", self.manager, spec, relay, self.parked, self.quota, breaker)
        self.outcome: Any = b"{}"
        self.seen: list[Any] = []
        self.replica.relay.answer = self._answer  # type: ignore[method-assign]

    async def _answer(self, asked: Any, front: Any) -> Any:
        self.seen.append(front)
        await asyncio.sleep(2)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    async def ask(self, method: str = "tools/call") -> Any:
        return await self.replica.answer(exchange(method, {}), None)


async def test_calls_are_counted_and_timed(virtual_time: VirtualTime) -> None:
    place = Place()
    one = place.replica
    assert (one.calls, one.errors, one.latency) == (0, 0, None)
    assert await place.ask() == b"{}"
    assert (one.calls, one.errors, one.latency) == (1, 0, 2.0)
    one.latency = 12.0
    await place.ask()
    assert one.latency == pytest.approx(11.0)
    assert one.relay.parked is place.parked
    assert one.relay.quota is place.quota


@pytest.mark.parametrize(
    ("outcome", "errors"),
    [(RpcError(5, "no"), 1), (ChannelClosed("x"), 1), (asyncio.CancelledError(), 0)],
    ids=["refused", "lost", "given up"],
)
async def test_who_gives_up_has_not_been_failed(
    virtual_time: VirtualTime, outcome: BaseException, errors: int
) -> None:
    place = Place()
    place.outcome = outcome
    with pytest.raises(type(outcome)):
        await place.ask()
    assert (place.replica.calls, place.replica.errors) == (1, errors)


async def test_a_server_that_fails_too_often_is_left_alone(virtual_time: VirtualTime) -> None:
    place = Place()
    place.outcome = ChannelClosed("x")
    for _ in range(2):
        with pytest.raises(ChannelClosed):
            await place.ask()
    assert place.replica.rank == 3
    with pytest.raises(CircuitOpenError):
        await place.ask()
    assert (len(place.seen), place.replica.calls) == (2, 2)
    place.outcome = b"{}"
    assert await place.ask("subscriptions/listen") == b"{}"  # takes as long as the client likes
    assert place.replica.calls == 2


@pytest.mark.parametrize(
    ("works", "shared", "error", "counts"),
    [
        (True, True, ChannelClosed("x"), False),
        (True, True, ConnectFailed("x"), False),
        (True, True, RpcError(5, "no"), True),
        (True, False, ChannelClosed("x"), True),
        (False, True, ChannelClosed("x"), True),
    ],
    ids=["own process", "own start", "refused", "http", "all lost"],
)
async def test_the_process_of_one_client_is_no_reason_to_keep_others_away(
    monkeypatch: pytest.MonkeyPatch, works: bool, shared: bool, error: Exception, counts: bool
) -> None:
    place = Place()
    monkeypatch.setattr(Replica, "_works", works)
    upstream = place.replica.relay.upstream
    monkeypatch.setattr(upstream, "way", SimpleNamespace(shared=shared))
    assert place.replica._concerns_one_client(error) is not counts


@pytest.mark.parametrize(
    ("status", "rank"), [("connected", 0), ("connecting", 1), ("disconnected", 2)]
)
async def test_the_chances_of_a_call(status: str, rank: int) -> None:
    place = Place()
    place.manager.status = status
    assert place.replica.rank == rank


async def test_a_call_waits_for_a_start_as_long_as_that_may_take(
    virtual_time: VirtualTime,
) -> None:
    place = Place(call_timeout=0.0)
    place.manager.hangs = True
    began = virtual_time.now
    with pytest.raises(StillStarting):
        await place.replica.base()
    assert virtual_time.now == began + 5.0
    place.manager.hangs = False
    with pytest.raises(ConnectFailed, match="away"):
        await place.replica.base()
    short = Place(call_timeout=2.0)
    assert short.replica.patience.limit == 2.0
    short.manager.supervisor = None
    assert short.replica.patience.limit == 2.0
    assert short.replica._current() is None


class FakeFront:
    def __init__(self, *, news: bool = True, connected: bool = True) -> None:
        self.link: Any = "old"
        self.introduction: Any = b"{}"
        self.news = news
        self.peer = SimpleNamespace(
            connected=connected, conversation=SimpleNamespace(peer="caller")
        )

    def takes(self, note: Any) -> bool:
        return self.news


async def test_sessions_of_a_lost_connection_are_taken_over_by_the_next() -> None:
    place = Place()
    one, lost = place.replica, []
    fronts = [
        *(FakeFront(), FakeFront(news=False), FakeFront(connected=False)),
        *(FakeFront(), FakeFront()),
    ]
    fronts[3].introduction = None
    fronts[4].peer.conversation.peer = None
    link: Any = SimpleNamespace(
        alive=False, fronts=dict.fromkeys(fronts), peer=SimpleNamespace(end=None)
    )
    one.relay.upstream.on_lost = lambda *of: lost.append(of)
    one.lost()  # there is none
    one._link = link
    one._client = client = SimpleNamespace()  # type: ignore[assignment]
    following = asyncio.ensure_future(asyncio.Event().wait())
    one._following = following  # type: ignore[assignment]
    one.lost()
    assert (one._link, one._client, link.fronts) == (None, None, {})
    assert {front.link for front in fronts} == {None}
    assert [of[0] for of in lost] == [link]
    await asyncio.wait([following])
    assert following.cancelled()
    joined: list[Any] = []

    async def reconnect(front: Any, caller: Any) -> Any:
        joined.append(front)

    one.relay.reconnect_session = reconnect  # type: ignore[method-assign]
    await one.adopt()
    await one.adopt()
    assert joined == [fronts[0]]
    alive: Any = SimpleNamespace(alive=True, fronts={})
    place.manager.supervisor.client = client
    one._link, one._client = alive, client  # type: ignore[assignment]
    one.lost()
    assert one._link is alive
    one._link = None


async def test_a_call_that_was_given_up_is_a_reason_to_look() -> None:
    place = Place()
    client: Any = object()
    place.replica._doubt(client)
    assert place.manager.supervisor.checked == [client]
    place.manager.supervisor = None
    place.replica._doubt(client)


async def test_who_only_listens_is_hung_up_on() -> None:
    place = Place()
    ended: list[Any] = []

    async def end() -> None:
        ended.append("all")

    place.replica.hang_up("edge")
    await place.replica.end_streams()
    changes = SimpleNamespace(stop=ended.append, end=end)
    place.replica._link = SimpleNamespace(changes=changes)  # type: ignore[assignment]
    place.replica.hang_up("edge")
    await place.replica.end_streams()
    assert ended == ["edge", "all"]
    place.replica._link = None
    await place.replica.close()
