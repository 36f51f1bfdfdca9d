"""Sending requests on the current connection, with retries if they are safe."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from msgspec import Raw

from ...errors import FairleadError, RpcError, UrlElicitationRequired
from ...observe.log_filter import ABOUT
from ...peer import OnProgress
from ...wire import RequestId
from ...wire.error_codes import URL_ELICITATION_REQUIRED
from ..client_config import MCPClientConfig
from ..connection.reconnect import Reconnector
from ..connection.retry import Retry, retries_exhausted, server_requested_delay
from ..mcp_transport.channel_transport import ChannelTransport
from .tool_hints import ToolHints

__all__ = ["RequestMixin"]

log = logging.getLogger("fairlead.client")


class RequestMixin:
    """The client methods with which all others send requests."""

    def __init__(
        self, transport: ChannelTransport, config: MCPClientConfig, keeper: Reconnector
    ) -> None:
        self.config = config
        self.transport = transport
        self._reconnector = keeper
        self._known = ToolHints()
        self._retry = Retry(
            config.max_retries, config.retry_delay, tool_calls=config.retry_tool_calls
        )

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
    ) -> Raw:
        """Send a request and return the bytes of its result.

        Progress extends the configured timeout, but not `timeout`. `retry` overrides
        whether the request may be sent again after a failure.

        Raises:
            RpcError: The server answered with an error; `UrlElicitationRequired` if pages must be
                visited first.
            RequestTimeout: No response came in time.
            ChannelClosed: The connection ended.
            RetriesExhausted: All attempts failed, for example with a timeout or a lost connection.
            LocalProtocolError: The request is not allowed in the current state.
        """
        if timeout is None:
            limit, total = self.transport.timeout, self.config.max_total_seconds
        else:
            limit, total = timeout, 0.0
        delays: Iterator[float] | None = None
        retries = 0
        while True:
            try:
                if retries and not self.transport.connected:
                    await self._reconnector.renew(self._reconnector.generation)
                return await self.transport.peer.outbound.request(
                    method,
                    params,
                    timeout=limit,
                    max_total=total,
                    on_progress=on_progress,
                    on_sent=on_sent,
                )
            except (FairleadError, OSError) as exc:
                log.info("%s failed: %s", method, exc, extra={ABOUT: params})
                if _names_pages(exc):
                    raise UrlElicitationRequired(exc) from exc
                if not self._may_retry(method, params, exc, retry):
                    raise
                failure: Exception = exc
            delays = delays or self._retry.delays()
            delay = next(delays, None)
            if delay is None:
                raise retries_exhausted(method, retries, failure) from failure
            delay = max(delay, server_requested_delay(failure))
            log.info("retrying %s in %.2f s", method, delay)
            await self._reconnector.pause(delay)
            retries += 1

    def _may_retry(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        failure: Exception,
        wanted: bool | None,
    ) -> bool:
        if not self.transport.connected and not self._reconnector.can_renew:
            # A closed transport cannot be reopened, and this client cannot create a new one.
            return False
        harmless = method == "tools/call" and self._known.harmless((params or {}).get("name"))
        return self._retry.allows(method, failure, harmless=harmless, wanted=wanted)


def _names_pages(failure: Exception) -> TypeGuard[RpcError]:
    """Return True for an error that lists pages the user must visit first."""
    return isinstance(failure, RpcError) and failure.code == URL_ELICITATION_REQUIRED
