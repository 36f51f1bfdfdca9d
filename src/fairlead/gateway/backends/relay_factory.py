"""Relays to the servers of a gateway."""

from collections.abc import Sequence

from msgspec import structs

from ...interceptor import Interceptor
from ...protocol.targets.list_kind import ListKind
from ...relay.bridge.parked_calls import ParkedCalls
from ...relay.relay import Relay
from ...server.features.subscription_quota import SubscriptionQuota
from ...upstream.call_health import CallHealth
from ...upstream.upstream import Upstream
from ..gateway_settings import GatewaySettings

__all__ = ["RelayFactory"]


class RelayFactory:
    """Factory of the relays of a gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        parked: ParkedCalls,
        quota: SubscriptionQuota,
        interceptors: Sequence[Interceptor],
    ) -> None:
        """`interceptors` see the requests and notifications of the servers."""
        self._settings = settings
        self._parked = parked
        self._quota = quota
        self._interceptors = interceptors

    def create(self, upstream: Upstream) -> Relay:
        """Create the relay to a server."""
        health = CallHealth(
            upstream.name,
            is_process=upstream.is_process,
            failure_threshold=self._settings.failure_threshold,
            reset_timeout=self._settings.reset_timeout,
        )
        relay = self._settings.relay
        upstream.serve_clients(self._interceptors, relay.call_timeout, health)
        upstream.keep_lists(ListKind)
        # Settings of the server's entry take precedence over those of the gateway.
        settings = structs.replace(relay, **upstream.spec.settings)
        return Relay(upstream, settings=settings, parked=self._parked, quota=self._quota)
