"""Tests of the limits of a journal, and of redaction in all its output."""

import asyncio
import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.policy.actions import Redact
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal, JournalRecord, LineObserver
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.journal.watch_socket import announce_journal
from fairlead.redaction.redact_messages import Redactor
from fairlead.wire import Request, decode
from tests.support.raw_relay import scene


async def passed(journal: Journal, method: str, params: dict[str, object]) -> JournalRecord:
    """Return the record of one request."""
    async with scene(interceptors=[Journaling(journal)]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask(method, params)
        server.reply(await server.method(method), {"said": "x" * 50})
        await client.answer_to(call)
    (record,) = [one for one in journal.records() if one.method == method]
    return record


@pytest.mark.parametrize("longest", [0, 30, 1000])
async def test_the_journal_does_not_store_messages_over_the_size_limit(longest: int) -> None:
    journal = Journal(longest=longest)
    record = await passed(journal, "tools/call", {"name": "x", "arguments": {"text": "y" * 100}})
    kept = longest == 1000
    assert (record.params is not UNSET, record.result is not UNSET) == (kept, kept)
    assert record.size > 150
    assert record.target == "x"


async def test_the_target_of_a_resource_request_is_its_uri_even_if_params_contain_a_name() -> None:
    params: dict[str, object] = {"uri": "file:///secret", "name": "harmless"}
    assert (await passed(Journal(), "resources/read", params)).target == "file:///secret"
    journal = Journal()
    line = b'{"id":1,"method":"resources/read","params":{"uri":"file:///x","name":"y"}}'
    LineObserver(journal).receive_bytes(line, Direction.CLIENT_TO_SERVER)
    assert journal.records()[0].target == "file:///x"


UP = Direction.CLIENT_TO_SERVER


def kept(journal: Journal) -> list[int]:
    return [record.id for record in journal.records()]


def test_journal_entries_except_the_last_one_are_evicted_by_size() -> None:
    journal = Journal(max_bytes=3000)
    for _ in range(3):
        journal.end(journal.begin(UP, "request", "m", params=b"x" * 500), "ok", b"y" * 100)
    assert journal.size <= 3000
    before = len(journal)
    assert journal.dropped == 3 - before
    journal.begin(UP, "request", "m", params=b"x" * 2900)
    assert kept(journal) == [4]
    assert len(journal) == 1
    assert journal.dropped == 3


def test_the_result_of_a_pending_entry_counts_towards_the_size_limit() -> None:
    journal = Journal(max_bytes=3000)
    first = journal.begin(UP, "request", "m")
    second = journal.begin(UP, "request", "m")
    size = journal.size
    journal.end(first, "ok", b"y" * 10)
    assert journal.size == size + 10
    journal.end(first, "failed", b"y" * 10)  # only the first outcome counts
    assert journal.size == size + 10
    assert journal.records()[0].state == "ok"
    journal.end(second, "ok", b"y" * 2900)
    assert kept(journal) == [2]


def test_journal_records_are_found_by_id_until_they_are_evicted() -> None:
    journal = Journal(max_entries=3)
    assert journal.get(1) is None
    for number in range(5):
        journal.begin(UP, "request", f"m/{number}")
    assert kept(journal) == [3, 4, 5]
    assert [record.id for record in journal.records(after=4)] == [5]
    assert [journal.get(number) is not None for number in (2, 3, 5, 6)] == [
        *(False, True, True, False)
    ]
    found = journal.get(4)
    assert found is not None
    assert found.method == "m/3"


def test_notifications_do_not_count_as_pending_exchanges() -> None:
    journal = Journal()
    entry = journal.begin(UP, "request", "m")
    journal.begin(UP, "notification", "n")
    assert journal.pending == 1
    journal.end(entry, "ok")
    assert journal.pending == 0


@pytest.mark.parametrize(("given", "shown"), [(7, 7), ("a", "a"), (None, None), (1.5, "1.5")])
def test_request_ids_of_any_type_can_be_recorded(given: object, shown: object) -> None:
    journal = Journal()
    journal.begin(UP, "request", "m", request_id=given)
    assert journal.records()[0].request_id == shown


def test_the_length_of_recorded_names_and_ids_is_limited() -> None:
    journal = Journal()
    journal.begin(UP, "request", "m" * 300_000, "t" * 300_000, request_id="i" * 300_000)
    record = journal.records()[0]
    lengths = {len(record.method), len(record.target or ""), len(str(record.request_id))}
    assert len(lengths) == 1
    assert lengths.pop() < 300_000


async def test_the_number_of_journal_readers_is_limited_and_close_ends_all_readers() -> None:
    journal = Journal()
    readers = []
    with pytest.raises(RuntimeError, match=r"too many readers: the limit is \d+"):
        while True:
            readers.append(journal.follow())
    reader = readers.pop()
    journal.end(journal.begin(UP, "request", "m"), "ok")
    reader.close()
    assert [record.method async for record in reader] == ["m"]
    assert len(await readers[0].wait(0)) == 1
    assert await readers[0].wait(0) == []
    readers.append(journal.follow())
    for one in readers:
        one.close()


async def test_a_waiting_reader_gets_the_next_record() -> None:
    journal = Journal()
    reader = journal.follow(room=2)
    entry = journal.begin(UP, "request", "m")
    waiting = asyncio.create_task(reader.wait(5.0))
    await asyncio.sleep(0)
    journal.end(entry, "ok")
    assert [record.state for record in await waiting] == ["ok"]
    async with asyncio.timeout(5):
        assert await reader.wait(0.01) == []
    for _ in range(3):
        journal.end(journal.begin(UP, "request", "m"), "ok")
    assert reader.lost == 1
    assert [record.id for record in await reader.wait(0)] == [3, 4]
    reader.close()


async def test_a_waiting_reader_is_notified_of_hanging_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.recording.journal.journal.LOOK_EVERY", 0.01)
    now = [0.0]
    journal = Journal(hangs_after=10.0, clock=lambda: now[0])
    reader = journal.follow()
    journal.begin(UP, "request", "subscriptions/listen")
    journal.begin(UP, "notification", "n")
    journal.begin(UP, "request", "slow")
    now[0] = 9.9
    journal.flag_hanging()
    assert await reader.wait(0) == []
    now[0] = 10.1
    journal.begin(UP, "request", "young")
    assert [record.method for record in await reader.wait(5.0)] == ["slow"]
    journal.flag_hanging()  # flagged only once
    assert await reader.wait(0) == []
    reader.close()


# Limits and redaction of a journal


SECRET = "hunter2-hunter2"

LIMIT = 10.0


# Duplicate names


@st.composite
def hidden(draw: st.DrawFn) -> bytes:
    """Generate JSON with a duplicate name, one of whose members contains a secret."""
    name = draw(st.sampled_from(["password", "a", "tok\\u0065n"]))
    secret = json.dumps(f"Bearer {SECRET}" if name == "a" else SECRET)
    harmless = draw(st.sampled_from(["null", '""', "true", '"x"' if name == "a" else "false"]))
    first, then = draw(st.permutations([f'"{name}":{secret}', f'"{name}":{harmless}']))
    text = f"{{{first},{then}}}"
    wraps = st.sampled_from(['{"in":%s}', "[1,%s]", '{"b":1,"in":%s,"c":[]}'])
    for around in draw(st.lists(wraps, max_size=3)):
        text = around % text
    return text.encode()


@pytest.mark.covers("OBS-05")
@given(hidden())
def test_a_duplicate_name_does_not_hide_a_secret(raw: bytes) -> None:
    for redactor in (Redactor(), Redactor(names=["x"]), Redactor(values=[SECRET])):
        clean = redactor.message(raw)
        assert SECRET.encode() not in clean
        msgspec.json.decode(clean)


def test_recorded_messages_without_secrets_stay_unchanged() -> None:
    raw = b'{ "about": "tokens", "n": 1.50, "list": [{"a": 1}, {"a": 2}] }'
    assert Redactor().message(raw) is raw


async def test_a_secret_under_a_duplicate_name_reaches_neither_client_nor_server() -> None:
    twice = b'{"password":"%b","password":null}' % SECRET.encode()
    async with scene(interceptors=[Redact(to="both")]) as place:
        client = await place.session()
        server = await place.server()
        client.send(b'{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"in":%b}}' % twice)
        while b"x/y" not in (asked := await server.line()):
            pass
        assert SECRET.encode() not in asked
        number = json.loads(asked)["id"]
        server.send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, twice))
        assert SECRET.encode() not in await client.line()


