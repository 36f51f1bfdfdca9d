"""Tests of limits on subscriptions and listen streams, per client and in total."""

import pytest

from fairlead.errors import RpcError
from fairlead.limits import (
    CLIENT_LISTENERS,
    CLIENT_SUBSCRIPTIONS,
    CONNECTION_LISTENERS,
    LISTENERS,
    SESSION_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
    Limit,
)
from fairlead.server.features.subscription_quota import SubscriptionQuota


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [
        (SESSION_SUBSCRIPTIONS, 2),
        (CLIENT_SUBSCRIPTIONS, 3),
        (SUBSCRIPTIONS, 4),
        (CONNECTION_LISTENERS, 1),
        (CLIENT_LISTENERS, 2),
        (LISTENERS, 3),
    ]
    for limit, value in values:
        monkeypatch.setattr(limit, "value", value)


def refused(limit: Limit, what: str) -> str:
    return f"MCP error -32602: No more than {limit.value} {what}"


@pytest.mark.usefixtures("small")
def test_subscriptions_are_limited_per_session_per_client_and_in_total() -> None:
    quota = SubscriptionQuota()
    one, two, other = quota.held("a"), quota.held("a"), quota.held("b")
    one.add("u1")
    one.add("u2")
    one.add("u2")
    hits = SESSION_SUBSCRIPTIONS.hits
    with pytest.raises(RpcError) as error:
        one.add("u3")
    assert str(error.value) == refused(SESSION_SUBSCRIPTIONS, "subscriptions in one session")
    assert SESSION_SUBSCRIPTIONS.hits == hits + 1
    two.add("u1")
    with pytest.raises(RpcError) as error:
        two.add("u2")
    assert str(error.value) == refused(CLIENT_SUBSCRIPTIONS, "subscriptions of one client")
    other.add("u1")
    with pytest.raises(RpcError) as error:
        other.add("u2")
    assert str(error.value) == refused(SUBSCRIPTIONS, "subscriptions of all clients together")
    assert (one, two, other) == ({"u1", "u2"}, {"u1"}, {"u1"})


@pytest.mark.usefixtures("small")
def test_ended_subscriptions_release_their_quota() -> None:
    quota = SubscriptionQuota()
    one, two = quota.held("a"), quota.held("a")
    for uri in ("u1", "u2"):
        one.add(uri)
    two.add("u1")
    one.discard("u1")
    one.discard("u1")
    one.discard("never")
    assert (quota.uris.total, quota.uris.counts) == (2, {"a": 2})
    two.add("u2")
    one.clear()
    one.clear()
    assert (quota.uris.total, quota.uris.counts) == (2, {"a": 2})
    del two
    assert (quota.uris.total, quota.uris.counts) == (0, {})


@pytest.mark.usefixtures("small")
def test_listen_streams_have_limits_per_client_and_in_total() -> None:
    quota = SubscriptionQuota()
    edges = [object() for _ in range(5)]
    with quota.listening("a", edges[0], 1):
        with pytest.raises(RpcError) as error, quota.listening("a", edges[0], 0):
            pass
        assert str(error.value) == refused(CONNECTION_LISTENERS, "listen streams on one connection")
        with quota.listening("a", edges[1], 2):
            with pytest.raises(RpcError) as error, quota.listening("a", edges[2], 0):
                pass
            assert str(error.value) == refused(CLIENT_LISTENERS, "listen streams of one client")
            with quota.listening("b", edges[2], 1):
                with pytest.raises(RpcError) as error, quota.listening("c", edges[3], 0):
                    pass
                text = "listen streams of all clients together"
                assert str(error.value) == refused(LISTENERS, text)
    assert (quota.uris.total, quota.streams.total, quota.streams.counts) == (0, 0, {})
    assert quota._by_connection.counts == {}


@pytest.mark.usefixtures("small")
def test_a_rejected_listen_stream_uses_no_quota() -> None:
    quota = SubscriptionQuota()
    with pytest.raises(RpcError) as error, quota.listening("a", object(), 4):
        pass
    assert str(error.value) == refused(CLIENT_SUBSCRIPTIONS, "subscriptions of one client")
    assert (quota.uris.total, quota.streams.total, quota._by_connection.total) == (0, 0, 0)
    with quota.listening("a", object(), 3):
        assert quota.uris.counts == {"a": 3}


def test_quota_counts_match_the_number_of_open_subscriptions() -> None:
    quota = SubscriptionQuota()
    one, two = quota.held("a"), quota.held("a")
    for uri in ("u1", "u2"):
        one.add(uri)
    two.add("u1")
    seen = [dict(quota.uris.counts)]
    one.discard("u1")
    one.discard("u1")
    one.discard(5)
    seen.append(dict(quota.uris.counts))
    one.clear()
    one.clear()
    seen.append(dict(quota.uris.counts))
    two.discard("u1")
    seen.append(dict(quota.uris.counts))
    assert seen == [{"a": 3}, {"a": 2}, {"a": 1}, {}]
    assert quota.uris.total == 0
    with quota.listening("a", object(), 2), quota.listening("a", object(), 0):
        assert (quota.uris.counts["a"], quota.streams.counts) == (2, {"a": 2})
    assert (quota.uris.counts, quota.streams.counts, quota.streams.total) == ({}, {}, 0)
