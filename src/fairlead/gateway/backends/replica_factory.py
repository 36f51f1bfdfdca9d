"""Replicas with their circuit breakers, as the settings of a gateway describe them."""

from collections.abc import Sequence

from msgspec import structs

from ...errors import HttpError, LocalResourceError, ServerBusy, TransportError
from ...interceptor import Interceptor
from ...interceptor.circuit_breaker import CircuitBreaker
from ...protocol.targets.list_kind import ListKind
from ...relay.bridge.parked_calls import ParkedCalls
from ...relay.relay import Relay
from ...server.features.subscription_quota import SubscriptionQuota
from ...upstream.startup_wait import StillStarting
from ...upstream.upstream import Upstream
from ..gateway_settings import GatewaySettings
from .replica import Replica

__all__ = ["ReplicaFactory"]


class ReplicaFactory:
    """Creates the replicas of a gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        parked: ParkedCalls,
        quota: SubscriptionQuota,
        interceptors: Sequence[Interceptor],
    ) -> None:
        """`interceptors` are around what servers ask and tell."""
        self._settings = settings
        self._parked = parked
        self._quota = quota
        self._interceptors = interceptors

    def create(self, upstream: Upstream) -> Replica:
        """Return the replica of a server."""
        breaker = CircuitBreaker(
            failure_threshold=self._settings.failure_threshold,
            reset_timeout=self._settings.reset_timeout,
            name=upstream.name,
            counts=_is_failure,
        )
        relay = self._settings.relay
        upstream.serve_clients(self._interceptors, relay.call_timeout)
        upstream.keep_lists(ListKind)
        settings = structs.replace(relay, **upstream.spec.settings)
        forwarder = Relay(upstream, settings=settings, parked=self._parked, quota=self._quota)
        return Replica(upstream, forwarder, breaker)


# Statuses with which a server rejects what one client sent. Counted as failures of the server, they
# would let that client open the circuit breaker for all others.
_REJECTED = frozenset({400, 405, 406, 411, 413, 414, 415, 417, 422, 431})


def _is_failure(exc: BaseException) -> bool:
    """Return True for errors that count against a server: not for its refusals or a slow start."""
    if isinstance(exc, HttpError) and exc.status in _REJECTED:
        return False
    return isinstance(exc, TransportError) and not isinstance(
        exc, StillStarting | ServerBusy | LocalResourceError
    )
