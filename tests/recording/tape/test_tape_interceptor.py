"""Tests of recording all messages in the form that clients receive."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import After, Answer, Exchange, Proceed, SyncInterceptor
from fairlead.protocol.envelope import Direction
from fairlead.recording.tape import TapeEntry, TapeReader, TapeWriter, decode_entry, read_tape
from fairlead.recording.tape.tape_interceptor import Recorder
from fairlead.redaction.redact_messages import Redactor
from tests.support.gateway_servers import BOTH, LIMIT, config, make, serving, until
from tests.support.raw_relay import ASKED, scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def told(entries: list[TapeEntry]) -> list[tuple[Direction, str, Any, Any]]:
    """Return the direction, description, id and related request of each entry."""
    out = []
    for entry in entries:
        message = decode_entry(entry)
        what = message.get("method") or ("error" if "error" in message else "result")
        out.append((entry.dir, what, message.get("id"), entry.related))
    return out


@pytest.mark.covers("GTW-10")
async def test_every_message_of_a_session_is_recorded_in_order(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "one", tags=("a", "b"), about={"command": ["x"]})
    async with scene(interceptors=[Recorder(tape)]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x", "_meta": {"progressToken": "mine"}})
        request = await server.method("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        server.tell("notifications/progress", {"progressToken": token, "progress": 1})
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s1")
        client.reply(await client.method("sampling/createMessage"), {"role": "assistant"})
        await server.answer_to("s1")
        # The tape can be read while it is written.
        assert len(read_tape(tmp_path / "one")) == 7
        assert TapeReader(tmp_path / "one").info.status == "recording"
        server.refuse(request, -32000, "not today", {"why": 1})
        await client.answer_to(call)
        server.tell("notifications/tools/list_changed")
        await client.method("notifications/tools/list_changed")
        hanging = client.ask("tools/call", {"name": "y"})
        await server.method("tools/call")
        client.tell("notifications/cancelled", {"requestId": hanging, "reason": "enough"})
        await server.method("notifications/cancelled")
    tape.close()
    reader = TapeReader(tmp_path / "one.tape.jsonl")
    entries = list(reader)
    first = decode_entry(entries[0])["id"]
    assert told(entries) == [
        (UP, "initialize", first, None),
        (DOWN, "result", first, None),
        (UP, "notifications/initialized", None, None),
        (UP, "tools/call", call, None),
        (DOWN, "notifications/progress", None, call),
        (DOWN, "sampling/createMessage", "s1", call),
        (UP, "result", "s1", call),
        (DOWN, "error", call, None),
        (DOWN, "notifications/tools/list_changed", None, None),
        (UP, "tools/call", hanging, None),
        (UP, "notifications/cancelled", None, None),
    ]
    assert decode_entry(entries[4])["params"]["progressToken"] == "mine"
    assert decode_entry(entries[7])["error"] == {
        "code": -32000,
        "message": "not today",
        "data": {"why": 1},
    }
    assert decode_entry(entries[10])["params"] == {"requestId": hanging, "reason": "enough"}
    assert [entry.seq for entry in entries] == list(range(1, 12))
    assert {entry.session for entry in entries} == {"s1"}
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert [entry.transport for entry in entries[:2]] == [{"type": "unix"}, None]
    info = reader.info
    assert (info.name, info.status, info.entries, info.lost) == ("one", "complete", 11, 0)
    assert (info.tags, info.about) == (["a", "b"], {"command": ["x"]})
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


async def test_stateless_requests_and_notifications_of_subscriptions_are_recorded(
    tmp_path: Path,
) -> None:
    tape = TapeWriter(tmp_path / "one")
    async with scene("stateless", interceptors=[Recorder(tape)]) as place:
        client = await place.client()
        listen = client.stateless("subscriptions/listen", {"notifications": {}})
        server = await place.server()
        asked = await server.method("subscriptions/listen")
        key = "io.modelcontextprotocol/subscriptionId"
        for method in ("subscriptions/acknowledged", "tools/list_changed"):
            server.tell(f"notifications/{method}", {"_meta": {key: asked["id"]}})
            await client.method(f"notifications/{method}")
        call = client.stateless("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.reply(request, {"resultType": "input_required", "requestState": "abc"})
        await client.answer_to(call)
    tape.close()
    entries = read_tape(tmp_path / "one")
    assert told(entries)[:5] == [
        (UP, "subscriptions/listen", listen, None),
        (DOWN, "notifications/subscriptions/acknowledged", None, listen),
        (DOWN, "notifications/tools/list_changed", None, listen),
        (UP, "tools/call", call, None),
        (DOWN, "result", call, None),
    ]
    assert decode_entry(entries[2])["params"]["_meta"][key] == listen


class Meddle:
    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            exchange.note("interceptor note")
        if "secret" in exchange.method:
            exchange.note("blocked")
            raise RpcError(-32001, "not here")
        return await proceed(exchange)


async def test_notes_of_interceptors_are_recorded_on_the_tape(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "one")
    async with scene(interceptors=[Recorder(tape), Meddle()]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"content": []})
        await client.answer_to(call)
        client.tell("notifications/secret")
        assert (await client.answer_to(client.ask("vendor/secret")))["error"]["code"] == -32001
    tape.close()
    entries = read_tape(tmp_path / "one")[3:]
    assert [(t[1], e.did, e.stopped) for t, e in zip(told(entries), entries, strict=True)] == [
        ("tools/call", None, False),
        ("result", ["interceptor note"], False),
        ("notifications/secret", ["blocked"], True),
        ("vendor/secret", None, False),
        ("error", ["blocked"], False),
    ]


class Change:
    """An interceptor that changes messages in both directions."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "notifications/gone":
            exchange.drop("dropped: not allowed")
            return None
        if "vendor" not in exchange.method:
            return await proceed(exchange)
        exchange.note("changed")
        message = msgspec.structs.replace(exchange.message, params=Raw(b'{"n":2}'))
        answer = await proceed(msgspec.structs.replace(exchange, message=message))
        return None if answer is None else b'{"n":4}'


