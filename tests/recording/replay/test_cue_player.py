"""Tests of the playback of one call: server notifications, requests and cancellations."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import ANONYMOUS
from fairlead.recording.replay import Pace, load_script
from fairlead.recording.replay.cue_player import CuePlayer
from fairlead.recording.replay.script import ScriptedCall
from fairlead.wire import Notification
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

UP, DOWN = "client_to_server", "server_to_client"


def up(**message: Any) -> dict[str, Any]:
    return {"dir": UP, "message": message}


def down(related: int | None = None, **message: Any) -> dict[str, Any]:
    return {"dir": DOWN, "message": message} | ({} if related is None else {"related": related})


def script(path: Path, *lines: dict[str, Any]) -> list[ScriptedCall]:
    """Return the calls on a tape whose lines are one second apart."""
    tape = path / "one.tape.jsonl"
    each = [{"seq": n, "at": float(n), "session": "s"} | line for n, line in enumerate(lines, 1)]
    tape.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in each))
    return load_script(tape)


class Edge(NullReplyPath):
    """Fake reply path to a client, which records notifications and requests."""

    def __init__(self) -> None:
        super().__init__(ANONYMOUS)
        self.told: list[tuple[str, Any]] = []
        self.asked: list[str] = []
        self.answered = asyncio.Event()
        self.gone = False

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        params = notification.params
        given = msgspec.json.decode(params) if isinstance(params, Raw) else None
        self.told.append((notification.method, given))

    async def request_caller(
        self, exchange: Exchange, method: str, params: Any, *, timeout: float | None = None
    ) -> Raw:
        self.asked.append(f"begin {method}")
        if self.gone:
            raise ChannelClosed("gone")
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.asked.append(f"withdrawn {method}")
            raise
        self.asked.append(f"end {method}")
        return Raw(b"{}")


class Client:
    """Fake connection that receives messages unrelated to a call."""

    def __init__(self) -> None:
        self.channel = self
        self.sent: list[str] = []
        self.requests: list[tuple[str, Any]] = []

    def send(self, note: Notification) -> None:
        self.sent.append(note.method)

    async def request(self, method: str, params: Any, *, timeout: float) -> None:
        self.requests.append((method, timeout))


def player(
    cue: ScriptedCall, *, stateless: bool = False, params: Any = None, **about: Any
) -> tuple[CuePlayer, Edge]:
    asked = exchange(cue.method, params or {}, stateless=stateless)
    asked.edge = edge = Edge()
    given = None if about.pop("alone", False) else asked
    peer = about.pop("peer", None)
    return CuePlayer(cue, about.pop("pace", Pace()), given, peer, about.pop("listening", {})), edge


async def test_the_response_is_returned_after_the_notifications_recorded_before_it(
    tmp_path: Path, virtual_time: VirtualTime
) -> None:
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(1, method="notifications/x", params={"n": 1}),
        down(id=1, result={"n": 2}),
        down(method="notifications/y"),
    )
    playing, edge = player(cue, pace=Pace(1.0))
    began = virtual_time.now
    answer = await playing.play_until_response()
    assert (virtual_time.now - began, answer.seq) == (2.0, 3)
    assert edge.told == [("notifications/x", {"n": 1})]
    rest = playing.rest()
    assert rest is not None
    await rest
    # Sent without a related request, because the request has ended.
    assert edge.told == [("notifications/x", {"n": 1})]


async def test_the_player_has_no_remaining_steps_if_none_follows_the_response(
    tmp_path: Path,
) -> None:
    (cue,) = script(tmp_path, up(id=1, method="a"), down(id=1, result={}))
    playing, _ = player(cue)
    await playing.play_until_response()
    assert playing.rest() is None
    (silent,) = script(tmp_path, up(id=1, method="a"))
    assert player(silent)[0].rest() is None


async def test_a_request_without_a_recorded_response_waits_until_it_is_cancelled(
    tmp_path: Path,
) -> None:
    (cue,) = script(tmp_path, up(id=1, method="a"), down(1, id=9, method="roots/list"))
    playing, edge = player(cue)
    task = asyncio.create_task(playing.play_until_response())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert edge.asked == ["begin roots/list", "withdrawn roots/list"]


@pytest.mark.parametrize("withdrawn", [True, False])
async def test_playback_awaits_or_cancels_a_server_request_as_recorded(
    tmp_path: Path, withdrawn: bool
) -> None:
    gone = down(method="notifications/cancelled", params={"requestId": 9})
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(1, id=9, method="roots/list"),
        gone if withdrawn else up(id=9, result={}),
        down(id=1, result={}),
    )
    playing, edge = player(cue)
    task = asyncio.create_task(playing.play_until_response())
    for _ in range(5):
        await asyncio.sleep(0)
    if not withdrawn:
        assert not task.done()
        edge.answered.set()
    async with asyncio.timeout(5):
        assert (await task).kind == "answer"
    assert edge.asked == ([] if withdrawn else ["begin roots/list", "end roots/list"])
    assert playing._asked == {}


async def test_playback_continues_if_the_client_cannot_answer_a_server_request(
    tmp_path: Path,
) -> None:
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(1, id=9, method="roots/list"),
        up(id=9, result={}),
        down(id=1, result={}),
    )
    playing, edge = player(cue)
    edge.gone = True
    assert (await playing.play_until_response()).kind == "answer"
    stateless, edge = player(cue, stateless=True)
    assert (await stateless.play_until_response()).kind == "answer"
    assert edge.asked == []  # stateless clients receive no server requests


async def test_replayed_progress_has_the_token_of_the_current_client(tmp_path: Path) -> None:
    token = {"_meta": {"progressToken": "old"}}
    (cue,) = script(
        tmp_path,
        up(id=1, method="a", params=token),
        down(method="notifications/progress", params={"progressToken": "old", "progress": 1}),
        down(id=1, result={}),
    )
    playing, edge = player(cue, params={"_meta": {"progressToken": "new"}})
    await playing.play_until_response()
    told = {"progressToken": "new", "progress": 1}
    assert edge.told == [("notifications/progress", told)]
    silent, edge = player(cue)
    await silent.play_until_response()
    assert edge.told == []


@pytest.mark.parametrize(
    ("related", "peer", "told", "sent"),
    [(1, True, 1, 0), (None, True, 0, 1), (None, False, 1, 0), (1, False, 1, 0)],
)
async def test_notifications_unrelated_to_a_call_are_sent_on_the_connection_if_any(
    tmp_path: Path, related: int | None, peer: bool, told: int, sent: int
) -> None:
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(related, method="notifications/message"),
        down(id=1, result={}),
    )
    client = Client()
    playing, edge = player(cue, peer=client if peer else None)
    await playing.play_until_response()
    assert (len(edge.told), len(client.sent)) == (told, sent)


async def test_a_server_request_unrelated_to_a_call_has_no_timeout(tmp_path: Path) -> None:
    (cue,) = script(
        tmp_path,
        up(method="notifications/initialized"),
        down(id=9, method="roots/list"),
        up(id=9, result={}),
    )
    client = Client()
    playing, _ = player(cue, peer=client, alone=True)
    await playing.all()
    assert client.requests == [("roots/list", 0)]
    nobody, _ = player(cue, alone=True)
    await nobody.all()


async def test_notifications_of_a_recorded_subscription_are_sent_to_subscribers(
    tmp_path: Path,
) -> None:
    key = "io.modelcontextprotocol/subscriptionId"
    changed = {"_meta": {key: 1}}
    listen, call = script(
        tmp_path,
        up(id=1, method="subscriptions/listen", params={}),
        up(id=2, method="a"),
        down(method="notifications/tools/list_changed", params=changed),
        down(id=2, result={}),
    )
    listener = exchange("subscriptions/listen", {})
    listener.edge = heard = Edge()
    playing, edge = player(call, listening={id(listen): listener})
    await playing.play_until_response()
    assert heard.told == [("notifications/tools/list_changed", {"_meta": {key: 1}})]
    assert edge.told == []
    alone, edge = player(call)  # this client has not subscribed
    await alone.play_until_response()
    assert edge.told == []


async def test_a_failure_during_playback_cancels_pending_requests(tmp_path: Path) -> None:
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(1, id=9, method="roots/list"),
        down(1, method="notifications/x"),
        down(id=1, result={}),
    )
    playing, edge = player(cue)

    async def fails(*_: Any) -> None:
        raise ChannelClosed("gone")

    edge.notify_caller = fails  # type: ignore[method-assign]
    with pytest.raises(ChannelClosed):
        await playing.play_until_response()
    assert playing._asked == {}
    await asyncio.sleep(0)
    assert "end roots/list" not in edge.asked


async def test_a_pending_server_request_is_cancelled_with_its_call(tmp_path: Path) -> None:
    (cue,) = script(
        tmp_path,
        up(id=1, method="a"),
        down(1, id=9, method="roots/list"),
        up(id=9, result={}),
        down(id=1, result={}),
    )
    playing, edge = player(cue)
    task = asyncio.create_task(playing.play_until_response())
    for _ in range(5):
        await asyncio.sleep(0)
    assert edge.asked == ["begin roots/list"]
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert edge.asked[1:] == ["withdrawn roots/list"]
    assert playing._asked == {}
