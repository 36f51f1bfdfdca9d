"""Tests of journals, which keep the latest exchanges within limits and without secrets."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.observe.timestamps import Timestamp
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal, JournalRecord, LineObserver
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.journal.journal_record import HANGS, IN_USE, NOT_A_MESSAGE, UNMATCHED
from fairlead.recording.journal.watch_socket import (
    WatchHello,
    announce_journal,
    find_journals,
    receive_records,
)
from tests.support.raw_relay import ASKED, scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
SECRET = "sk-live-4f9a8b7c6d5e"


def short(record: JournalRecord) -> tuple[Any, ...]:
    return record.dir, record.kind, record.method, record.target, record.state


async def test_exchanges_of_a_relay_are_recorded_with_their_outcome() -> None:
    journal = Journal()
    async with scene(interceptors=[Journaling(journal)]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        good = client.ask("tools/call", {"name": "add", "arguments": {"password": SECRET}})
        server.reply(await server.method("tools/call"), {"content": [], "token": SECRET})
        await client.answer_to(good)
        bad = client.ask("tools/call", {"name": "sub"})
        server.reply(await server.method("tools/call"), {"content": [], "isError": True})
        await client.answer_to(bad)
        no = client.ask("prompts/get", {"name": "greet"})
        server.refuse(
            await server.method("prompts/get"), -32602, f"Bearer {SECRET} is not a prompt"
        )
        await client.answer_to(no)
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s1")
        client.reply(await client.method("sampling/createMessage"), {"role": "assistant"})
        await server.answer_to("s1")
        gone = client.ask("tools/call", {"name": "slow"})
        await server.method("tools/call")
        assert journal.pending == 1
        client.tell("notifications/cancelled", {"requestId": gone})
        await server.method("notifications/cancelled")
        await client.sync()
    records = journal.records()
    assert [short(one) for one in records[:1]] == [(UP, "request", "initialize", None, "ok")]
    assert [short(one) for one in records[1:]] == [
        (UP, "notification", "notifications/initialized", None, "passed"),
        (UP, "request", "tools/call", "add", "ok"),
        (UP, "request", "tools/call", "sub", "failed"),
        (UP, "request", "prompts/get", "greet", "refused"),
        (DOWN, "request", "sampling/createMessage", None, "ok"),
        (UP, "request", "tools/call", "slow", "cancelled"),
        (UP, "notification", "notifications/cancelled", None, "passed"),
        (UP, "request", "ping", None, "ok"),
    ]
    assert records[2].duration is not None
    assert records[2].session == "s1"
    assert records[2].request_id == good
    assert records[4].code == -32602
    assert SECRET not in msgspec.json.encode(records).decode()
    assert msgspec.json.decode(records[2].result) == {"content": [], "token": "[REDACTED]"}
    assert journal.pending == 0


async def test_notes_of_interceptors_are_recorded_in_the_journal() -> None:
    class Refuse:
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            exchange = msgspec.structs.replace(exchange)
            exchange.note("interceptor note")
            if exchange.target == "no":
                raise RpcError(-32000, "not here")
            return await proceed(exchange)

    journal = Journal()
    async with scene(interceptors=[Journaling(journal), Refuse()]) as place:
        client = await place.session()
        assert (await client.answer_to(client.ask("tools/call", {"name": "no"})))["error"]
    assert journal.records()[-1].did == ("interceptor note",)


def filled(journal: Journal, count: int, params: bytes = b"{}") -> None:
    for number in range(count):
        record = journal.begin(UP, "request", "tools/call", target=str(number), params=params)
        journal.end(record, "ok")


def test_the_journal_evicts_the_oldest_entries_by_number_and_size() -> None:
    journal = Journal(max_entries=10)
    filled(journal, 25)
    assert [one.target for one in journal.records()] == [str(n) for n in range(15, 25)]
    assert journal.dropped == 15
    by_size = Journal(max_bytes=50_000)
    filled(by_size, 100, b'"%s"' % (b"x" * 5000))
    assert 5 <= len(by_size) <= 10
    assert by_size.size <= 50_000
    assert by_size.get(1) is None
    assert by_size.get(100) is not None


def test_the_result_of_an_evicted_journal_entry_is_not_kept() -> None:
    journal = Journal(max_entries=3)
    begun = [journal.begin(UP, "request", "tools/call", params=b"[1,2]") for _ in range(8)]
    empty = journal.size
    for record in begun:
        journal.end(record, "ok", result=b"[1,2,3,4]")
    kept = journal.records()
    assert [one.id for one in kept] == [6, 7, 8]
    assert [one.state for one in kept] == ["ok"] * 3
    assert journal.size == empty + 3 * len(b"[1,2,3,4]")
    assert [journal.get(number) for number in (5, 6, 8, 9)] == [None, kept[0], kept[2], None]
    assert journal.pending == 0


def test_a_journal_keeps_only_the_size_of_a_large_message() -> None:
    journal = Journal(longest=100)
    filled(journal, 1, b'"%s"' % (b"x" * 500))
    [record] = journal.records()
    assert record.params is msgspec.UNSET
    assert record.size == 502


@pytest.mark.parametrize("longest", [10, 1000])
def test_a_tool_error_is_detected_even_if_the_result_is_not_kept(
    longest: int,
) -> None:
    journal = Journal(longest=longest)
    for method in ("tools/call", "vendor/call"):
        entry = journal.begin(UP, "request", method, request_id=1)
        journal.end(entry, "ok", b'{"content":[],"isError":true}')
    assert [one.state for one in journal.records()] == ["failed", "ok"]


async def test_a_slow_reader_loses_the_oldest_records_and_their_number_is_counted() -> None:
    journal = Journal()
    reader = journal.follow(room=10)
    filled(journal, 25)
    async with asyncio.timeout(5):
        assert [(await anext(reader)).target for _ in range(10)] == [str(n) for n in range(15, 25)]
        assert reader.lost == 15
        reader.close()
        assert [one async for one in reader] == []


async def test_a_call_that_hangs_is_flagged_once() -> None:
    now = 0.0
    journal = Journal(hangs_after=30.0, clock=lambda: now)
    reader = journal.follow()
    listening = journal.begin(UP, "request", "subscriptions/listen")
    record = journal.begin(UP, "request", "tools/call")
    journal.flag_hanging()
    assert record.flags == ()
    now = 31.0
    journal.flag_hanging()
    journal.flag_hanging()
    async with asyncio.timeout(5):
        assert [one.flags for one in await reader.wait(1)] == [(HANGS,)]
        journal.end(record, "ok")
        [answered] = await reader.wait(1)
        assert (answered.state, answered.flags, answered.duration) == ("ok", (HANGS,), 31.0)
    assert listening.flags == ()  # subscriptions are pending until they end


def test_malformed_and_unmatched_lines_are_flagged() -> None:
    journal = Journal()
    overheard = LineObserver(journal)
    assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', UP)
    assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', UP)
    for _ in range(3):
        assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":1,"result":{}}', DOWN)
    assert overheard.receive_bytes(
        b'{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"x"}}', DOWN
    )
    assert not overheard.receive_bytes(b"Listening on port 80, password=hunter22", DOWN)
    assert not overheard.receive_bytes(b"[1, 2]", DOWN)
    assert not overheard.receive_bytes(b'{"level":"info"}', DOWN)
    assert overheard.receive_bytes(b'[{"id":7,"method":"a"},{"method":"b"}]', DOWN)
    overheard.too_long(99, DOWN)
    flags = [list(one.flags) for one in journal.records()]
    asked, nothing = [UNMATCHED], [NOT_A_MESSAGE]
    expected = [[], [IN_USE], asked, asked, nothing, nothing, nothing, [], [], ["too long"]]
    assert flags == expected
    assert "hunter22" not in msgspec.json.encode(journal.records()).decode()
    overheard.ended()
    assert [one.state for one in journal.records() if one.kind == "request"] == [
        "ok",
        "ok",
        "lost",
    ]


async def test_a_watcher_receives_earlier_and_new_records(tmp_path: Path) -> None:
    journal = Journal()
    filled(journal, 2)
    heard: list[JournalRecord | str] = []
    three = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen(path: Path) -> None:
        for one in receive_records(path):
            if isinstance(one, WatchHello):
                heard.append(one.hello)
            elif isinstance(one, JournalRecord):
                heard.append(one)
                if len(heard) == 4:
                    loop.call_soon_threadsafe(three.set)

    async with asyncio.timeout(10):
        async with announce_journal(journal, "no/tes", "tap", "a command", folder=tmp_path) as path:
            (tmp_path / "old-1.sock").touch()
            found = await asyncio.to_thread(lambda: list(find_journals(tmp_path)))
            assert [(one, hello.hello) for one, hello in found] == [(path, "no/tes")]
            listening = asyncio.create_task(asyncio.to_thread(listen, path))
            while not heard:
                await asyncio.sleep(0.005)
            filled(journal, 1)
            await three.wait()
            assert path.stat().st_mode & 0o077 == 0
        await listening
    assert heard[0] == "no/tes"
    assert [one.id for one in heard[1:] if isinstance(one, JournalRecord)] == [1, 2, 3]
    assert not path.exists()


@pytest.mark.parametrize("text", ["/mcp?access_token=abcdef123456", "https://u:pass1234@x/y"])
def test_secrets_in_targets_are_redacted_in_journal_records(text: str) -> None:
    journal = Journal()
    begun = journal.begin(UP, "request", "resources/read", target=text)
    record = journal.get(begun.id)
    assert record is not None
    assert record.target is not None
    assert "abcdef123456" not in record.target
    assert "pass1234" not in record.target


def test_the_record_of_a_line_has_the_time_at_which_it_was_sent() -> None:
    journal = Journal()
    overheard = LineObserver(journal)
    overheard.when = Timestamp(steady=10.0, wall=1_000.0)
    assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', UP)
    assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":2,"method":"ping"}', UP)
    overheard.when = Timestamp(steady=10.5, wall=1_000.5)
    assert overheard.receive_bytes(b'{"jsonrpc":"2.0","id":1,"result":{}}', DOWN)
    overheard.when = Timestamp(steady=11.5, wall=1_001.5)
    assert overheard.receive_bytes(
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}', DOWN
    )
    assert not overheard.receive_bytes(b"chatter", DOWN)
    assert [(one.at, one.duration) for one in journal.records()] == [
        (1_000.0, 0.5),
        (1_000.0, 1.5),
        (1_001.5, None),
    ]