@pytest.mark.parametrize("around", [False, True])
async def test_an_outer_recorder_records_messages_as_clients_receive_them(
    tmp_path: Path, around: bool
) -> None:
    recorder = Recorder(TapeWriter(tmp_path / "one"))
    chain = recorder.around([Change()]) if around else [recorder, Change()]
    async with scene(interceptors=chain) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("vendor/up", {"n": 1})
        asked = await server.method("vendor/up")
        assert asked["params"] == {"n": 2}
        server.tell("notifications/gone", {"n": 1})
        server.tell("notifications/vendor", {"n": 1})
        assert (await client.method("notifications/vendor"))["params"] == {"n": 2}
        server.reply(asked, {"n": 3})
        assert (await client.answer_to(call))["result"] == {"n": 4}
    recorder.tape.close()
    entries = read_tape(tmp_path / "one")[3:]
    seen = [
        decode_entry(e).get("params", decode_entry(e).get("result"))
        for e in entries
        if not e.stopped
    ]
    assert seen == [{"n": 1}, {"n": 2 if around else 1}, {"n": 4}]
    assert [e.did for e in entries if e.stopped] == ([] if around else [["dropped: not allowed"]])
    assert entries[-2].did == ["changed"]


async def test_recorded_sessions_have_labels_and_contain_no_secrets(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "one", about={"url": "http://me:hunter22@h/?api_key=hunter22"})
    async with scene(interceptors=[Recorder(tape)]) as place:
        clients = [await place.session(), await place.session()]
        server = await place.server()
        for client in reversed(clients):
            call = client.ask("tools/call", {"name": "x", "arguments": {"password": "hunter22"}})
            request = await server.method("tools/call")
            assert request["params"]["arguments"] == {"password": "hunter22"}
            server.reply(request, {"content": [], "token": "hunter22"})
            assert (await client.answer_to(call))["result"]["token"] == "hunter22"
    tape.close()
    calls = [e.session for e in read_tape(tmp_path / "one") if b"tools/call" in bytes(e.message)]
    assert calls == ["s2", "s1"]
    for file in tmp_path.iterdir():
        assert b"hunter22" not in file.read_bytes()


