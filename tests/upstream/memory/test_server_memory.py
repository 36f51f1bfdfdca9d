"""Facts about servers, kept from one program run to the next."""

import json
import time
from typing import Any

import pytest

from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.upstream.memory import dated_records
from fairlead.upstream.memory.server_memory import LIFETIME, ServerFacts, ServerMemory
from fairlead.upstream.memory.tool_cache import MemoryStore

RED = MCPStdioServerConfig(command="red")
BLUE = MCPHttpServerConfig(url="http://blue/mcp")
SINGLE = ServerFacts(is_single=True)
UNKNOWN = ServerFacts()


class BrokenStore:
    """A store of a host program that raises its own exception."""

    def read(self, key: str) -> bytes | None:
        raise LookupError("broken")

    def write(self, key: str, value: bytes) -> None:
        raise LookupError("broken")


def stored(store: MemoryStore) -> Any:
    return json.loads(store.read("servers") or b"{}")


def test_facts_are_used_only_for_the_same_entry() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    assert memory.load(RED) == UNKNOWN
    facts = ServerFacts(is_single=True, asks_roots=True, asks_roots_early=True, no_handshake=True)
    memory.save(RED, facts)
    memory.save(BLUE, ServerFacts(no_handshake=True))
    another_program = ServerMemory(store)
    assert another_program.load(RED) == facts
    assert another_program.load(BLUE) == ServerFacts(no_handshake=True)
    assert another_program.load(MCPStdioServerConfig(command="red", args=["-v"])) == UNKNOWN


def test_facts_of_other_programs_are_kept() -> None:
    store = MemoryStore()
    first, second = ServerMemory(store), ServerMemory(store)
    first.save(RED, SINGLE)
    second.save(BLUE, ServerFacts(asks_roots=True))
    first.save(RED, UNKNOWN)
    assert second.load(RED) == UNKNOWN
    assert first.load(BLUE) == ServerFacts(asks_roots=True)


def test_entries_are_stored_as_hashes() -> None:
    store = MemoryStore()
    ServerMemory(store).save(MCPStdioServerConfig(command="red", env={"KEY": "secret"}), SINGLE)
    text = (store.read("servers") or b"").decode()
    assert "red" not in text
    assert "secret" not in text


def test_without_a_store_nothing_is_kept() -> None:
    memory = ServerMemory()
    memory.save(RED, SINGLE)
    assert memory.load(RED) == UNKNOWN


def test_a_store_that_fails_is_ignored() -> None:
    memory = ServerMemory(BrokenStore())
    memory.save(RED, SINGLE)
    assert memory.load(RED) == UNKNOWN


@pytest.mark.parametrize(
    ("age", "known"), [(0.0, True), (LIFETIME - 1, True), (LIFETIME, False), (-1.0, False)]
)
def test_facts_are_valid_for_thirty_days(
    monkeypatch: pytest.MonkeyPatch, age: float, known: bool
) -> None:
    assert LIFETIME == 30 * 24 * 3600
    store, began = MemoryStore(), time.time()
    monkeypatch.setattr(time, "time", lambda: began)
    ServerMemory(store).save(RED, SINGLE)
    monkeypatch.setattr(time, "time", lambda: began + age)
    assert ServerMemory(store).load(RED) == (SINGLE if known else UNKNOWN)
    ServerMemory(store).save(BLUE, SINGLE)
    assert len(stored(store)["servers"]) == 1 + known  # expired facts are dropped on the next write


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"servers":{"x":{"facts":{"is_single":"yes"},"saved":1}}}',
    ],
)
def test_a_file_that_cannot_be_read_is_replaced(content: bytes) -> None:
    store = MemoryStore()
    store.write("servers", content)
    memory = ServerMemory(store)
    assert memory.load(RED) == UNKNOWN
    memory.save(RED, SINGLE)
    assert memory.load(RED) == SINGLE


def test_facts_of_another_version_or_in_a_file_that_is_too_large_are_not_used() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    memory.save(RED, SINGLE)
    content = store.read("servers") or b""
    store.write("servers", json.dumps({**json.loads(content), "version": 2}).encode())
    assert memory.load(RED) == UNKNOWN
    store.write("servers", content + b" " * (dated_records.MAX_BYTES - len(content)))
    assert memory.load(RED) == SINGLE
    store.write("servers", content + b" " * (dated_records.MAX_BYTES - len(content) + 1))
    assert memory.load(RED) == UNKNOWN


def test_facts_of_a_later_release_are_ignored() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    memory.save(RED, SINGLE)
    file = stored(store)
    for record in file["servers"].values():
        record["facts"]["new"] = True
    store.write("servers", json.dumps(file).encode())
    assert memory.load(RED) == SINGLE


def test_the_oldest_records_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dated_records, "LIMIT", 2)
    began = time.time()
    now = iter(range(100))
    monkeypatch.setattr(time, "time", lambda: began + next(now))
    memory = ServerMemory(MemoryStore())
    green = MCPStdioServerConfig(command="green")
    for entry in (RED, BLUE, RED, green):
        memory.save(entry, SINGLE)
    assert [memory.load(one) == SINGLE for one in (RED, BLUE, green)] == [True, False, True]


def test_the_maximum_number_of_servers_fits_into_the_file() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    memory.save(RED, ServerFacts(True, True, True, True))
    [(_, record)] = stored(store)["servers"].items()
    file = {"version": 1, "servers": {f"{n:064x}": record for n in range(dated_records.LIMIT)}}
    assert len(json.dumps(file, separators=(",", ":"))) <= dated_records.MAX_BYTES
