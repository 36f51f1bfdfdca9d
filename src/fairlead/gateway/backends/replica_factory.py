"""Replicas with their circuit breakers, as the settings of a gateway describe them."""

from collections.abc import Sequence

from ...errors import HttpError, LocalResourceError, ServerBusy, TransportError
from ...interceptor import Interceptor
from ...interceptor.circuit_breaker import CircuitBreaker
from ...manager import MCPManager
from ...manager.server_spec import ServerSpec
from ...relay.bridge.parked_calls import ParkedCalls
from ...server.features.subscription_quota import SubscriptionQuota
from ..gateway_settings import GatewaySettings
from .replica import Replica
from .startup_calls import StillStarting

__all__ = ["ReplicaFactory"]


class ReplicaFactory:
    """Creates the replicas of a gateway."""

    def __init__(
        self,
        manager: MCPManager,
        settings: GatewaySettings,
        parked: ParkedCalls,
        quota: SubscriptionQuota,
        interceptors: Sequence[Interceptor],
    ) -> None:
        self._manager = manager
        self._settings = settings
        self._parked = parked
        self._quota = quota
        self._interceptors = interceptors

    def create(self, name: str, spec: ServerSpec) -> Replica:
        """Return a replica of this name; the manager connects it."""
        breaker = CircuitBreaker(
            failure_threshold=self._settings.failure_threshold,
            reset_timeout=self._settings.reset_timeout,
            name=name,
            counts=_is_failure,
        )
        return Replica(
            *(name, self._manager, spec, self._settings.relay),
            *(self._parked, self._quota, breaker),
            interceptors=self._interceptors,
        )


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
