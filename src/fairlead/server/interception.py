"""What a server says outside of a connection of its own, seen by its interceptors all the same.

Where a connection is the server's own, an `InterceptedPeer` does it.
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
    """The handler behind the interceptors of a server; what it says on the way passes them too."""

    def __init__(
        self, interceptors: tuple[Interceptor, ...], info: dict[str, Any], handler: Handler
    ) -> None:
        """`info` is how the server calls itself."""
        self._interceptors = interceptors
        self._notifier = InterceptedNotifier(interceptors, to_json(info))
        self._handler = handler
        self._alone = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)

    def __call__(self, exchange: Exchange) -> Awaitable[Answer]:
        edge = exchange.edge
        if isinstance(edge, InterceptedPeer) and edge.interceptors is self._interceptors:
            return self._handler(exchange)  # it sees to that itself
        if isinstance(edge, NullReplyPath):
            return self._handler(exchange)  # nobody hears anything
        kind = _PartsEdge if isinstance(edge, FragmentSender) else _InterceptedReplyPath
        return self._handler(replace(exchange, edge=kind(edge, self._notifier)))

    def make_peer(self, channel: Channel, conversation: Conversation, **options: Any) -> Peer:
        """A connection that interceptors see all of."""
        return InterceptedPeer(channel, conversation, self._interceptors, **options)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """A notification that came outside of any connection."""
        self._alone.put_stateless(note, caller, context, lambda _: None)


class _InterceptedReplyPath(ReplyPathBase):
    """The way back of a request that came alone, or through the server that has mounted us."""

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
        self, exchange: Exchange, method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        async def deliver(asked: Exchange) -> Answer:
            given = asked.message.params
            body = given if isinstance(given, Raw) else None
            return await self._edge.request_caller(exchange, asked.method, body)

        body = params if isinstance(params, Raw) else UNSET if params is None else _raw(params)
        asked = self._notifier.beside(exchange, Request(0, method, body), self._edge)
        answer = await chain(self._notifier.interceptors, deliver)(asked)
        return answer if isinstance(answer, Raw) else Raw(answer or b"{}")


class _PartsEdge(_InterceptedReplyPath):
    """The same where parts of a result come before the whole of it: those are seen, too."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        edge = self._edge
        assert isinstance(edge, FragmentSender)

        async def deliver(note: Notification) -> None:
            left = fragment_content(note)
            if left is not None:
                await edge.fragment(exchange, left)

        await self._notifier.tell(exchange, fragment_notification(content), deliver, edge)


def _raw(params: dict[str, Any]) -> Raw:
    return Raw(to_json(params))
