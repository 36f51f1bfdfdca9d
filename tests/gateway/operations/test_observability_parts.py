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
