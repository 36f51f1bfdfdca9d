"""Facts about servers that are stored between program runs."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.client.connection.era_cache import EraCache, fingerprint, known_eras
from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.upstream.memory import server_memory
from fairlead.upstream.memory.server_memory import (
    LIFETIME,
    LIMIT,
    CachedEraStore,
    ServerFacts,
    ServerMemory,
)
from fairlead.upstream.memory.tool_cache import FileStore, MemoryStore

RED = MCPStdioServerConfig(command="red")
BLUE = MCPHttpServerConfig(url="http://blue/mcp")
SINGLE = ServerFacts(is_single=True)
UNKNOWN = ServerFacts()


class BrokenStore:
    """A failing store of an application, with its own exception class."""

    def read(self, key: str) -> bytes | None:
        raise LookupError("broken")

    def write(self, key: str, value: bytes) -> None:
        raise LookupError("broken")


def stored(store: MemoryStore) -> Any:
    return json.loads(store.read("servers") or b"{}")


def test_stored_facts_are_used_only_for_the_same_entry() -> None:
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


def test_stored_facts_of_other_programs_are_kept() -> None:
    store = MemoryStore()
    first, second = ServerMemory(store), ServerMemory(store)
    first.save(RED, SINGLE)
    second.save(BLUE, ServerFacts(asks_roots=True))
    first.save(RED, UNKNOWN)
    assert second.load(RED) == UNKNOWN
    assert first.load(BLUE) == ServerFacts(asks_roots=True)


def test_server_entries_are_stored_as_hashes() -> None:
    store = MemoryStore()
    ServerMemory(store).save(MCPStdioServerConfig(command="red", env={"KEY": "secret"}), SINGLE)
    text = (store.read("servers") or b"").decode()
    assert "red" not in text
    assert "secret" not in text


def test_facts_are_not_stored_without_a_store() -> None:
    memory = ServerMemory()
    memory.save(RED, SINGLE)
    assert memory.load(RED) == UNKNOWN


def test_errors_of_a_failing_store_are_ignored() -> None:
    memory = ServerMemory(BrokenStore())
    memory.save(RED, SINGLE)
    assert memory.load(RED) == UNKNOWN


@pytest.mark.parametrize(
    ("age", "known"), [(0.0, True), (LIFETIME - 1, True), (LIFETIME, False), (-1.0, False)]
)
def test_stored_facts_expire_after_thirty_days(
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
def test_an_unreadable_facts_file_is_replaced(content: bytes) -> None:
    store = MemoryStore()
    store.write("servers", content)
    memory = ServerMemory(store)
    assert memory.load(RED) == UNKNOWN
    memory.save(RED, SINGLE)
    assert memory.load(RED) == SINGLE


def test_facts_of_another_version_or_in_an_oversized_file_are_ignored() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    memory.save(RED, SINGLE)
    content = store.read("servers") or b""
    store.write("servers", json.dumps({**json.loads(content), "version": 2}).encode())
    assert memory.load(RED) == UNKNOWN
    store.write("servers", content + b" " * (server_memory.MAX_BYTES - len(content)))
    assert memory.load(RED) == SINGLE
    store.write("servers", content + b" " * (server_memory.MAX_BYTES - len(content) + 1))
    assert memory.load(RED) == UNKNOWN


def test_unknown_facts_of_a_later_release_are_ignored() -> None:
    store = MemoryStore()
    memory = ServerMemory(store)
    memory.save(RED, SINGLE)
    file = stored(store)
    for record in file["servers"].values():
        record["facts"]["new"] = True
    store.write("servers", json.dumps(file).encode())
    assert memory.load(RED) == SINGLE


def test_the_oldest_facts_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "LIMIT", 2)
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
    file = {"version": 1, "servers": {f"{n:064x}": record for n in range(server_memory.LIMIT)}}
    assert len(json.dumps(file, separators=(",", ":"))) <= server_memory.MAX_BYTES


pytestmark = pytest.mark.slow  # runs with `make test-all`

# A server that supports one era, which it reads from a file. It records its requests.
# The second argument selects its behaviour in the other era.
SERVER = """
import json, sys
from pathlib import Path
folder, manners = Path(sys.argv[1]), sys.argv[2]
stateless = (folder / "era").read_text() == "stateless"
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    with open(folder / "asked", "a") as log:
        log.write(method + "\\n")
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    foreign = method == ("initialize" if stateless else "server/discover")
    if foreign and manners == "dies":
        sys.exit(3)
    if foreign and manners == "is silent":
        continue
    if foreign and manners == "says yes":
        answer = {"result": {}}
    if method == "server/discover" and stateless:
        answer = {"result": {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                  "capabilities": {}}}
    elif method == "initialize" and not stateless:
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {},
                  "serverInfo": {"name": "x", "version": "1"}}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
