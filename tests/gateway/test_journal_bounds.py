"""What a journal keeps of calls that pass: nothing longer than it was told, nothing hidden."""

import asyncio

import pytest
from msgspec import UNSET
from rawends import scene

from fairlead.gateway.interceptors.journaling import Journaling
from fairlead.gateway.journal import Journal, Overheard, Record
from fairlead.protocol.envelope import Direction


async def passed(journal: Journal, method: str, params: dict[str, object]) -> Record:
    """The record of one request."""
    async with scene(interceptors=[Journaling(journal)]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask(method, params)
        server.reply(await server.method(method), {"said": "x" * 50})
        await client.answer_to(call)
    (record,) = [one for one in journal.records() if one.method == method]
    return record


@pytest.mark.parametrize("longest", [0, 30, 1000])
async def test_what_is_longer_than_it_may_be_is_not_kept(longest: int) -> None:
    journal = Journal(longest=longest)
    record = await passed(journal, "tools/call", {"name": "x", "arguments": {"text": "y" * 100}})
    kept = longest == 1000
    assert (record.params is not UNSET, record.result is not UNSET) == (kept, kept)
    assert record.size > 150
    assert record.target == "x"


async def test_a_name_beside_its_uri_does_not_hide_a_resource() -> None:
    params: dict[str, object] = {"uri": "file:///secret", "name": "harmless"}
    assert (await passed(Journal(), "resources/read", params)).target == "file:///secret"
    journal = Journal()
    line = b'{"id":1,"method":"resources/read","params":{"uri":"file:///x","name":"y"}}'
    Overheard(journal).hear(line, Direction.CLIENT_TO_SERVER)
    assert journal.records()[0].target == "file:///x"


UP = Direction.CLIENT_TO_SERVER


def kept(journal: Journal) -> list[int]:
    return [record.id for record in journal.records()]


def test_entries_make_room_by_bytes_and_the_last_one_stays() -> None:
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


def test_a_result_that_comes_later_counts_too() -> None:
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


def test_records_are_found_by_number() -> None:
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


def test_only_requests_are_pending() -> None:
    journal = Journal()
    entry = journal.begin(UP, "request", "m")
    journal.begin(UP, "notification", "n")
    assert journal.pending == 1
    journal.end(entry, "ok")
    assert journal.pending == 0


@pytest.mark.parametrize(("given", "shown"), [(7, 7), ("a", "a"), (None, None), (1.5, "1.5")])
def test_ids_of_any_type_are_shown(given: object, shown: object) -> None:
    journal = Journal()
    journal.begin(UP, "request", "m", request_id=given)
    assert journal.records()[0].request_id == shown


def test_names_and_ids_are_shown_up_to_a_length() -> None:
    journal = Journal()
    journal.begin(UP, "request", "m" * 300_000, "t" * 300_000, request_id="i" * 300_000)
    record = journal.records()[0]
    lengths = {len(record.method), len(record.target or ""), len(str(record.request_id))}
    assert len(lengths) == 1
    assert lengths.pop() < 300_000


async def test_readers_are_bounded_and_end_when_they_are_closed() -> None:
    journal = Journal()
    readers = []
    with pytest.raises(RuntimeError, match=r"there are \d+ readers already"):
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


async def test_a_reader_that_waits_gets_what_ends_meanwhile() -> None:
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


async def test_a_waiting_reader_learns_of_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.gateway.journal.journal.LOOK_EVERY", 0.01)
    now = [0.0]
    journal = Journal(hangs_after=10.0, clock=lambda: now[0])
    reader = journal.follow()
    journal.begin(UP, "request", "subscriptions/listen")
    journal.begin(UP, "notification", "n")
    journal.begin(UP, "request", "slow")
    now[0] = 9.9
    journal.look_over()
    assert await reader.wait(0) == []
    now[0] = 10.1
    journal.begin(UP, "request", "young")
    assert [record.method for record in await reader.wait(5.0)] == ["slow"]
    journal.look_over()  # once
    assert await reader.wait(0) == []
    reader.close()
