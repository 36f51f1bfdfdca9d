"""Interceptors process every message, including requests in results and cancellations."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.replay import TapeServer
from fairlead.recording.tape import TapeWriter, decode_entry, read_tape
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import HANDSHAKE, LIMIT, config, joining, serving, until
from tests.support.raw_relay import ASKED, scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
PAGE = {"mode": "url", "message": "?", "url": "https://example.com/login"}
ACCEPT = {"action": "accept", "content": {}}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}


class Watch:
    """An interceptor that records starts and outcomes, and may drop a method."""

    def __init__(self, drop: str = "") -> None:
        self.begun: list[tuple[Direction, str]] = []
        self.ended: list[tuple[Direction, str, Any]] = []
        self._drop = drop

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        what = exchange.direction, exchange.method
        self.begun.append(what)
        if exchange.method == self._drop:
            exchange.drop("dropped")
            return None
        try:
            answer = await proceed(exchange)
        except asyncio.CancelledError as exc:
            self.ended.append((*what, f"cancelled: {exc}"))
            raise
        self.ended.append((*what, None if answer is None else msgspec.json.decode(answer)))
        return answer


class Quick(Watch):
    """A `Watch` that the runtime calls without a task."""

    waits = False


def wanted(**questions: tuple[str, Any]) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {k: {"method": m, "params": p} for k, (m, p) in questions.items()},
        "requestState": "s",
    }


# Requests in results


async def test_interceptors_process_input_requests_in_results_and_their_responses() -> None:
    watch = Watch()
    async with asyncio.timeout(LIMIT), scene("stateless", interceptors=[watch]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        questions = {
            "a": ("elicitation/create", PAGE),
            "b": ("sampling/createMessage", SAMPLE),
            "c": ("roots/list", {}),
        }
        server.reply(request, wanted(**questions))
        answers = {
            "elicitation/create": {"action": "accept"},
            "sampling/createMessage": SAMPLED,
            "roots/list": {"roots": []},
        }
        for _ in range(3):
            question = await client.until(lambda m: "id" in m and "method" in m)
            client.reply(question, answers[question["method"]])
        second = await server.method("tools/call")
        server.reply(second, {"resultType": "complete", "content": []})
        assert (await client.answer_to(call))["result"] == {"content": []}
        assert "notifications/elicitation/complete" in [m["method"] for m in client.skipped]
        asked = {method: answer for way, method, answer in watch.ended if way is DOWN}
        assert asked == {**answers, "notifications/elicitation/complete": None}
        assert not place.relay.pool.connections[0].calls


async def test_interceptors_can_change_and_reject_input_requests_in_results() -> None:
    class Meddle:
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            if exchange.direction is UP:
                return await proceed(exchange)
            if exchange.method == "roots/list":
                raise RpcError(-32001, "no folders")
            message = msgspec.structs.replace(
                exchange.message, params=Raw(msgspec.json.encode({**FORM, "message": "changed"}))
            )
            await proceed(msgspec.structs.replace(exchange, message=message))
            return b'{"action":"decline"}'

    async with asyncio.timeout(LIMIT), scene("stateless", interceptors=[Meddle()]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), wanted(a=("elicitation/create", FORM)))
        question = await client.method("elicitation/create")
        assert question["params"]["message"] == "changed"
        client.reply(question, ACCEPT)
        second = await server.method("tools/call")
        assert second["params"]["inputResponses"] == {"a": {"action": "decline"}}
        server.reply(second, wanted(a=("roots/list", {})))
        answer = await client.answer_to(call)
        assert answer["error"]["message"] == "no folders"
        assert "roots/list" not in [m.get("method") for m in client.skipped]


def asking() -> MCPServer:
    server = MCPServer("asking", rate_limit_rate=0)

    @server.tool()
    async def order(ctx: Context) -> str:
        what = await ctx.elicit("What?", str)
        where = await ctx.elicit(f"Where do you want {what.data}?", str)
        return f"{what.data} at {where.data}"

    return server


class Guest:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, request: Any) -> Any:
        self.asked.append(request["message"] if isinstance(request, dict) else request.message)
        return {"action": "accept", "content": {"value": ["tea", "five"][len(self.asked) - 1]}}

    async def order(self, target: Any) -> str:
        async with (
            asyncio.timeout(LIMIT),
            joining(target, HANDSHAKE, on_elicit=self.elicit) as client,
        ):
            return str((await client.call("order")).text)


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("matching", ["strict", "tolerant"])
async def test_a_tape_replays_input_requests_in_results(tmp_path: Path, matching: Any) -> None:
    guest, journal = Guest(), Journal()
    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(asking(), interceptors=[Journaling(journal), Recorder(tape)], era="stateless")
        async with relay.running():
            assert await guest.order(relay) == "tea at five"
    entries = [(entry, decode_entry(entry)) for entry in read_tape(tmp_path / "one")]
    questions = [(e, m) for e, m in entries if m.get("method") == "elicitation/create"]
    call = next(m for _, m in entries if m.get("method") == "tools/call")
    assert [(e.dir, e.session, e.related) for e, _ in questions] == [(DOWN, "s1", call["id"])] * 2
    answers = {m["id"]: m["result"] for e, m in entries if e.dir is UP and "result" in m}
    assert [answers[m["id"]]["content"]["value"] for _, m in questions] == ["tea", "five"]
    noted = [(r.dir, r.state) for r in journal.records() if r.method == "elicitation/create"]
    assert noted == [(DOWN, "ok")] * 2
    again = Guest()
    player = TapeServer(tmp_path / "one", matching=matching)
    async with player.running():
        assert await again.order(player) == "tea at five"
    assert again.asked == guest.asked
    assert player.missed == []


@pytest.mark.parametrize("path", ["", "/asking"])
async def test_interceptors_of_a_gateway_process_input_requests_in_results_over_http(
    path: str,
) -> None:
    watch, guest = Watch(), Guest()
    async with (
        asyncio.timeout(LIMIT),
        serving(asking()) as behind,
        Gateway(interceptors=[watch]) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"asking": {"url": behind}})
        await until(lambda: gateway.is_ready)
        tool = "order" if path else "asking_order"
        async with MCPClient.connect_http(
            url + path, config(HANDSHAKE), on_elicit=guest.elicit
        ) as client:
            assert (await client.call(tool)).text == "tea at five"
    assert watch.begun.count((DOWN, "elicitation/create")) == 2


# Cancellations


@pytest.mark.parametrize("kind", [Watch, Quick])
async def test_interceptors_process_a_client_cancellation_before_the_call_ends(
    kind: type[Watch],
) -> None:
    watch = kind()
    async with asyncio.timeout(LIMIT), scene(interceptors=[watch]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        client.tell("notifications/vendor/before")
        client.tell("notifications/cancelled", {"requestId": call, "reason": "enough"})
        told = await server.method("notifications/cancelled")
        assert told["params"] == {"requestId": request["id"], "reason": "enough"}
        assert watch.begun[-3:] == [
            (UP, "tools/call"),
            (UP, "notifications/vendor/before"),
            (UP, "notifications/cancelled"),
        ]
        await client.sync()
        assert watch.ended[-3:-1] == [
            (UP, "notifications/cancelled", None),
            (UP, "tools/call", "cancelled: enough"),
        ]
        assert client.skipped == []


async def test_interceptors_process_a_cancellation_from_the_server() -> None:
    watch = Watch()
    async with asyncio.timeout(LIMIT), scene(interceptors=[watch]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.ask("sampling/createMessage", SAMPLE, "s1")
        asked = await client.method("sampling/createMessage")
        server.tell("notifications/cancelled", {"requestId": "s1", "reason": "found it"})
        told = await client.method("notifications/cancelled")
        assert told["params"] == {"requestId": asked["id"], "reason": "found it"}
        server.reply(request, {"content": []})
        await client.answer_to(call)
        assert (DOWN, "notifications/cancelled", None) in watch.ended
        assert (DOWN, "sampling/createMessage", "cancelled: found it") in watch.ended


@pytest.mark.parametrize("kind", [Watch, Quick])
@pytest.mark.parametrize("way", [UP, DOWN])
async def test_a_dropped_cancellation_is_not_forwarded(way: Direction, kind: type[Watch]) -> None:
    watch = kind(drop="notifications/cancelled")
    async with asyncio.timeout(LIMIT), scene(interceptors=[watch]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        if way is UP:
            client.tell("notifications/cancelled", {"requestId": call})
            client.tell("notifications/vendor/behind")
            await server.method("notifications/vendor/behind")
            server.reply(request, {"content": []})
            await client.sync()
            assert client.skipped == []  # a cancelled request gets no response
        else:
            server.ask("sampling/createMessage", SAMPLE, "s1")
            asked = await client.method("sampling/createMessage")
            server.tell("notifications/cancelled", {"requestId": "s1"})
            server.tell("notifications/vendor/behind")
            await client.method("notifications/vendor/behind")
            client.reply(asked, SAMPLED)
            server.reply(request, {"content": []})
            await client.answer_to(call)
            assert [m.get("method") for m in client.skipped] == []
        assert (way, "notifications/cancelled") in watch.begun
        assert "notifications/cancelled" not in [m.get("method") for m in server.seen]


@pytest.mark.parametrize("kind", [Watch, Quick])
async def test_a_disconnect_ends_a_call_whose_cancellation_was_dropped(
    kind: type[Watch],
) -> None:
    watch = kind(drop="notifications/cancelled")
    async with asyncio.timeout(LIMIT), scene(interceptors=[watch]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        await server.method("tools/call")
        client.tell("notifications/cancelled", {"requestId": call})
        await client.sync()
        await client.close()
        # sent by the relay after the disconnect
        assert await server.heard("notifications/cancelled")
        assert (UP, "tools/call", "cancelled: ") in watch.ended


async def test_a_cancellation_is_recorded_once_and_unchanged(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "one")
    async with asyncio.timeout(LIMIT), scene(interceptors=[Recorder(tape)]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        await server.method("tools/call")
        server.ask("sampling/createMessage", SAMPLE, "s1")
        await client.method("sampling/createMessage")
        server.tell("notifications/cancelled", {"requestId": "s1", "vendor": 1})
        await client.method("notifications/cancelled")
        said = {"requestId": call, "reason": "enough", "_meta": {"vendor/x": 1}}
        client.tell("notifications/cancelled", said)
        await server.method("notifications/cancelled")
        await client.sync()
    tape.close()
    entries = [(entry.dir, decode_entry(entry)) for entry in read_tape(tmp_path / "one")]
    assert [
        (way, m["params"]) for way, m in entries if m.get("method") == "notifications/cancelled"
    ] == [(DOWN, {"requestId": "s1", "vendor": 1}), (UP, said)]


async def test_a_dropped_cancellation_is_recorded_as_stopped(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "one")
    drop = Watch(drop="notifications/cancelled")
    async with asyncio.timeout(LIMIT), scene(interceptors=[Recorder(tape), drop]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        client.tell("notifications/cancelled", {"requestId": call})
        await client.sync()
        server.reply(request, {"content": []})
        await server.sync()
    tape.close()
    entries = read_tape(tmp_path / "one")
    stopped = [decode_entry(entry).get("method") for entry in entries if entry.stopped]
    assert stopped == ["notifications/cancelled"]


@pytest.mark.parametrize("path", ["", "/slow"])
async def test_a_gateway_passes_cancellations_to_interceptors_over_http(path: str) -> None:
    watch, begun, ended = Watch(), asyncio.Event(), asyncio.Event()
    server = MCPServer("slow", rate_limit_rate=0)

    @server.tool()
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with (
        asyncio.timeout(LIMIT),
        serving(server) as behind,
        Gateway(interceptors=[watch]) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": {"url": behind}})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_http(url + path, config(HANDSHAKE)) as client:
            call = asyncio.ensure_future(client.call("wait" if path else "slow_wait"))
            await begun.wait()
            call.cancel()
            await ended.wait()
    assert (UP, "notifications/cancelled", None) in watch.ended
