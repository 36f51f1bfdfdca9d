"""Relays created with the settings of a gateway."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import ChannelClosed, RpcError
from fairlead.gateway.backends.relay_factory import create_relay
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.relay_settings import RelaySettings
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream

RELAY = RelaySettings(call_timeout=7.0, connect_timeout=9.0)


async def passing(exchange: Exchange, proceed: Proceed) -> Answer:
    return await proceed(exchange)


class Place:
    """An upstream and the relay created for it."""

    def __init__(self, settings: dict[str, Any] | None = None, **spec: Any) -> None:
        entry = read_entry({"type": "http", "url": "http://127.0.0.1:1/mcp"})
        given = ServerSpec(entry=entry, settings=settings or {}, **spec)
        self.upstream = Upstream("red", given, RELAY, starts=StartLimiter())
        self.parked, self.quota = ParkedCalls(RELAY.max_parked), SubscriptionQuota()
        gateway = GatewaySettings(relay=RELAY, failure_threshold=2, reset_timeout=30.0)
        self.relay = create_relay(
            self.upstream,
            settings=gateway,
            parked=self.parked,
            quota=self.quota,
            interceptors=[passing],
        )


async def test_a_relay_uses_the_connections_of_its_upstream_and_the_limits_of_its_gateway() -> None:
    place = Place()
    relay, pool = place.relay, place.upstream.pool
    assert (relay.name, relay.upstream, relay.pool) == ("red", place.upstream, pool)
    assert (pool.default, pool.opener.interceptors) == (place.upstream, [passing])
    assert (relay.parked, relay.quota) == (place.parked, place.quota)


async def test_a_relay_stores_all_lists_of_its_server() -> None:
    assert set(Place().upstream.lists.kinds) == set(ListKind)


@pytest.mark.parametrize(
    ("own", "settings"),
    [({}, RELAY), ({"log_level": "error"}, replace(RELAY, log_level="error"))],
    ids=["of the gateway", "of the server"],
)
async def test_settings_of_a_server_override_those_of_the_gateway(
    own: dict[str, Any], settings: RelaySettings
) -> None:
    assert Place(own).relay.settings == settings


@pytest.mark.parametrize(("timeout", "limit"), [(None, 7.0), (5000, 5.0), (60000, 7.0), (0, 7.0)])
async def test_a_call_waits_for_a_start_no_longer_than_the_call_timeout(
    timeout: float | None, limit: float
) -> None:
    assert Place(startup_timeout=timeout).upstream.startup_wait.limit == limit


async def test_the_breaker_opens_after_the_configured_number_of_failures() -> None:
    health = Place().upstream.health
    assert health is not None
    breaker = health.breaker
    for error in (ChannelClosed("x"), RpcError(5, "no"), ChannelClosed("x")):
        breaker.admit().ended(error)
    assert (breaker.name, breaker.state) == ("red", "closed")  # the failures were not consecutive
    breaker.admit().ended(ChannelClosed("x"))
    assert breaker.state == "open"
    assert 29.0 < breaker.remaining <= 30.0
