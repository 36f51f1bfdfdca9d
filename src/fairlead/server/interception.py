"""Interceptors for messages to callers that are not connected to the server itself.

On a connection of the server, an `InterceptedPeer` calls the interceptors.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from ..interceptor import Answer, Exchange, Handler, Interceptor, ReplyPath, ReplyPathBase, chain
from ..interceptor.direct_edge import NullReplyPath
from ..peer import Peer
from ..peer.intercepted_peer import InterceptedNotifier, InterceptedPeer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import Caller
from ..protocol.conversation.conversation import Conversation
from ..protocol.envelope import Direction, SessionContext, TransportContext
from ..protocol.result_fragments import fragment_content, fragment_notification
from ..transport.channel import Channel
from ..wire import Notification, Request, to_json
from .results.encode_fragment import FragmentSender

__all__ = ["InterceptedHandler"]


class InterceptedHandler:
    """Handler wrapper that passes the notifications and requests of the handler through the
    interceptors.
    """

    def __init__(
        self, interceptors: tuple[Interceptor, ...], info: dict[str, Any], handler: Handler
    ) -> None:
        """`info` is the `serverInfo` that interceptors see."""
        self._interceptors = interceptors
        self._notifier = InterceptedNotifier(interceptors, to_json(info))
        self._handler = handler
        self._alone = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)

    def __call__(self, exchange: Exchange) -> Awaitable[Answer]:
        edge = exchange.edge
        if isinstance(edge, InterceptedPeer) and edge.interceptors is self._interceptors:
            # An intercepted peer passes its messages through the interceptors itself;
            # a second reply path would call them twice.
            return self._handler(exchange)
        if isinstance(edge, NullReplyPath):
            # `NullReplyPath` drops notifications and cannot send requests, so skip interceptors.
            return self._handler(exchange)
        kind = _PartsEdge if isinstance(edge, FragmentSender) else _InterceptedReplyPath
        return self._handler(replace(exchange, edge=kind(edge, self._notifier)))

    def make_peer(self, channel: Channel, conversation: Conversation, **options: Any) -> Peer:
        """Return a peer whose messages all pass the interceptors."""
        return InterceptedPeer(channel, conversation, self._interceptors, **options)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """Pass a notification that came outside of any connection to the interceptors."""
        self._alone.put_stateless(note, caller, context, lambda _: None)


class _InterceptedReplyPath(ReplyPathBase):
    """Reply path of a request that came without a connection, or through an outer server."""

    def __init__(self, edge: ReplyPath, notifier: InterceptedNotifier) -> None:
        self._edge = edge
        self._notifier = notifier

    @property
    def session(self) -> SessionContext:
        return self._edge.session

    @property
    def log_level(self) -> str | None:
        return self._edge.log_level

    @log_level.setter
    def log_level(self, level: str | None) -> None:
        self._edge.log_level = level

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        edge = self._edge
        await self._notifier.tell(
            exchange, notification, partial(edge.notify_caller, exchange), edge
        )

    def detach(self, exchange: Exchange) -> None:
        self._edge.detach(exchange)

    async def request_caller(
        self,
        exchange: Exchange,
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
    ) -> Raw:
        async def deliver(asked: Exchange) -> Answer:
            given = asked.message.params
            body = given if isinstance(given, Raw) else None
            return await self._edge.request_caller(exchange, asked.method, body, timeout=timeout)

        encoded = params if isinstance(params, Raw | None) else Raw(to_json(params))
        body = UNSET if encoded is None else encoded
        asked = self._notifier.beside(exchange, Request(0, method, body), self._edge)
        answer = await chain(self._notifier.interceptors, deliver)(asked)
        return answer if isinstance(answer, Raw) else Raw(answer or b"{}")


class _PartsEdge(_InterceptedReplyPath):
    """Intercepted reply path that also sends fragments of a result."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        edge = self._edge
        assert isinstance(edge, FragmentSender)

        async def deliver(note: Notification) -> None:
            # An interceptor may have removed or changed the content.
            left = fragment_content(note)
            if left is not None:
                await edge.fragment(exchange, left)

        await self._notifier.tell(exchange, fragment_notification(content), deliver, edge)
