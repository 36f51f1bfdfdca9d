"""Parts for the operator of a gateway: which are on, in which order, and what they count."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.gateway.operations.tool_lock_lookup import ToolOriginLookup
from fairlead.manager.status_events import StatusEvent
from fairlead.observe.metrics import Metrics
from fairlead.policy.tool_lock import ToolLockData, lock_tools
from fairlead.recording.journal import Journal
from fairlead.redaction.redact_messages import Redactor
from tests.support.single_exchange import exchange


class FakeManager:
    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.connections: dict[str, Any] = {}

    def add_status_listener(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def get_connected_servers(self) -> list[str]:
        return ["red", "blue"]


def observe(parts: Observability) -> tuple[FakeManager, list[Any], list[str]]:
    manager, waited = FakeManager(), []

    async def wait(asked: Any, name: str) -> None:
        waited.append(name)

    tools = SimpleNamespace(find=lambda asked, name: f"found {name}", wait=wait)
    registry = SimpleNamespace(members={})
    given: Any = (manager, registry, [1, 2, 3])
    looks: Any = {"server_of": lambda asked: None, "tools": tools}
    return manager, parts.observe_gateway(*given, **looks), waited


def test_what_is_off_is_not_there() -> None:
    parts = Observability()
    assert (list(parts.interceptors), list(parts.innermost), parts.collect()) == ([], [], None)
    manager, ends, _ = observe(parts)
    assert (ends, manager.listeners) == ([], [])


def test_tapes_come_first_and_a_lock_last(tmp_path: Path) -> None:
    lock = ToolLockData(servers={"red": lock_tools([])})
    tapes = TapeControl(tmp_path)
    parts = Observability(tapes=tapes, journal=Journal(), metrics=Metrics(), lock=lock)
    kinds = [type(one).__name__ for one in parts.interceptors]
    assert kinds == ["TapeControl", "Journaling", "Measuring"]
    assert [type(one).__name__ for one in parts.innermost] == ["ToolLock"]


@pytest.mark.parametrize(
    ("parts", "listeners"),
    [({"redactor": Redactor()}, 1), ({"metrics": Metrics()}, 1), ({"journal": Journal()}, 0)],
    ids=["redactor", "metrics", "journal"],
)
def test_what_listens_to_the_manager_stops_with_the_gateway(
    parts: dict[str, Any], listeners: int
) -> None:
    manager, ends, _ = observe(Observability(**parts))
    assert len(manager.listeners) == listeners
    for end in ends:
        end()
    assert manager.listeners == []


def test_a_server_that_comes_back_is_counted() -> None:
    parts = Observability(metrics=Metrics())
    manager, _, _ = observe(parts)
    (listener,) = manager.listeners
    for kind in ("connected", "reconnecting", "connected", "connected"):
        listener(StatusEvent(kind=kind, names=("red",)))  # type: ignore[arg-type]
    listener(StatusEvent(kind="connected", names=("blue",)))
    metrics = parts.collect()
    assert metrics is not None
    found = metrics.snapshot()
    assert found["reconnects"] == {"red": 2}
    assert (found["gauges"]["clients"], found["gauges"]["servers_connected"]) == (3, 2)


async def test_tools_are_looked_up_once_there_is_a_gateway() -> None:
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
    manager, ends, _ = observe(Observability(tapes=tapes))
    tapes.start("one")
    assert (len(manager.listeners), tapes.recording is not None) == (1, True)
    for end in ends:
        end()
    assert (manager.listeners, tapes.recording) == ([], None)
    assert [tape["status"] for tape in tapes.list()] == ["complete"]


def test_counters_follow_all_connections_to_servers() -> None:
    class Counting:
        def __init__(self, number: int) -> None:
            self.malformed, self.unmatched_count = number, number * 10

    own, first, second = Counting(1), Counting(2), Counting(3)
    links = [SimpleNamespace(peer=one) for one in (own, first, second)]
    upstream = SimpleNamespace(links=links)
    replicas = [
        SimpleNamespace(name="red", relay=SimpleNamespace(upstream=upstream)),
        SimpleNamespace(name="red#2", relay=SimpleNamespace(upstream=SimpleNamespace(links=[]))),
    ]
    manager = FakeManager()
    transport = SimpleNamespace(peer=own)
    manager.connections["red"] = SimpleNamespace(client=SimpleNamespace(transport=transport))
    members = {"red": SimpleNamespace(replicas=replicas)}
    parts, given = Observability(metrics=Metrics()), SimpleNamespace(members=members)
    assert parts._peers() == []
    looks: Any = {"server_of": lambda asked: None, "tools": None}
    everything: Any = (manager, given, [])
    parts.observe_gateway(*everything, **looks)
    metrics = parts.collect()
    assert metrics is not None
    found = metrics.snapshot()
    assert found["malformed"] == {"red": 1, "red/0": 2, "red/1": 3}
    assert found["unknown_ids"] == {"red": 10, "red/0": 20, "red/1": 30}


# Where a tool comes from


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
async def test_the_tool_inside_of_a_call_is_waited_for(
    search: bool, name: str, arguments: Any, expected: str
) -> None:
    router = Router()
    parts: Any = (None, None, router, None)
    lookup = ToolOriginLookup(*parts, search=search)
    await lookup.wait(exchange(params={"name": name, "arguments": arguments}), name)
    assert router.expected == [expected]
