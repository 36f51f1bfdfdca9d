"""Log of notifications from servers."""

import pytest

from fairlead.gateway.operations import notification_log
from fairlead.gateway.operations.notification_log import NotificationLog


def test_a_logged_notification_has_only_the_method_and_the_uri() -> None:
    log = NotificationLog()
    log.add("red", "notifications/message", {"data": "private"})
    log.add("red", "notifications/resources/updated", {"uri": "a:b", "title": "private"})
    log.add("red", "notifications/resources/updated", {"uri": 7})
    log.add("red", "notifications/progress", {"progress": 1})
    found = [{key: one[key] for key in one if key != "at"} for one in log.list()]
    assert found == [
        {"server": "red", "method": "notifications/message"},
        {"server": "red", "method": "notifications/resources/updated", "uri": "a:b"},
        {"server": "red", "method": "notifications/resources/updated"},
    ]


def test_the_notification_log_keeps_only_the_latest_entries() -> None:
    log = NotificationLog()
    for number in range(201):
        log.add("red", f"notifications/{number}", {})
    methods = [one["method"] for one in log.list()]
    assert (len(methods), methods[0]) == (200, "notifications/1")


def test_the_time_of_a_logged_notification_is_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notification_log, "time", lambda: 5.123456)
    log = NotificationLog()
    log.add("red", "notifications/message", {})
    log.add("red", "notifications/subscriptions/acknowledged", {})
    assert log.list() == [{"at": 5.123, "server": "red", "method": "notifications/message"}]