# Readers of pending entries


async def test_the_result_of_a_record_that_was_read_while_pending_is_redacted() -> None:
    journal = Journal()
    record = journal.begin(UP, "request", "tools/call", params=Raw(b"{}"), request_id=1)
    (shown,) = journal.records()
    said = Raw(json.dumps({"password": SECRET}).encode())
    journal.end(record, "refused", result=said, error=f"password={SECRET}", did=[f"token={SECRET}"])
    assert SECRET.encode() not in msgspec.json.encode(shown)
    (now,) = journal.records()
    assert now.state == "refused"
    assert SECRET.encode() not in msgspec.json.encode(now)


async def test_a_slow_watcher_receives_no_secrets_of_requests_that_end_while_it_reads(
    tmp_path: Path,
) -> None:
    """Requests may end while earlier records are being sent to the watcher."""
    journal = Journal()
    filler = Raw(json.dumps("x" * 20_000).encode())
    for _ in range(200):  # more data than a socket buffers
        journal.end(journal.begin(UP, "request", "filler", params=filler), "ok")
    record = journal.begin(UP, "request", "tools/call", params=Raw(b"{}"), request_id=1)
    async with (
        asyncio.timeout(LIMIT),
        announce_journal(journal, "x", "tap", folder=tmp_path) as path,
    ):
        reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 16)
        heard = await reader.readline()
        said = Raw(json.dumps({"password": SECRET, "n": 1}).encode())
        journal.end(record, "ok", result=said, did=[f"token={SECRET}"])
        while b'"state":"ok"' not in heard or b'"tools/call"' not in heard:
            heard = await reader.readline()
            assert SECRET.encode() not in heard
        assert json.loads(heard)["result"] == {"password": "[REDACTED]", "n": 1}
        writer.close()


