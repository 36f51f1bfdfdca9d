"""Routes of the admin API for messages, and their limits."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ConfigError
from fairlead.gateway.admin import messages_api
from fairlead.gateway.admin.route import BadRequest, PageRequest
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.observe.metrics import Metrics
from fairlead.policy.hold_desk import HoldDesk, NotHeld
from fairlead.protocol.caller import ANONYMOUS
from fairlead.recording.journal import Journal
from fairlead.recording.tape.tape_reader import TapeReader
from fairlead.transport.http.server.asgi import AsgiCall
from fairlead.wire import to_json


def request(query: str = "", *values: str, body: Any = None) -> PageRequest:
    async def receive() -> Any:
        assert body is not None
        return {"type": "http.request", "body": to_json(body), "more_body": False}

    async def send(_: Any) -> None:
        raise AssertionError

    scope = {"method": "GET", "path": "/", "headers": [], "query_string": query.encode()}
    return PageRequest(AsgiCall(scope, receive, send), ANONYMOUS, values)


class FakeJournal:
    """An empty journal whose readers record how long they would wait."""

    dropped = 3

    def __init__(self, records: list[int] | None = None) -> None:
        self.found = records or []
        self.waited: list[float] = []
        self.asked: list[int] = []
        self.closed = self.flagged = 0

    def records(self, after: int) -> list[int]:
        self.asked.append(after)
        return self.found

    def follow(self) -> "FakeJournal":
        return self

    async def wait(self, seconds: float) -> list[str]:
        self.waited.append(seconds)
        return ["new"]

    def close(self) -> None:
        self.closed += 1

    def flag_hanging(self) -> None:
        self.flagged += 1

    def get(self, number: int) -> str | None:
        return "one" if number == 7 else None


@pytest.mark.parametrize(
    ("query", "waited"),
    [("wait=5", 5.0), ("wait=60", 60.0), ("wait=61", 60.0), ("wait=0.5", 0.5), ("wait=inf", 60.0)],
)
async def test_a_request_for_journal_records_waits_at_most_a_minute(
    query: str, waited: float
) -> None:
    journal: Any = FakeJournal()
    answer = await messages_api.read_journal(journal, request(f"after=9&{query}"))
    assert answer == {"records": ["new"], "dropped": 3}
    assert (journal.waited, journal.closed, journal.asked) == ([waited], 1, [9])


@pytest.mark.parametrize("query", ["", "wait=0"])
async def test_a_journal_request_without_a_wait_time_returns_at_once(query: str) -> None:
    journal: Any = FakeJournal()
    assert await messages_api.read_journal(journal, request(query)) == {"records": [], "dropped": 3}
    assert (journal.waited, journal.flagged, journal.asked) == ([], 1, [0])


async def test_existing_journal_records_are_returned_without_waiting() -> None:
    journal: Any = FakeJournal([1])
    answer = await messages_api.read_journal(journal, request("wait=5"))
    assert (answer["records"], journal.waited) == ([1], [])


@pytest.mark.parametrize("query", ["wait=-1", "wait=x", "wait=nan"])
async def test_an_invalid_wait_parameter_is_refused(query: str) -> None:
    journal: Any = FakeJournal()
    with pytest.raises(BadRequest, match="^`wait` must be a number of seconds, 0 or more$"):
        await messages_api.read_journal(journal, request(query))


def test_an_exchange_is_looked_up_by_its_id() -> None:
    journal: Any = FakeJournal()
    assert messages_api.read_exchange(journal, request("", "7")) == "one"
    with pytest.raises(ConfigError, match="^unknown exchange 8: not in the journal$"):
        messages_api.read_exchange(journal, request("", "8"))


class FakeTapes:
    """A tape folder with one tape of 1,100 entries."""

    recording = None

    def __init__(self, folder: Path) -> None:
        lines = [
            json.dumps({"seq": n, "at": 0.0, "dir": "client_to_server", "message": {}}) + "\n"
            for n in range(1, 1101)
        ]
        (folder / "t.tape.jsonl").write_text("".join(lines))
        self.base = folder / "t"

    def open(self, name: str) -> TapeReader:
        return TapeReader(self.base)


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 100), ("limit=7", 7), ("limit=0", 1), ("limit=1000", 1000), ("limit=1001", 1000)],
)
async def test_entries_of_a_tape_are_returned_in_pages(
    tmp_path: Path, query: str, count: int
) -> None:
    tapes: Any = FakeTapes(tmp_path)
    page = await messages_api.read_entries(tapes, request(query, "t"))
    assert (len(page.entries), page.more) == (count, True)


async def test_an_invalid_tape_position_and_stopping_an_idle_tape_are_refused(
    tmp_path: Path,
) -> None:
    tapes: Any = FakeTapes(tmp_path)
    with pytest.raises(BadRequest, match="invalid tape position"):
        await messages_api.read_entries(tapes, request("from=x", "t"))
    with pytest.raises(BadRequest, match="^tape 't' is not being recorded$"):
        messages_api.stop(tapes, request("", "t"))


class FakeDesk:
    """A hold desk that holds message 7 and records decisions."""

    def __init__(self) -> None:
        self.decided: list[Any] = []

    def _decide(self, number: int, *decision: Any) -> None:
        if number != 7:
            raise NotHeld("unknown message")
        self.decided.append(decision)

    def resume(self, number: int) -> None:
        self._decide(number, "resume")

    def change(self, number: int, *, params: Raw | None, result: Raw | None) -> None:
        if params is not None and result is not None:
            raise ConfigError("either of them")
        self._decide(number, params and bytes(params), result and bytes(result))

    def block(self, number: int, reason: str) -> None:
        self._decide(number, "block", reason)


async def test_held_messages_can_be_resumed_changed_or_blocked() -> None:
    desk: Any = FakeDesk()
    assert messages_api.resume(desk, request("", "7")) == {"resumed": 7}
    for body in ({"params": {"a": 1}}, {"result": {}}, {}):
        assert await messages_api.change(desk, request("", "7", body=body)) == {"changed": 7}
    for body in ({"reason": "no"}, {}):
        assert await messages_api.block(desk, request("", "7", body=body)) == {"blocked": 7}
    assert desk.decided == [
        ("resume",),
        (b'{"a":1}', None),
        (None, b"{}"),
        (None, None),
        ("block", "no"),
        ("block", ""),
    ]


async def test_invalid_decisions_and_those_on_unknown_messages_are_refused() -> None:
    desk: Any = FakeDesk()
    with pytest.raises(NotHeld):
        messages_api.resume(desk, request("", "8"))
    with pytest.raises(NotHeld):
        await messages_api.change(desk, request("", "8", body={}))
    with pytest.raises(NotHeld):
        await messages_api.block(desk, request("", "8", body={}))
    with pytest.raises(BadRequest, match="either of them"):
        await messages_api.change(desk, request("", "7", body={"params": {}, "result": {}}))
    with pytest.raises(BadRequest, match="'x' is not a number"):
        messages_api.resume(desk, request("", "x"))
    with pytest.raises(BadRequest, match="invalid body: "):
        await messages_api.block(desk, request("", "7", body={"why": "no"}))


async def test_a_tape_can_be_recorded_stopped_and_deleted(tmp_path: Path) -> None:
    tapes = TapeControl(tmp_path)
    body = {"name": "one", "tags": ["a"]}
    assert await messages_api.record(tapes, request("", body=body)) == {"recording": "one"}
    assert tapes.recording is not None
    assert list(tapes.recording.info.tags) == ["a"]
    with pytest.raises(BadRequest, match="tape 'one' is being recorded"):
        await messages_api.record(tapes, request("", body={}))
    with pytest.raises(BadRequest, match="^tape 'other' is not being recorded$"):
        messages_api.stop(tapes, request("", "other"))
    with pytest.raises(
        BadRequest, match="^tape 'one' is being recorded: stop the recording first$"
    ):
        await messages_api.delete(tapes, request("", "one"))
    assert messages_api.stop(tapes, request("", "one")) == {"stopped": "one", "entries": 0}
    assert await messages_api.delete(tapes, request("", "one")) == {"deleted": "one"}
    assert tapes.list() == []
    with pytest.raises(ConfigError):
        await messages_api.delete(tapes, request("", "one"))


def test_admin_routes_of_disabled_components_have_no_handlers(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "journal": Journal(),
        "metrics": Metrics(),
        "desk": HoldDesk(),
        "tapes": TapeControl(tmp_path),
    }
    of = {"paused": "desk"}
    assert all(one.handler is None for one in messages_api.message_routes(Observability()))
    for on, part in parts.items():
        for route in messages_api.message_routes(Observability(**{on: part})):
            name = route.path.split("/")[2]
            assert (route.handler is not None) is (of.get(name, name) == on)
    assert len(messages_api.message_routes(Observability(**parts))) == 13
