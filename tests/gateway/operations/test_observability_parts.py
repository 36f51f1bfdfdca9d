"""Observability components: interceptors, listeners, recording and counters."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.server_entry import read_entry
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.gateway.operations.tool_lock_lookup import ToolOriginLookup
from fairlead.observe.metrics import Metrics
from fairlead.policy.tool_lock.lock_file import ToolLockData, lock_tools
from fairlead.recording.journal import Journal
from fairlead.redaction.redact_messages import Redactor
from fairlead.upstream.starts.start_limiter import StartLimiter
from tests.support.single_exchange import exchange


class FakeUpstreams(dict[str, Any]):
    """Upstreams that record their listeners."""

    def __init__(self, upstreams: Iterable[Any] = ()) -> None:
        super().__init__({one.name: one for one in upstreams})
        self.listeners: list[Any] = []
        self.on_entries: list[Any] = []
        self.starts = StartLimiter(1)

    def add_status_listener(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def on_resolved(self, listener: Any) -> Any:
        self.on_entries.append(listener)
        return lambda: self.on_entries.remove(listener)

    def connected(self) -> list[str]:
        return ["red", "blue"]

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.listeners), len(self.on_entries)


def observe(parts: Observability) -> tuple[FakeUpstreams, list[Any], list[str]]:
    upstreams, waited = FakeUpstreams(), []

    async def wait(asked: Any, name: str) -> None:
        waited.append(name)

    tools = SimpleNamespace(find=lambda asked, name: f"found {name}", wait=wait)
    given: Any = (upstreams, [1, 2, 3])
    looks: Any = {"server_of": lambda asked: None, "tools": tools}
    return upstreams, parts.observe_gateway(*given, **looks), waited


def test_disabled_observability_components_add_no_interceptors() -> None:
    parts = Observability()
    assert (list(parts.interceptors), list(parts.innermost), parts.collect()) == ([], [], None)
    upstreams, ends, _ = observe(parts)
    assert (ends, upstreams.counts) == ([], (0, 0))


def test_tapes_are_the_first_interceptor_and_a_tool_lock_is_the_last(tmp_path: Path) -> None:
    lock = ToolLockData(servers={"red": lock_tools([])})
    tapes = TapeControl(tmp_path)
    parts = Observability(tapes=tapes, journal=Journal(), metrics=Metrics(), lock=lock)
    kinds = [type(one).__name__ for one in parts.interceptors]
    assert kinds == ["TapeControl", "Journaling", "Measuring"]
    assert [type(one).__name__ for one in parts.innermost] == ["ToolLock"]


@pytest.mark.parametrize(
    ("parts", "listeners"),
    [
        ({"redactor": Redactor()}, (0, 1)),
        ({"metrics": Metrics()}, (0, 0)),
        ({"redactor": Redactor(), "metrics": Metrics()}, (0, 1)),
        ({"journal": Journal()}, (0, 0)),
    ],
    ids=["redactor", "metrics", "both", "journal"],
)
def test_event_listeners_are_removed_when_the_observation_ends(
    parts: dict[str, Any], listeners: tuple[int, int]
) -> None:
    upstreams, ends, _ = observe(Observability(**parts))
    assert upstreams.counts == listeners
    for end in ends:
        end()
    assert upstreams.counts == (0, 0)


def test_secrets_in_server_entries_are_redacted() -> None:
    redactor = Redactor()
    upstreams, _, _ = observe(Observability(redactor=redactor))
    secret = "hunter2-and-more-of-it"
    assert redactor.text(f"key: {secret}") == f"key: {secret}"
    (on_entry,) = upstreams.on_entries
    on_entry(read_entry({"command": "x", "env": {"API_KEY": secret}}))
    assert secret not in redactor.text(f"key: {secret}")


def test_connected_servers_and_clients_are_counted() -> None:
    parts = Observability(metrics=Metrics())
    observe(parts)
    metrics = parts.collect()
    assert metrics is not None
    found = metrics.snapshot()
    assert (found["gauges"]["clients"], found["gauges"]["servers_connected"]) == (3, 2)
    assert found["gauges"]["shortage"] == 0


async def test_tools_are_not_found_before_the_observation_has_started() -> None:
    parts = Observability()
    asked = exchange()
    assert parts.find_tool(asked, "x") is None
    await parts.until_found(asked, "x")
    _, _, waited = observe(parts)
    found: Any = parts.find_tool(asked, "x")
    assert found == "found x"
    await parts.until_found(asked, "y")
    assert waited == ["y"]


def test_a_recording_ends_with_the_gateway(tmp_path: Path) -> None:
    tapes = TapeControl(tmp_path)
    upstreams, ends, _ = observe(Observability(tapes=tapes))
    tapes.start("one")
    assert (upstreams.counts, tapes.recording is not None) == ((0, 1), True)
    for end in ends:
        end()
    assert (upstreams.counts, tapes.recording) == ((0, 0), None)
    assert [tape["status"] for tape in tapes.list()] == ["complete"]


def test_counters_are_kept_for_each_connection_to_a_server() -> None:
    class Counting:
        def __init__(self, number: int) -> None:
            self.malformed, self.unmatched_count = number, number * 10

    def upstream(name: str, current: Counting | None, *others: Counting) -> Any:
        default = None if current is None else SimpleNamespace(peer=current)
        connections = [SimpleNamespace(peer=one) for one in others]
        everything = connections if default is None else [default, *connections]
        pool = SimpleNamespace(connections=connections, all_connections=everything)
        state = "failed" if default is None else "connected"
        return SimpleNamespace(
            name=name,
            current=default,
            pool=pool,
            reconnects=len(others),
            status=state,
            describe_suspended=lambda: [{}] * len(others),
        )

    upstreams = [
        upstream("red", Counting(1), Counting(2), Counting(3)),
        upstream("red#2", None),
        upstream("red#3", None, Counting(4)),
    ]
    parts = Observability(metrics=Metrics())
    looks: Any = {"server_of": lambda asked: None, "tools": None}
    everything: Any = (FakeUpstreams(upstreams), [])
    parts.observe_gateway(*everything, **looks)
    metrics = parts.collect()
    assert metrics is not None
    found = metrics.snapshot()
    assert found["reconnects"] == {"red": 2, "red#2": 0, "red#3": 1}
    assert found["gauges"]["server_up"] == {"red": 1, "red#2": 0, "red#3": 0}
    assert found["gauges"]["server_connections"] == {"red": 3, "red#2": 0, "red#3": 1}
    assert found["gauges"]["server_suspended"] == {"red": 2, "red#2": 0, "red#3": 1}
    assert found["malformed"] == {"red": 1, "red/0": 2, "red/1": 3, "red#3/0": 4}
    assert found["unknown_ids"] == {"red": 10, "red/0": 20, "red/1": 30, "red#3/0": 40}


# Tool lookup


class Router:
    def __init__(self) -> None:
        self.expected: list[str] = []

    async def expect_tool(self, name: str, caller: Any) -> None:
        self.expected.append(name)


@pytest.mark.parametrize(
    ("search", "name", "arguments", "expected"),
    [
        (False, "call_tool", {"name": "inner"}, "call_tool"),
        (True, "call_tool", {"name": "inner", "arguments": {}}, "inner"),
        (True, "describe_tool", {"name": "inner"}, "inner"),
        (True, "search_tools", {"query": "x"}, "search_tools"),
        (True, "other", {}, "other"),
    ],
)
async def test_the_tool_lookup_waits_for_the_tool_named_in_the_arguments_of_call_tool(
    search: bool, name: str, arguments: Any, expected: str
) -> None:
    router = Router()
    parts: Any = (None, None, router, None)
    lookup = ToolOriginLookup(*parts, search=search)
    await lookup.wait(exchange(params={"name": name, "arguments": arguments}), name)
    assert router.expected == [expected]
