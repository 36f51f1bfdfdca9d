"""Tests of requests that start and end subscriptions."""

from typing import Any

import pytest

from fairlead import RpcError
from fairlead.server.features.change_broadcaster import ChangeBroadcaster
from fairlead.server.features.resource_registry import Resources
from fairlead.server.features.subscription_requests import SubscriptionRequests
from tests.support.single_exchange import exchange


class Changes(ChangeBroadcaster):
    """Broadcaster that records subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def subscribe(self, edge: object, uri: str) -> None:
        self.calls.append(("subscribe", edge, uri))

    def unsubscribe(self, edge: object, uri: str) -> None:
        self.calls.append(("unsubscribe", edge, uri))


def requests() -> tuple[SubscriptionRequests, Changes]:
    changes, resources = Changes(), Resources(10)
    facts = dict.fromkeys(("title", "description", "mime_type", "cache"))
    resources.register(lambda: "", "r://1", name="n", is_template=False, **facts)
    return SubscriptionRequests(changes, resources, dict), changes


def test_a_session_subscribes_and_unsubscribes() -> None:
    handlers, changes = requests()
    given = exchange("resources/subscribe", {"uri": "r://1"}, stateless=False)
    assert (handlers.subscribe(given), handlers.unsubscribe(given)) == (b"{}", b"{}")
    assert changes.calls == [
        ("subscribe", given.edge, "r://1"),
        ("unsubscribe", given.edge, "r://1"),
    ]


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        (
            {"uri": "r://2"},
            -32002,
            "Resource not found: r://2; did you mean 'r://1'? resources/list returns the available "
            "resources",
        ),
        ({}, -32602, "params.uri is required: the URI of a resource"),
        ({"uri": 5}, -32602, "params.uri is required: the URI of a resource"),
    ],
    ids=["unknown", "missing", "no text"],
)
def test_a_subscription_to_an_unknown_resource_is_rejected(
    params: Any, code: int, message: str
) -> None:
    handlers, changes = requests()
    with pytest.raises(RpcError) as refused:
        handlers.subscribe(exchange("resources/subscribe", params, stateless=False))
    assert (refused.value.code, refused.value.message) == (code, message)
    assert changes.calls == []


async def test_a_listen_request_requires_a_connection() -> None:
    handlers, _ = requests()
    with pytest.raises(RpcError) as refused:
        await handlers.listen(exchange("subscriptions/listen", {"notifications": {}}))
    assert refused.value.code == -32600
    assert refused.value.message == "subscriptions/listen requires a connection"
