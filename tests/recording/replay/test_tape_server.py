"""Tests of a server that replays a recorded scene from a tape."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead import Context, MCPClient, MCPServer, RpcError
from fairlead.errors import ConfigError
from fairlead.gateway import Relay
from fairlead.recording.replay import Pace, TapeServer, load_script
from fairlead.recording.tape import TapeWriter, read_tape
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    STATELESS,
    Ears,
    config,
    make,
    serving,
    until,
)


def lighthouse() -> MCPServer:
    server = MCPServer("lighthouse", rate_limit_rate=0)
    count = 0

    @server.tool()
    async def turn() -> int:
        """Return how often the tool was called."""
        nonlocal count
        count += 1
        return count

    @server.tool()
    async def signal(ctx: Context, text: str) -> str:
        """Send progress, log, and elicit."""
        for n in range(3):
            await ctx.progress(n, 3, f"at {n}")
        await ctx.info(f"signalled {text}")
        answer = await ctx.elicit("Really?", str)
        return f"{text} {answer.data}"

    @server.tool()
    async def fail() -> str:
        raise ValueError("the lamp is broken")

    @server.resource("log://today")
    async def today() -> str:
        return "calm"

    return server


class Keeper:
    """The client in the scene, with its callbacks."""

    def __init__(self) -> None:
        self.progress: list[float] = []
        self.notes: list[str] = []
        self.asked = 0

    async def elicit(self, request: Any) -> Any:
        self.asked += 1
        return {"action": "accept", "content": {"value": f"yes {self.asked}"}}

    async def play(self, client: MCPClient) -> list[Any]:
        """Run the scene, and return everything the client received."""
        seen: list[Any] = [sorted(tool.name for tool in await client.tools())]
        for _ in range(2):
            seen.append((await client.call("turn")).text)
        signal = await client.call(
            "signal", {"text": "SOS"}, on_progress=lambda p, *_: self.progress.append(p)
        )
        # In the stateless era, the tool runs again and repeats its progress after each elicitation.
        seen += [signal.text, sorted(set(self.progress)), self.asked]
        seen.append((await client.call("fail")).is_error)
        seen.append([part.text for part in await client.read("log://today")])
        with pytest.raises(RpcError) as refused:
            await client.read("log://nowhere")
        seen.append((refused.value.code, refused.value.message))
        return seen


SCENE = [
    ["fail", "signal", "turn"],
    "1",
    "2",
    "SOS yes 1",
    [0, 1, 2],
    1,
    True,
    ["calm"],
]


@contextlib.asynccontextmanager
async def joined(target: Any, version: str, keeper: Keeper) -> AsyncIterator[MCPClient]:
    options = {"on_elicit": keeper.elicit}
    how = MCPClient.connect_http if isinstance(target, str) else MCPClient.connect_inprocess
    async with asyncio.timeout(LIMIT), how(target, config(version), **options) as client:
        yield client


async def record(path: Path, version: str, server: Any = None) -> list[Any]:
    """Run the scene with a server, and record it."""
    keeper = Keeper()
    with TapeWriter(path) as tape:
        relay = Relay(server or lighthouse(), interceptors=[Recorder(tape)])
        async with relay.running(), joined(relay, version, keeper) as client:
            return await keeper.play(client)


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("matching", ["strict", "tolerant"])
async def test_a_client_receives_the_messages_recorded_on_a_tape(
    tmp_path: Path, version: str, matching: Any
) -> None:
    seen = await record(tmp_path / "one", version)
    assert seen[:-1] == SCENE
    player = TapeServer(tmp_path / "one", matching=matching)
    keeper = Keeper()
    async with player.running(), joined(player, version, keeper) as client:
        assert await keeper.play(client) == seen
    assert player.missed == []


@pytest.mark.parametrize(("recorded", "played"), [(HANDSHAKE, STATELESS), (STATELESS, HANDSHAKE)])
async def test_a_tape_of_one_era_is_replayed_to_clients_of_the_other_era(
    tmp_path: Path, recorded: str, played: str
) -> None:
    seen = await record(tmp_path / "one", recorded)
    relay = TapeServer(tmp_path / "one").for_both_eras()
    keeper = Keeper()
    async with relay.running(), joined(relay, played, keeper) as client:
        again = await keeper.play(client)
    assert again[:-1] == seen[:-1]
    assert again[-1][1] == seen[-1][1]


@pytest.mark.parametrize("version", BOTH)
async def test_a_tape_is_served_over_http(tmp_path: Path, version: str) -> None:
    seen = await record(tmp_path / "one", version)
    keeper = Keeper()
    async with serving(TapeServer(tmp_path / "one")) as url:
        async with joined(url, version, keeper) as client:
            assert await keeper.play(client) == seen


@pytest.mark.parametrize("version", BOTH)
async def test_recording_a_replay_produces_the_same_tape_except_for_times(
    tmp_path: Path, version: str
) -> None:
    await record(tmp_path / "one", version)
    await record(tmp_path / "two", version, TapeServer(tmp_path / "one"))
    first, second = (
        [
            (msgspec.json.decode(msgspec.json.encode(entry)), entry)
            for entry in read_tape(tmp_path / name)
        ]
        for name in ("one", "two")
    )
    for (one, _), (two, _) in zip(first, second, strict=True):
        del one["at"], two["at"]
        one.pop("server", None), two.pop("server", None)
        assert one == two


async def test_a_request_that_was_not_recorded_is_rejected_and_listed_as_missed(
    tmp_path: Path,
) -> None:
    await record(tmp_path / "one", HANDSHAKE)
    player = TapeServer(tmp_path / "one", matching="strict")
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        with pytest.raises(RpcError, match="tools/call 'turn' is not on the tape; expected"):
            await client.call("turn")
        assert len(await client.tools()) == 3
        assert (await client.call("turn")).text == "1"
    assert player.missed == ["tools/call 'turn'"]


async def test_a_strict_tape_server_can_continue_at_any_message(tmp_path: Path) -> None:
    await record(tmp_path / "one", HANDSHAKE)
    calls = [e.seq for e in read_tape(tmp_path / "one") if b'"turn"' in bytes(e.message)]
    player = TapeServer(tmp_path / "one", matching="strict")
    player.seek(calls[-1])
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        with pytest.raises(RpcError, match="tools/list is not on the tape; expected .* turn"):
            await client.request("tools/list")
        assert (await client.call("turn")).text == "2"


async def test_a_subscription_stays_open_if_the_tape_contains_none(
    tmp_path: Path,
) -> None:
    await record(tmp_path / "one", STATELESS)
    cues = [cue for cue in load_script(tmp_path / "one") if cue.method != "subscriptions/listen"]
    player = TapeServer(cues)
    # The relay subscribes for clients whose era has no subscriptions.
    relay = player.for_both_eras()
    async with relay.running(), joined(relay, HANDSHAKE, Keeper()) as client:
        assert (await client.call("turn")).text == "1"
    async with player.running(), joined(player, STATELESS, Keeper()) as client:
        async with client.changes("tools"):
            assert (await client.call("turn")).text == "2"
    assert player.missed == []


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("version", BOTH)
async def test_a_recorded_elicitation_is_sent_during_the_pending_call(
    tmp_path: Path, version: str
) -> None:
    """Tapes of a tap do not contain the request to which an elicitation belongs."""
    asked = {"message": "Which colour?", "requestedSchema": {"type": "object", "properties": {}}}
    answer = {"content": [{"type": "text", "text": "blue"}]}
    able = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x"},
    }
    call = {"id": 2, "method": "tools/call", "params": {"name": "paint", "arguments": {}}}
    up, down = "client_to_server", "server_to_client"
    lines: list[tuple[float, str, dict[str, Any]]] = [
        (0, up, {"id": 1, "method": "initialize", "params": {}}),
        (0, down, {"id": 1, "result": able}),
        (0, up, {"method": "notifications/initialized"}),
        (1, up, call),
        (1, up, {"id": 3, "method": "ping"}),
        (1, down, {"id": 3, "result": {}}),
        (2, down, {"id": 1, "method": "elicitation/create", "params": asked}),
        (3, up, {"id": 1, "result": {"action": "accept", "content": {}}}),
        (4, down, {"id": 2, "result": answer}),
    ]
    write_lines(tmp_path / "one.tape.jsonl", lines)
    relay = TapeServer(tmp_path / "one").for_both_eras()
    keeper = Keeper()
    async with relay.running(), joined(relay, version, keeper) as client:
        assert (await client.call("paint")).text == "blue"
    assert keeper.asked == 1


async def test_repeated_calls_get_the_recorded_responses_in_turn_and_then_the_last_one(
    tmp_path: Path,
) -> None:
    await record(tmp_path / "one", HANDSHAKE)
    player = TapeServer(tmp_path / "one")
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        turned = [(await client.call("turn")).text for _ in range(4)]
        assert turned == ["1", "2", "2", "2"]
        player.seek(0)
        assert (await client.call("turn")).text == "1"
        second = [e.seq for e in read_tape(tmp_path / "one") if b'"turn"' in bytes(e.message)][-1]
        player.seek(second)
        assert (await client.call("turn")).text == "2"


@pytest.mark.parametrize("version", BOTH)
async def test_notifications_are_sent_after_the_message_they_followed_on_the_tape(
    tmp_path: Path, version: str
) -> None:
    async def visit(server: Any) -> list[str]:
        ears = Ears()
        async with (
            asyncio.timeout(LIMIT),
            MCPClient.connect_inprocess(server, config(version), on_notification=ears) as client,
        ):
            await client.subscribe("red://fixed")
            await client.call("who")
            before = [method for method, _ in ears.drain() if "resources/updated" in method]
            await client.call("touch", {"uri": "red://fixed"})
            heard = await ears.hear("notifications/resources/updated", uri="red://fixed")
            if version == HANDSHAKE:  # stateless clients receive list changes only on request
                await client.call("grow", {"tool": "more"})
                await ears.hear("notifications/tools/list_changed")
            return [*before, heard["uri"]]

    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(make("red"), interceptors=[Recorder(tape)])
        async with relay.running():
            assert await visit(relay) == ["red://fixed"]
    player = TapeServer(tmp_path / "one")
    async with player.running():
        assert await visit(player) == ["red://fixed"]
    async with serving(TapeServer(tmp_path / "one").for_both_eras()) as url:
        ears = Ears()
        async with MCPClient.connect_http(url, config(version), on_notification=ears) as client:
            await client.subscribe("red://fixed")
            await client.call("touch", {"uri": "red://fixed"})
            await ears.hear("notifications/resources/updated", uri="red://fixed")


@pytest.mark.parametrize("version", BOTH)
async def test_concurrent_calls_receive_their_own_progress(tmp_path: Path, version: str) -> None:
    server = MCPServer("counts", rate_limit_rate=0)
    barrier = asyncio.Barrier(3)

    @server.tool()
    async def count(ctx: Context, first: int) -> int:
        for n in range(3):
            await barrier.wait()
            await ctx.progress(first + n)
        return first

    async def visit(target: Any) -> list[tuple[str, list[float]]]:
        async def one(client: MCPClient, first: int) -> tuple[str, list[float]]:
            heard: list[float] = []
            done = await client.call(
                "count", {"first": first}, on_progress=lambda p, *_: heard.append(p)
            )
            return done.text, heard

        async with joined(target, version, Keeper()) as client:
            return await asyncio.gather(*(one(client, first) for first in (10, 20, 30)))

    expected = [(f"{n}", [n, n + 1, n + 2]) for n in (10, 20, 30)]
    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(server, interceptors=[Recorder(tape)])
        async with relay.running():
            assert await visit(relay) == expected
    player = TapeServer(tmp_path / "one")
    async with player.running():
        assert await visit(player) == expected


async def test_a_call_cancelled_on_the_tape_waits_for_its_cancellation(
    tmp_path: Path,
) -> None:
    server = MCPServer("slow", rate_limit_rate=0)

    @server.tool()
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        await asyncio.Event().wait()
        return "never"

    @server.tool()
    async def quick() -> str:
        return "quick"

    async def visit(target: Any) -> str:
        begun = asyncio.Event()
        async with joined(target, HANDSHAKE, Keeper()) as client:
            call = asyncio.ensure_future(client.call("wait", on_progress=lambda *_: begun.set()))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return (await client.call("quick")).text

    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(server, interceptors=[Recorder(tape)])
        async with relay.running():
            assert await visit(relay) == "quick"
    player = TapeServer(tmp_path / "one")
    async with player.running():
        assert await visit(player) == "quick"


async def test_a_redacted_argument_matches_any_value(tmp_path: Path) -> None:
    server = MCPServer("login", rate_limit_rate=0)

    @server.tool()
    async def login(user: str, password: str) -> str:
        return f"hello {user}"

    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(server, interceptors=[Recorder(tape)])
        async with relay.running(), joined(relay, HANDSHAKE, Keeper()) as client:
            await client.call("login", {"user": "ada", "password": "lovelace"})
    assert b"lovelace" not in (tmp_path / "one.tape.jsonl").read_bytes()
    player = TapeServer(tmp_path / "one", matching="strict")
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        with pytest.raises(RpcError, match="not on the tape"):
            await client.call("login", {"user": "bob", "password": "lovelace"})
        done = await client.call("login", {"user": "ada", "password": "another one"})
        assert done.text == "hello ada"


def slow_tape(path: Path, gap: float) -> None:
    """Write a tape with a request, progress and a response, with `gap` seconds between them."""
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x"}}
    lines: list[tuple[float, str, dict[str, Any]]] = [
        (0, "client_to_server", {"id": 1, "method": "initialize", "params": {}}),
        (0, "server_to_client", {"id": 1, "result": opening}),
        (1, "client_to_server", {"id": 2, "method": "ping", "params": {"a": 1}}),
        (1 + gap, "server_to_client", {"method": "notifications/vendor/one"}),
        (1 + 2 * gap, "server_to_client", {"id": 2, "result": {"done": True}}),
    ]
    write_lines(path, lines)


def write_lines(path: Path, lines: list[tuple[float, str, dict[str, Any]]]) -> None:
    path.write_bytes(
        b"".join(
            msgspec.json.encode(
                {"seq": n, "at": at, "dir": way, "session": "s1", "message": message}
            )
            + b"\n"
            for n, (at, way, message) in enumerate(lines, 1)
        )
    )


async def timed(path: Path, pace: Pace) -> float:
    player = TapeServer(path, pace=pace)
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert bytes(await client.request("ping", {"a": 1})) == b'{"done":true}'
        return loop.time() - began


async def test_a_tape_is_replayed_at_the_recorded_speed_faster_or_without_delays(
    tmp_path: Path,
) -> None:
    tape = tmp_path / "one.tape.jsonl"
    slow_tape(tape, 0.1)
    assert await timed(tape, Pace(1)) >= 0.19
    slow_tape(tape, 10)
    assert 0.19 <= await timed(tape, Pace(100)) < 5
    slow_tape(tape, 1000)
    assert await timed(tape, Pace()) < 5


async def test_playback_can_be_stepped_paused_and_resumed(tmp_path: Path) -> None:
    tape = tmp_path / "one.tape.jsonl"
    slow_tape(tape, 1000)
    pace = Pace(stepped=True)
    player = TapeServer(tape, pace=pace)
    heard: asyncio.Queue[str] = asyncio.Queue()
    pace.step()  # releases the response to `initialize`
    async with (
        asyncio.timeout(LIMIT),
        player.running(),
        MCPClient.connect_inprocess(
            player, config(HANDSHAKE), on_notification=lambda method, _: heard.put_nowait(method)
        ) as client,
    ):
        call = asyncio.ensure_future(client.request("ping", {"a": 1}))
        await until(lambda: pace.waiting)
        assert heard.empty()
        pace.step()
        assert await heard.get() == "notifications/vendor/one"
        await until(lambda: pace.waiting)
        assert not call.done()
        pace.step()
        assert bytes(await call) == b'{"done":true}'

    pace = Pace()
    player = TapeServer(tape, pace=pace)
    async with player.running(), joined(player, HANDSHAKE, Keeper()) as client:
        pace.pause()
        call = asyncio.ensure_future(client.request("ping", {"a": 1}))
        await until(lambda: pace.waiting)
        assert not call.done()
        pace.resume()
        assert bytes(await call) == b'{"done":true}'


def test_an_empty_tape_and_invalid_speeds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tape .* does not exist"):
        TapeServer(tmp_path / "none")
    (tmp_path / "one.tape.jsonl").write_text("")
    with pytest.raises(ConfigError, match="has no messages that can be replayed"):
        TapeServer(tmp_path / "one")
    with pytest.raises(ValueError, match="must be a finite number greater than 0"):
        Pace(0)
