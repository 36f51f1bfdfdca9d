"""Dispatch of the server's notifications and requests to the client's callbacks."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, Unpack

from ...errors import RpcError
from ...interceptor import Interceptor, OnMalformed, malformed_frame_hook
from ...transport import timeouts
from ...wire import Notification, to_json
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from ...wire.json import read_json
from ..callbacks import Callbacks, OnLog
from ..client_config import MCPClientConfig
from ..connection.listen_request import ACKNOWLEDGED, CANCELLED
from ..connection.reconnect import Reconnector
from ..input.answers import OnElicit, OnRoots, OnSample
from ..input.url_elicitation import COMPLETED
from ..mcp_transport.channel_transport import ChannelTransport
from ..mcp_transport.mcp_transport import OnRequest
from ..mcp_transport.network import HttpTransport
from ..mcp_transport.notification_queue import NotificationListener
from .change_subscriptions import SubscriptionMixin
from .result_cache import CHANGES
from .typed_calls import TypedCallMixin

__all__ = ["CallbackMixin"]

log = logging.getLogger("fairlead.client")

_OVERHEARD = CHANGES | {ACKNOWLEDGED, CANCELLED, COMPLETED}


class CallbackMixin(TypedCallMixin, SubscriptionMixin):
    """The client methods that store the callbacks and call them.

    In the handshake era, capabilities are declared once per connection, so a new kind of callback
    takes effect with the next connection.
    """

    def __init__(
        self, transport: ChannelTransport, config: MCPClientConfig, keeper: Reconnector
    ) -> None:
        super().__init__(transport, config, keeper)
        self.on_log: OnLog | None = None
        # Called with every notification from the server.
        self.on_notification: NotificationListener | None = None
        self.on_request: OnRequest | None = None
        self._interceptors: Sequence[Interceptor] = ()
        self._on_offence: OnMalformed | None = None

    @property
    def on_elicit(self) -> OnElicit | None:
        """The callback that requests input from the user on behalf of the server."""
        return self._answers.on_elicit

    @on_elicit.setter
    def on_elicit(self, callback: OnElicit | None) -> None:
        self._answers.on_elicit = callback
        self._declare()

    @property
    def on_sample(self) -> OnSample | None:
        """The callback that samples a model on behalf of the server."""
        return self._answers.on_sample

    @on_sample.setter
    def on_sample(self, callback: OnSample | None) -> None:
        self._answers.on_sample = callback
        self._declare()

    @property
    def on_roots(self) -> OnRoots | None:
        """The callback that returns the folders that the server may work in."""
        return self._answers.on_roots

    @on_roots.setter
    def on_roots(self, callback: OnRoots | None) -> None:
        self._answers.on_roots = callback
        self._declare()

    async def roots_changed(self) -> None:
        """Notify the server that `on_roots` now returns other roots.

        A stateless server requests the roots whenever it needs them, and is not notified.
        """
        if not self._stateless:
            await self.transport.peer.notify("notifications/roots/list_changed")

    def _with(self, **given: Unpack[Callbacks]) -> Self:
        """Set the callbacks that were passed to a `connect_*` function."""
        self.on_log = given.get("on_log")
        self.on_notification = given.get("on_notification")
        self.on_request = given.get("on_request")
        answers = self._answers
        answers.on_elicit = given.get("on_elicit")
        answers.on_sample = given.get("on_sample")
        answers.on_roots = given.get("on_roots")
        answers.elicit_url = given.get("elicit_url", False)
        answers.sample_tools = given.get("sample_tools", False)
        self._declare()
        if interceptors := given.get("interceptors"):
            self._interceptors = tuple(interceptors)
            self._on_offence = malformed_frame_hook(interceptors)
        return self

    def _declare(self) -> None:
        """Update the capabilities declared in the handshake and in stateless requests."""
        self._identity.capabilities = to_json(self._answers.capabilities)
        self._identity.request_log_level(self._log_level if self._stateless else None)

    def _adopt(self, transport: ChannelTransport) -> None:
        """Attach this client's handlers to a transport."""
        transport.on_notification = self._notified
        transport.on_request = self._asked
        transport.overhear = self._overhear
        transport.on_lost = self._lost
        if isinstance(transport, HttpTransport) and transport.param_headers_of is None:
            transport.param_headers_of = self._param_headers.of

    async def _asked(self, method: str, params: dict[str, Any]) -> Any:
        """Answer a request from the server (handshake era)."""
        if self._answers.missing(method) is None:
            try:
                async with timeouts.timeout(self.config.input_timeout or None):
                    return await self._answers.answer(method, params)
            except TimeoutError as exc:
                raise RpcError(INTERNAL_ERROR, f"{method} was not answered in time") from exc
        if self.on_request is not None:
            return await self.on_request(method, params)
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    def _overhear(self, notification: Notification) -> None:
        """Process a notification that the client itself needs, before any callback."""
        method = notification.method
        if method not in _OVERHEARD:
            return
        if method == "notifications/tools/list_changed":
            self._known.forget()
        said = read_json(notification.params, dict[str, Any], {})
        if method in (ACKNOWLEDGED, CANCELLED):
            self._listening.heard(method, said)
        elif method == COMPLETED:
            self._visits.completed(said.get("elicitationId"))
        else:
            if self._cache is not None:
                self._cache.heard(method, said)
            for watch in self._watches:
                watch.heard(method, said.get("uri"))

    def _lost(self) -> None:
        if self._listening.wanted:
            self._reconnector.lost()

    def _notified(self, method: str, params: dict[str, Any]) -> Awaitable[None] | None:
        """Call the callbacks for a notification.

        If one of them fails, the other is still called.
        """
        calls: list[Awaitable[None]] = []
        if method == "notifications/message" and self.on_log is not None:
            level, data = str(params.get("level", "info")), params.get("data")
            _tell(calls, self.on_log, level, data, params.get("logger"))
        if self.on_notification is not None:
            _tell(calls, self.on_notification, method, params)
        return _one_after_another(calls) if calls else None


def _tell(
    calls: list[Awaitable[None]],
    listener: Callable[..., Awaitable[None] | None],
    *news: Any,
) -> None:
    try:
        waiting = listener(*news)
    # The callback is user code and may raise any exception.
    except Exception:
        log.exception("a listener failed")
    else:
        if waiting is not None:
            calls.append(waiting)


async def _one_after_another(calls: list[Awaitable[None]]) -> None:
    for call in calls:
        try:
            await call
        # The callback is user code and may raise any exception.
        except Exception:
            log.exception("a listener failed")
