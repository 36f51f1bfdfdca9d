"""What a journal keeps is bounded, and nobody who looks into it ever sees a secret."""

import asyncio
import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from rawends import scene

from fairlead.gateway.interceptors import Redact
from fairlead.gateway.interceptors.journaling import Journaling
from fairlead.gateway.journal import Journal, Overheard
from fairlead.gateway.journal.announcing import announced
from fairlead.observe.redactor import Redactor
from fairlead.protocol.envelope import Direction
from fairlead.wire import Request, decode

SECRET = "hunter2-hunter2"
UP = Direction.CLIENT_TO_SERVER
LIMIT = 10.0


# Names that are there twice


@st.composite
def hidden(draw: st.DrawFn) -> bytes:
    """JSON in which a secret stands under a name that is there again, where nothing is secret."""
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
def test_a_name_that_is_there_twice_hides_nothing(raw: bytes) -> None:
    for redactor in (Redactor(), Redactor(names=["x"]), Redactor(values=[SECRET])):
        clean = redactor.message(raw)
        assert SECRET.encode() not in clean
        msgspec.json.decode(clean)


def test_what_has_no_secret_stays_as_it_came() -> None:
    raw = b'{ "about": "tokens", "n": 1.50, "list": [{"a": 1}, {"a": 2}] }'
    assert Redactor().message(raw) is raw


async def test_a_secret_under_a_name_that_comes_again_reaches_neither_client_nor_server() -> None:
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


# Who looks while it goes on


async def test_a_record_that_was_shown_does_not_get_a_secret_later() -> None:
    journal = Journal()
    record = journal.begin(UP, "request", "tools/call", params=Raw(b"{}"), request_id=1)
    (shown,) = journal.records()
    said = Raw(json.dumps({"password": SECRET}).encode())
    journal.end(record, "refused", result=said, error=f"password={SECRET}", did=[f"token={SECRET}"])
    assert SECRET.encode() not in msgspec.json.encode(shown)
    (now,) = journal.records()
    assert now.state == "refused"
    assert SECRET.encode() not in msgspec.json.encode(now)


async def test_a_slow_watcher_sees_no_secret_of_what_ends_meanwhile(tmp_path: Path) -> None:
    """It is told what is remembered while it reads; a request may end in the middle of that."""
    journal = Journal()
    filler = Raw(json.dumps("x" * 20_000).encode())
    for _ in range(200):  # more than a socket takes at once
        journal.end(journal.begin(UP, "request", "filler", params=filler), "ok")
    record = journal.begin(UP, "request", "tools/call", params=Raw(b"{}"), request_id=1)
    async with asyncio.timeout(LIMIT), announced(journal, "x", "tap", folder=tmp_path) as path:
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
def test_an_id_tells_no_secret(request_id: Any) -> None:
    journal = Journal()
    overheard = Overheard(journal)
    line = {"jsonrpc": "2.0", "id": request_id, "method": "x", "params": {}}
    overheard.hear(json.dumps(line).encode(), UP)
    assert SECRET.encode() not in msgspec.json.encode(journal.records())


# How much is kept


def _size_of(count: int, keep: Any) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            keep(number)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_short_part_does_not_keep_a_long_message() -> None:
    journal = Journal()
    around = b'{"jsonrpc":"2.0","id":1,%b"method":"x","params":{"a":1}}' % (b" " * (1 << 20))

    def keep(number: int) -> None:
        message = decode(bytes(bytearray(around)))  # a message of its own each time
        assert isinstance(message, Request)
        assert isinstance(message.params, Raw)
        record = journal.begin(UP, "request", "x", params=message.params)
        journal.end(record, "ok", result=message.params)

    assert _size_of(50, keep) < 4 << 20


def test_long_names_are_not_kept() -> None:
    journal = Journal()

    def keep(number: int) -> None:
        long = f"{number}" + "x" * (1 << 20)
        record = journal.begin(UP, "request", long, target=long, request_id=long)
        journal.end(record, "lost", error=long)

    assert _size_of(50, keep) < 4 << 20
    assert len(journal.records()) == 50


async def test_a_journal_in_a_relay_forgets_whole_messages() -> None:
    """The same with everything in between."""
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