@given(st.sampled_from([{"token": SECRET}, [f"token={SECRET}"], f"token={SECRET}"]))
def test_secrets_in_request_ids_are_redacted(request_id: Any) -> None:
    journal = Journal()
    overheard = LineObserver(journal)
    line = {"jsonrpc": "2.0", "id": request_id, "method": "x", "params": {}}
    overheard.receive_bytes(json.dumps(line).encode(), UP)
    assert SECRET.encode() not in msgspec.json.encode(journal.records())


# Memory


def _size_of(count: int, keep: Any) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            keep(number)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_recording_short_params_does_not_keep_the_whole_message_in_memory() -> None:
    journal = Journal()
    around = b'{"jsonrpc":"2.0","id":1,%b"method":"x","params":{"a":1}}' % (b" " * (1 << 20))

    def keep(number: int) -> None:
        message = decode(bytes(bytearray(around)))  # creates a new message each time
        assert isinstance(message, Request)
        assert isinstance(message.params, Raw)
        record = journal.begin(UP, "request", "x", params=message.params)
        journal.end(record, "ok", result=message.params)

    assert _size_of(50, keep) < 4 << 20


def test_long_names_are_truncated_and_not_kept_in_memory() -> None:
    journal = Journal()

    def keep(number: int) -> None:
        long = f"{number}" + "x" * (1 << 20)
        record = journal.begin(UP, "request", long, target=long, request_id=long)
        journal.end(record, "lost", error=long)

    assert _size_of(50, keep) < 4 << 20
    assert len(journal.records()) == 50


async def test_a_journal_in_a_relay_keeps_only_the_params_of_a_long_message() -> None:
    """A megabyte of blanks next to the params is not kept."""
    journal = Journal()
    async with scene(interceptors=[Journaling(journal)]) as place:
        client = await place.session()
        server = await place.server()
        for number in range(3):
            blanks = b" " * (1 << 20)
            line = b'{"jsonrpc":"2.0",%b"id":%d,"method":"x/y","params":{"a":1}}'
            client.send(line % (blanks, number))
            server.reply(await server.method("x/y"), {"b": 1})
            await client.answer_to(number)
    kept = [one for one in journal.records() if one.method == "x/y"]
    assert [bytes(one.params) for one in kept if isinstance(one.params, Raw)] == [b'{"a":1}'] * 3
    assert journal.pending == 0
