"""Listeners hear of each change once, and cannot disturb each other."""

import logging

import pytest

from fairlead.manager.status_events import Listeners, StatusEvent


def test_a_state_is_reported_once_until_it_changes() -> None:
    listeners, events = Listeners(), list[StatusEvent]()
    listeners.add_status(events.append)
    listeners.report_connecting(["a", "b"])
    listeners.report_state("a", "connecting", None, None)
    listeners.report_state("a", "failed", ValueError("no"), "/mcp.json")
    listeners.report_state("a", "suspended", ValueError("no"), "/mcp.json")
    assert events == [
        StatusEvent(kind="connecting", names=("a", "b")),
        StatusEvent(kind="failed", names=("a",), error="no", path="/mcp.json"),
    ]


def test_a_server_that_was_forgotten_is_reported_anew() -> None:
    listeners, events = Listeners(), list[StatusEvent]()
    listeners.report_state("a", "connected", None, None)
    listeners.report_disconnected(["a"], "/mcp.json")
    listeners.add_status(events.append)
    listeners.report_state("a", "connected", None, None)
    listeners.report_connecting([])
    assert events == [StatusEvent(kind="connected", names=("a",))]


def test_a_listener_that_fails_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners, heard = Listeners(), list[tuple[str, str]]()

    def fail(server: str, method: str, params: object) -> None:
        raise ValueError(method)

    listeners.add_notification(fail)
    remove = listeners.add_notification(lambda server, method, _: heard.append((server, method)))
    with caplog.at_level(logging.ERROR, "fairlead.manager"):
        listeners.report_notification("a", "notifications/message", {})
    remove()
    remove()
    listeners.report_notification("a", "notifications/progress", {})
    assert heard == [("a", "notifications/message")]
    assert "a listener failed" in caplog.text