@pytest.mark.parametrize("version", BOTH)
async def test_the_recorder_of_a_gateway_stores_a_call_once_with_its_session(
    tmp_path: Path, version: str
) -> None:
    tape = TapeWriter(tmp_path / "one")
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[Recorder(tape)]) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_http(url, config(version)) as client:
            assert (await client.call("red_speak", {"text": "hello"})).text == "hello"
    tape.close()
    entries = read_tape(tmp_path / "one")
    whats = [what for _, what, _, _ in told(entries)]
    assert whats.count("tools/call") == 1
    call = entries[whats.index("tools/call")]
    answer = next(
        e
        for e in entries
        if decode_entry(e).get("id") == decode_entry(call)["id"] and e.dir is DOWN
    )
    assert decode_entry(answer)["result"]["content"][0]["text"] == "hello"
    assert answer.session == call.session is not None
    assert "http" in str(entries[0].transport)


SECRET = "hunter22-abcdef"


def forgetful() -> MCPServer:
    server = MCPServer("forgetful", rate_limit_rate=0)

    @server.tool()
    async def login(ctx: Context, password: str) -> dict[str, str]:
        await ctx.info(f"Authorization: Bearer {SECRET}")
        await ctx.progress(1, 1, f"https://me:{SECRET}@example.com/?api_key={SECRET}")
        return {"api_key": SECRET, "note": f"see https://example.com/?token={SECRET}"}

    @server.tool()
    async def fail() -> str:
        raise RpcError(-32000, f"password={SECRET}", {"token": SECRET})

    return server


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize("version", BOTH)
async def test_secrets_of_every_origin_are_redacted(tmp_path: Path, version: str) -> None:
    tape = TapeWriter(tmp_path / "one", about={"command": ["x", f"--token={SECRET}"]})
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET, "Cookie": f"id={SECRET}"}
    relay = Relay(forgetful(), interceptors=[Recorder(tape)])
    async with (
        asyncio.timeout(LIMIT),
        serving(relay) as url,
        MCPClient.connect_http(url, config(version), headers=headers) as client,
    ):
        done = await client.call("login", {"password": SECRET}, on_progress=lambda *_: None)
        assert SECRET in str(done.result)
        with pytest.raises(RpcError, match=SECRET):
            await client.call("fail")
    tape.close()
    entries = read_tape(tmp_path / "one")
    assert any("notifications/progress" in what for _, what, _, _ in told(entries))
    assert any(b"[REDACTED]" in bytes(entry.message) for entry in entries)
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.read_text()
        assert b"mcp-session-id" not in file.read_bytes().lower()


# Secrets outside messages


@pytest.mark.parametrize(
    "redactor", [Redactor(names=["result"]), Redactor(patterns=["^ok.*"]), Redactor(longest=3)]
)
async def test_a_recorded_result_is_redacted_by_member_name_pattern_or_length(
    redactor: Redactor, tmp_path: Path
) -> None:
    with TapeWriter(tmp_path / "tape", redactor=redactor) as writer:
        async with scene(interceptors=[Recorder(writer)]) as place:
            client = await place.session()
            server = await place.server()
            call = client.ask("tools/call", {"name": "x", "arguments": {}})
            server.reply(await server.method("tools/call"), {"said": "ok, it is done"})
            assert (await client.answer_to(call))["result"] == {"said": "ok, it is done"}
        lines = writer.path.read_text()
    assert '"tools/call"' in lines or "too… (10 characters)" in lines
    assert "it is done" not in lines


class Fails(SyncInterceptor):
    """An interceptor whose exception contains a secret."""

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method == "tools/call":
            raise ValueError("invalid password=hunter22")
        return exchange, None


async def test_notes_of_interceptors_are_redacted(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "tape") as writer:
        async with scene(interceptors=[Recorder(writer), Fails()]) as place:
            client = await place.session()
            await place.server()
            answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
            assert answer["error"]["message"] == "Internal error"
        lines = writer.path.read_text()
    assert "failed: ValueError" in lines
    assert "hunter22" not in lines
