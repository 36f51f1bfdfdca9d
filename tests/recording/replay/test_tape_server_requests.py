"""Tests of single requests to a server that replays a tape."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.errors import ChannelClosed, RpcError
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import ANONYMOUS
from fairlead.recording.replay import TapeServer
from fairlead.recording.replay import tape_server as serving
from fairlead.wire import Notification
from tests.support.single_exchange import exchange

UP, DOWN = "client_to_server", "server_to_client"
VERSION = "io.modelcontextprotocol/protocolVersion"
META = {"_meta": {VERSION: "2026-07-28"}}


def tape(path: Path, *lines: tuple[str, str, dict[str, Any]]) -> Path:
    place = path / "one.tape.jsonl"
    each = [
        {"seq": n, "at": 0.0, "dir": way, "session": session, "message": message}
        for n, (session, way, message) in enumerate(lines, 1)
    ]
    place.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in each))
    return place


def call(
    number: int, method: str, answer: dict[str, Any] | None, session: str = "s1", **params: Any
) -> list[tuple[str, str, dict[str, Any]]]:
    asked = (session, UP, {"id": number, "method": method, "params": params})
    return [asked] if answer is None else [asked, (session, DOWN, {"id": number, **answer})]


async def ask(server: TapeServer, method: str, params: Any = None, **about: Any) -> Any:
    edge = about.pop("edge", None)
    asked = exchange(method, {} if params is None else params, **{"stateless": False, **about})
    if edge is not None:
        asked.edge = edge
    return json.loads(bytes(await server.handler(asked) or b""))


async def refusal(server: TapeServer, method: str, params: Any = None, **about: Any) -> Any:
    with pytest.raises(RpcError) as refused:
        await ask(server, method, params, **about)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"result": {"n": 1}}, {"n": 1}),
        ({"error": {"code": 7, "message": "no"}}, (7, "no")),
        ({"error": 5}, (-32603, "The recorded response cannot be decoded")),
        (None, (-32601, "the tape has no response to a")),
    ],
    ids=["result", "error", "odd", "nothing"],
)
async def test_a_request_to_a_tape_server_gets_the_recorded_response(
    tmp_path: Path, answer: Any, expected: Any
) -> None:
    server = TapeServer(tape(tmp_path, *call(1, "a", answer)))
    if isinstance(expected, tuple):
        assert await refusal(server, "a") == expected
    else:
        assert await ask(server, "a") == expected


@pytest.mark.parametrize(
    ("method", "stateless", "expected"),
    [
        ("ping", False, {}),
        ("logging/setLevel", False, {}),
        ("ping", True, (-32602, "ping is not on the tape")),
        ("initialize", False, (-32601, "Method not found: initialize")),
        ("server/discover", True, (-32601, "Method not found: server/discover")),
        ("other", False, (-32602, "other is not on the tape")),
    ],
)
async def test_requests_that_are_not_on_the_tape_are_rejected_unless_they_are_automatic(
    tmp_path: Path, method: str, stateless: bool, expected: Any
) -> None:
    server = TapeServer(tape(tmp_path, *call(1, "a", {"result": {}})))
    if isinstance(expected, tuple):
        assert await refusal(server, method, stateless=stateless) == expected
    else:
        assert await ask(server, method, stateless=stateless) == expected
    assert server.missed == (
        [method] if isinstance(expected, tuple) and "tape" in expected[1] else []
    )


async def test_a_limited_number_of_missed_requests_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MISSED", 2)
    server = TapeServer(tape(tmp_path, *call(1, "a", {"result": {}})))
    for name in ("x", "y", "z"):
        await refusal(server, "tools/call", {"name": name})
    assert server.missed == ["tools/call 'x'", "tools/call 'y'"]


async def test_a_tape_without_a_handshake_answers_discover_from_the_recorded_requests(
    tmp_path: Path,
) -> None:
    server = TapeServer(tape(tmp_path, *call(1, "tools/call", {"result": {}}, **META)))
    found = await ask(server, "server/discover", stateless=True)
    assert found["capabilities"] == {"tools": {}}
    assert server.inline_methods == ()
    assert server.answer_inline(exchange()) is None
    assert server.tool_param_headers("x", ANONYMOUS) == ()


async def test_strict_sessions_are_replayed_in_the_recorded_order(
    tmp_path: Path,
) -> None:
    def session(name: str, answer: str) -> list[Any]:
        return [
            *call(1, "initialize", {"result": {"who": name}}, name),
            *call(2, "a", {"result": {"n": answer}}, name),
            *call(3, "b", {"result": {}}, name),
        ]

    server = TapeServer(
        tape(tmp_path, *session("s1", "one"), *session("s2", "two")), matching="strict"
    )
    edges = [NullReplyPath(ANONYMOUS) for _ in range(3)]
    for edge, who, answer in zip(edges, ("s1", "s2"), ("one", "two"), strict=False):
        assert await ask(server, "initialize", edge=edge) == {"who": who}
        code, why = await refusal(server, "b", edge=edge)
        assert (code, why) == (-32602, "b is not on the tape; expected a")
        assert await ask(server, "a", edge=edge) == {"n": answer}
    code, why = await refusal(server, "initialize", edge=edges[2])
    assert code == -32601
    assert len(server._peers) == 3


@pytest.mark.parametrize(("seq", "begun"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
async def test_seek_continues_a_strict_replay_in_the_session_of_the_given_entry(
    tmp_path: Path, seq: int, begun: int
) -> None:
    # The last requests of the two sessions are entries 3 and 7, with responses 4 and 8.
    lines = [
        line
        for name in ("s1", "s2")
        for number, method in ((1, "initialize"), (2, "a"))
        for line in call(number, method, {"result": {}}, name)
    ]
    server = TapeServer(tape(tmp_path, *lines), matching="strict")
    server.seek(seq)
    assert server._begun == (begun if seq not in (4, 8) else begun + 1)


async def test_steps_of_a_notification_are_replayed_in_the_background_until_the_close(
    tmp_path: Path,
) -> None:
    server = TapeServer(
        tape(
            tmp_path,
            ("s1", UP, {"method": "notifications/initialized"}),
            ("s1", DOWN, {"id": 9, "method": "roots/list"}),
            ("s1", UP, {"id": 9, "result": {}}),
            *call(1, "a", {"result": {}}),
        )
    )

    class Peer:
        """A client that never responds."""

        def __init__(self) -> None:
            caller = exchange(stateless=False).caller
            self.conversation = type("C", (), {"peer": caller})()
            self.asked: list[str] = []

        async def request(self, method: str, params: Any, *, timeout: float) -> None:
            self.asked.append(method)
            await asyncio.Event().wait()

    peer: Any = Peer()
    server._told(peer, Notification("notifications/initialized"))
    server._told(peer, Notification("notifications/other"))
    assert len(server._background) == 1
    for _ in range(3):
        await asyncio.sleep(0)
    assert peer.asked == ["roots/list"]
    async with server.running():
        pass
    assert server._background == set()
    server._told(peer, Notification("notifications/initialized"))
    for _ in range(3):
        await asyncio.sleep(0)
    (playing,) = server._background
    await server.end_streams()
    await asyncio.wait([playing])
    assert playing.cancelled()
    await asyncio.sleep(0)


async def test_steps_after_the_response_are_replayed_in_the_background(tmp_path: Path) -> None:
    told: list[str] = []

    class Edge(NullReplyPath):
        async def notify_caller(self, asked: Exchange, note: Notification) -> None:
            told.append(note.method)

    server = TapeServer(
        tape(
            tmp_path,
            *call(1, "a", {"result": {}}),
            ("s1", DOWN, {"method": "notifications/late"}),
        )
    )
    assert await ask(server, "a", edge=Edge(ANONYMOUS)) == {}
    assert len(server._background) == 1
    await asyncio.wait(server._background)
    assert told == []  # dropped, because the request has ended and no connection is open


async def test_a_client_that_disconnects_during_a_replay_is_not_an_error() -> None:
    async def fails() -> None:
        raise ChannelClosed("gone")

    await serving._quietly(fails())


def test_the_soon_method_of_a_tape_server_calls_its_argument_immediately(tmp_path: Path) -> None:
    server = TapeServer(tape(tmp_path, *call(1, "a", {"result": {}})))
    done: list[int] = []
    server.soon(lambda: done.append(1))
    assert done == [1]


@pytest.mark.parametrize(
    ("lines", "eras"),
    [
        ([*call(1, "a", None), *call(2, "initialize", None)], [False, False]),
        ([*call(1, "server/discover", None, **META), *call(2, "a", None)], [False]),
        ([*call(1, "initialize", None), *call(2, "a", None, **META)], [True]),
        ([*call(1, "a", None), *call(2, "a", None, **META)], [False, True]),
        ([*call(1, "initialize", None)], [False]),
    ],
    ids=["one", "handshake", "stateless", "both", "neither"],
)
def test_a_tape_server_plays_only_the_eras_in_which_the_tape_has_calls(
    tmp_path: Path, lines: Any, eras: list[bool]
) -> None:
    assert [cue.stateless for cue in TapeServer(tape(tmp_path, *lines)).cues] == eras