CLIENT = """
import asyncio, sys
from fairlead.manager import MCPManager, MCPToolCache

async def main():
    async with MCPManager(cache=MCPToolCache()) as manager:
        entry = {"command": sys.executable, "args": sys.argv[2:], "timeout": float(sys.argv[1])}
        await manager.connect_servers({"a": entry})
        await manager.settled()
        print(manager.get_connection_status("a"))

asyncio.run(main())
"""


class Place:
    """A server, and processes that connect to it in turn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.file = self.home / "cache" / "eras.json"
        (folder / "server.py").write_text(SERVER)

    def start(self, manners: str, timeout: int = 20_000) -> "subprocess.Popen[str]":
        """Start a process that connects to the server."""
        words = ["-S", "-E", str(self.folder / "server.py"), str(self.folder), manners]
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(timeout), *words],
            env={**os.environ, "FAIRLEAD_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def connect(
        self, era: str, manners: str = "refuses", outcome: str = "connected", **limit: int
    ) -> list[str]:
        """Return the requests that the server received from a new process."""
        (self.folder / "era").write_text(era)
        asked = self.folder / "asked"
        asked.write_text("")
        out, errors = self.start(manners, **limit).communicate(timeout=30)
        assert out == f"{outcome}\n", errors
        opening = ("server/discover", "initialize")
        return [method for method in asked.read_text().split() if method in opening]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


PROBED = ["server/discover", "initialize"]


@pytest.mark.covers("CFG-13")
def test_a_second_process_does_not_probe_the_server_again(place: Place) -> None:
    assert place.connect("handshake") == PROBED
    assert place.connect("handshake") == ["initialize"]
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
    # commands and arguments are not stored in plain text
    assert "server.py" not in place.file.read_text()


@pytest.mark.covers("CFG-13")
def test_a_wrong_era_verdict_is_corrected_by_the_next_connection(place: Place) -> None:
    assert place.connect("handshake") == PROBED
    assert place.connect("stateless") == ["initialize", "server/discover"]
    assert place.connect("stateless") == ["server/discover"]
    assert place.connect("handshake") == PROBED
    assert place.connect("handshake") == ["initialize"]


@pytest.mark.parametrize("manners", ["dies", "says yes"])
def test_a_wrong_era_verdict_is_corrected_after_any_kind_of_refusal(
    place: Place, manners: str
) -> None:
    assert place.connect("handshake", manners) == PROBED
    assert place.connect("stateless", manners) == ["initialize", "server/discover"]
    assert place.connect("stateless", manners) == ["server/discover"]
    assert place.connect("handshake", manners)[-2:] == PROBED
    assert place.connect("handshake", manners) == ["initialize"]


def test_a_server_that_stopped_responding_is_probed_the_next_time(place: Place) -> None:
    manners = "is silent"
    assert place.connect("handshake", manners) == PROBED
    lost = place.connect("stateless", manners, outcome="disconnected", timeout=1000)
    assert lost == ["initialize"]
    assert place.connect("stateless", manners) == ["server/discover"]


class _OneEra(BaseHTTPRequestHandler):
    """A server that handles POSTs of one era and refuses others with a status and an empty body."""

    stateless = False
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match message["method"], self.stateless:
            case "server/discover", True:
                result: dict[str, Any] = {"resultType": "complete"}
                result |= {"supportedVersions": ["2026-07-28"], "capabilities": {}}
            case "initialize", False:
                result = {"protocolVersion": "2025-06-18", "capabilities": {}}
                result["serverInfo"] = {"name": "x", "version": "1"}
            case _:
                self._answer(400 if "id" in message else 202)
                return
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self._answer(200, body.encode())

    def do_GET(self) -> None:
        self._answer(405)

    do_DELETE = do_GET

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


async def test_a_wrong_era_verdict_about_an_http_server_is_corrected() -> None:
    class Web(_OneEra):
        pass

    known_eras.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as web:
        thread = Thread(target=web.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{web.server_port}/mcp"
        try:
            for Web.stateless in (False, True, False):
                async with asyncio.timeout(20), MCPClient.connect_http(url) as client:
                    spoken = client.protocol_version
                assert spoken == ("2026-07-28" if Web.stateless else "2025-06-18")
                assert known_eras.stateless(url) is Web.stateless
        finally:
            web.shutdown()
            thread.join()


def test_concurrent_writers_leave_a_complete_file(place: Place) -> None:
    (place.folder / "era").write_text("handshake")
    started = [place.start(f"refuses {n}") for n in range(6)]  # six processes write the same file
    outcomes = [process.communicate(timeout=60) for process in started]
    assert [out for out, _ in outcomes] == ["connected\n"] * 6, outcomes
    kept = json.loads(place.file.read_text())["eras"]
    assert 1 <= len(kept) <= 6  # Concurrent writers may have overwritten some verdicts.
    assert all(stateless is False for stateless, _ in kept.values())
    assert not list(place.home.rglob(".*.json.*"))


@pytest.mark.covers("CFG-13")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "[]",
        '{"version": 1}',
        '{"version": 2, "eras": {}}',
        '{"version": 1, "eras": {"x": [1, "y"]}}',
        "[" * 100_000,
        " " * (1 << 20),
    ],
)
def test_an_invalid_facts_file_is_ignored_and_replaced(place: Place, content: str) -> None:
    place.file.parent.mkdir(parents=True)
    place.file.write_text(content)
    assert place.connect("handshake") == PROBED
    assert json.loads(place.file.read_text())["version"] == 1


def _file(store: MemoryStore, **eras: tuple[bool, float]) -> None:
    store.write("eras", json.dumps({"version": 1, "eras": eras}).encode())


def test_expired_and_future_era_verdicts_are_ignored() -> None:
    store, now = MemoryStore(), time.time()
    _file(store, old=(True, now - LIFETIME - 1), young=(True, now - 1), odd=(True, now + 3600))
    assert CachedEraStore(store).load() == {"young": True}


def test_the_oldest_era_verdicts_are_dropped_first() -> None:
    store, now = MemoryStore(), time.time()
    _file(store, **{f"s{n}": (False, now - LIMIT + n) for n in range(LIMIT)})
    kept = CachedEraStore(store)
    kept.save("new", True)
    assert len(kept.load()) == LIMIT
    assert kept.load()["new"] is True
    assert "s0" not in kept.load()
    assert "s1" in kept.load()


def test_a_process_keeps_era_verdicts_that_another_process_has_stored() -> None:
    store = MemoryStore()
    one, other = EraCache(), EraCache()
    one.keep(CachedEraStore(store))
    other.keep(CachedEraStore(store))
    # Both stores were read before the writes.
    assert one.stateless("a") is other.stateless("b") is None
    one.remember("a", True)
    other.remember("b", False)
    assert CachedEraStore(store).load() == {fingerprint("a"): True, fingerprint("b"): False}
    one.forget("a")
    assert CachedEraStore(store).load() == {fingerprint("b"): False}


def test_a_facts_folder_that_cannot_be_written_raises_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    eras = EraCache()
    eras.keep(CachedEraStore(FileStore(tmp_path / "file" / "folder")))
    eras.remember("a", True)
    assert eras.stateless("a") is True


def test_an_unchanged_era_verdict_is_not_written_again() -> None:
    class Counting(MemoryStore):
        writes = 0

        def write(self, key: str, value: bytes) -> None:
            self.writes += 1
            super().write(key, value)

    store = Counting()
    for _ in range(3):
        eras = EraCache()
        eras.keep(CachedEraStore(store))
        eras.remember("a", False)
    assert store.writes == 1


@pytest.mark.parametrize(("seconds", "known"), [(7 * 24 * 3600 - 1, True), (7 * 24 * 3600, False)])
def test_an_era_verdict_expires_after_a_week(
    monkeypatch: pytest.MonkeyPatch, seconds: float, known: bool
) -> None:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    store = CachedEraStore(MemoryStore())
    store.save("a", True)
    now[0] += seconds
    assert store.load() == ({"a": True} if known else {})


def test_era_verdicts_about_a_thousand_servers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    store = CachedEraStore(MemoryStore())
    for number in range(1001):
        now[0] += 1
        store.save(f"server {number}", number % 2 == 0)
    found = store.load()
    assert (len(found), "server 0" in found, found["server 1"]) == (1000, False, False)
