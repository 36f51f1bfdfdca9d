"""What servers told of their own accord, as the admin API lists it."""

from fairlead.gateway.admin.servers_api import NotificationLog


def test_methods_and_uris_are_kept_and_nothing_else() -> None:
    log = NotificationLog()
    log.add("notes", "notifications/resources/updated", {"uri": "file:///a", "secret": 1})
    log.add("notes", "notifications/message", {"data": "secret", "uri": 1})
    log.add("notes", "notifications/progress", {})
    log.add("notes", "notifications/subscriptions/acknowledged", {})
    heard = log.list()
    assert all(one.pop("at") > 0 for one in heard)
    assert heard == [
        {"server": "notes", "method": "notifications/resources/updated", "uri": "file:///a"},
        {"server": "notes", "method": "notifications/message"},
    ]


def test_the_last_two_hundred_are_kept() -> None:
    log = NotificationLog()
    for number in range(201):
        log.add("s", f"m{number}", {})
    assert [one["method"] for one in log.list()] == [f"m{number}" for number in range(1, 201)]
