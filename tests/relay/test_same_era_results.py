"""What a relay changes in results of its own era, and who watches what."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.protocol.caller import SUBSCRIPTION_KEY
from fairlead.protocol.revisions import Revision
from fairlead.relay import same_era
from fairlead.relay.same_era import stop_watching
from fairlead.server.features.subscription_quota import SubscriptionQuota
from tests.support.single_exchange import exchange


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"notifications": {"resourceSubscriptions": ["a", "b", "a"]}}, 2),
        ({"notifications": {}}, 0),
        ({}, 0),
        (None, 0),
        ({"notifications": {"resourceSubscriptions": 5}}, 0),  # for the server to refuse
    ],
)
def test_the_resources_of_a_subscription_are_counted(params: Any, count: int) -> None:
    assert same_era._uri_count(exchange("subscriptions/listen", params)) == count


def test_a_server_is_shown_with_the_revisions_that_we_speak() -> None:
    shown = json.loads(bytes(same_era._with_our_versions(Raw(b'{"a":1,"supportedVersions":[]}'))))
    ours = [revision.value for revision in reversed(Revision)]
    assert shown == {"a": 1, "supportedVersions": ours}
    assert bytes(same_era._with_our_versions(Raw(b"[1]"))) == b"[1]"


@pytest.mark.parametrize(
    ("result", "tagged"),
    [
        ({"a": 1}, {"a": 1, "_meta": {SUBSCRIPTION_KEY: 1}}),
        (
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 9}},
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 1}},
        ),
        ([1], [1]),
        ({"_meta": 5}, {"_meta": 5}),
    ],
)
def test_the_last_result_of_a_subscription_has_the_id_of_the_client(
    result: Any, tagged: Any
) -> None:
    asked = exchange("subscriptions/listen", {})
    assert json.loads(bytes(same_era._tagged(Raw(json.dumps(result).encode()), asked))) == tagged


class Watcher:
    """A session, as far as it watches resources."""

    def __init__(self, quota: SubscriptionQuota, *uris: str) -> None:
        self.uris = quota.held("key")
        for uri in uris:
            self.uris.add(uri)


class Watched:
    def __init__(self, **uris: set[object]) -> None:
        self.uris = uris


def test_who_stops_watching_leaves_it_to_others() -> None:
    quota = SubscriptionQuota()
    one, other = Watcher(quota, "a", "b"), Watcher(quota, "a")
    link: Any = Watched(a={one, other}, b={one})
    front: Any = one
    assert stop_watching(None, front, link) is False
    assert quota.uris.total == 3
    assert stop_watching("a", front, link) is True
    assert link.uris == {"a": {other}, "b": {one}}
    assert stop_watching("b", front, link) is False
    assert (link.uris, set(one.uris), quota.uris.total) == ({"a": {other}}, set(), 1)
    assert stop_watching("c", front, link) is False
    last: Any = other
    assert stop_watching("a", last, link) is False
    assert (link.uris, quota.uris.total) == ({}, 0)
