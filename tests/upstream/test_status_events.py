"""Status events: each change is reported once, and listeners do not affect each other."""

import logging

import pytest

from fairlead.upstream.status_events import (
    StatusEvent,
    StatusReporter,
    added_listener,
    call_safely,
)


def test_a_server_state_is_reported_once_until_it_changes() -> None:
    reporter, events = StatusReporter(), list[StatusEvent]()
    reporter.add_status(events.append)
    reporter.report_connecting(["a", "b"])
    reporter.report_state("a", "connecting", None, None)
    reporter.report_state("a", "failed", ValueError("no"), "/mcp.json")
    reporter.report_state("a", "suspended", ValueError("no"), "/mcp.json")
    assert events == [
        StatusEvent(kind="connecting", names=("a", "b")),
        StatusEvent(kind="failed", names=("a",), error="no", path="/mcp.json"),
    ]


def test_an_idle_server_is_reported_as_disconnected_and_a_stopped_one_is_not_reported() -> None:
    reporter, events = StatusReporter(), list[StatusEvent]()
    reporter.add_status(events.append)
    for state in ("connected", "reconnecting", "connected", "idle", "stopped"):
        reporter.report_state("a", state, None, None)  # type: ignore[arg-type]
    kinds = [event.kind for event in events]
    assert kinds == ["connected", "reconnecting", "connected", "disconnected"]


def test_a_server_that_was_removed_and_added_again_is_reported_again() -> None:
    reporter, events = StatusReporter(), list[StatusEvent]()
    reporter.report_state("a", "connected", None, None)
    reporter.report_disconnected(["a"], "/mcp.json")
    reporter.add_status(events.append)
    reporter.report_state("a", "connected", None, None)
    reporter.report_connecting([])
    reporter.report_disconnected([], None)
    assert events == [StatusEvent(kind="connected", names=("a",))]


def test_servers_that_disconnect_together_cause_one_event() -> None:
    reporter, events = StatusReporter(), list[StatusEvent]()
    remove = reporter.add_status(events.append)
    reporter.report_disconnected(["a", "b"], None)
    remove()
    reporter.report_disconnected(["c"], None)
    assert events == [StatusEvent(kind="disconnected", names=("a", "b"))]


def test_a_failing_listener_is_logged_and_other_listeners_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter, heard = StatusReporter(), list[tuple[str, str]]()

    def fail(server: str, method: str, params: object) -> None:
        raise ValueError(method)

    reporter.add_notification(fail)
    remove = reporter.add_notification(lambda server, method, _: heard.append((server, method)))
    with caplog.at_level(logging.ERROR, "fairlead.manager"):
        reporter.report_notification("a", "notifications/message", {})
    remove()
    remove()
    reporter.report_notification("a", "notifications/progress", {})
    assert heard == [("a", "notifications/message")]
    assert "a listener failed" in caplog.text


def test_a_status_listener_may_remove_itself_and_fail(caplog: pytest.LogCaptureFixture) -> None:
    reporter, events = StatusReporter(), list[StatusEvent]()

    def once(event: StatusEvent) -> None:
        remove()
        raise ValueError("the host's mistake")

    remove = reporter.add_status(once)
    reporter.add_status(events.append)
    reporter.report_connecting(["a"])
    reporter.report_connecting(["b"])
    assert [event.names for event in events] == [("a",), ("b",)]
    assert [record.getMessage() for record in caplog.records] == ["a listener failed"]


def test_a_listener_that_was_added_twice_must_be_removed_twice() -> None:
    listeners: list[object] = []
    first = added_listener(listeners, "listener")
    second = added_listener(listeners, "listener")
    first()
    assert listeners == ["listener"]
    second()
    assert listeners == []


def test_base_exceptions_of_listeners_are_propagated() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_safely(interrupt, "a")
