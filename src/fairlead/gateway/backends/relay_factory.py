"""Relays to the servers of a gateway."""

from collections.abc import Sequence

from ...interceptor import Interceptor
from ...protocol.targets.list_kind import ListKind
from ...relay.bridge.parked_calls import ParkedCalls
from ...relay.relay import Relay
from ...server.features.subscription_quota import SubscriptionQuota
from ...upstream.call_health import CallHealth
from ...upstream.upstream import Upstream
from ..gateway_settings import GatewaySettings

__all__ = ["create_relay"]


def create_relay(
    upstream: Upstream,
    settings: GatewaySettings,
    parked: ParkedCalls,
    quota: SubscriptionQuota,
    interceptors: Sequence[Interceptor],
) -> Relay:
    """Create the relay to a server. `interceptors` see its requests and notifications."""
    health = CallHealth(
        upstream.name,
        is_process=upstream.is_process,
        failure_threshold=settings.failure_threshold,
        reset_timeout=settings.reset_timeout,
    )
    upstream.update_settings(settings.relay, upstream.spec)
    upstream.serve_clients(interceptors, health)
    upstream.keep_lists(ListKind)
    return Relay(upstream, parked=parked, quota=quota)
