"""Interceptors around the requests that a client sends."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET, Raw, UnsetType

from ..interceptor import Answer, Exchange, Interceptor, chain
from ..peer import OnProgress, Peer
from ..protocol.caller import Caller, read_head
from ..protocol.envelope import Direction
from ..protocol.outgoing import Identity
from ..protocol.revisions import NEWEST
from ..wire import Request, RequestId, to_json

__all__ = ["Send", "intercepted"]

OnSent: TypeAlias = Callable[[RequestId], None]
# method, params, timeout, max_total, on_progress, on_sent
Send: TypeAlias = Callable[
    [str, Mapping[str, Any] | None, float, float, OnProgress | None, OnSent | None],
    Awaitable[Raw],
]


def intercepted(
    interceptors: Sequence[Interceptor], peer: Callable[[], Peer], identity: Identity
) -> Send:
    """A way to send requests through interceptors. They see each attempt, and may change it.

    The request gets its id when it is sent; until then `request_id` is 0.
    """

    async def send(
        method: str,
        params: Mapping[str, Any] | None,
        timeout: float,
        max_total: float,
        on_progress: OnProgress | None,
        on_sent: OnSent | None,
    ) -> Raw:
        async def deliver(exchange: Exchange) -> Answer:
            message = exchange.message

            def sent(request_id: RequestId) -> None:
                exchange.message = Request(request_id, message.method, message.params)
                if on_sent is not None:
                    on_sent(request_id)

            return await peer().request(
                message.method,
                None if isinstance(message.params, UnsetType) else message.params,
                timeout=timeout,
                max_total=max_total,
                on_progress=on_progress,
                on_sent=sent,
            )

        here = peer()
        known = here.conversation.peer
        revision = NEWEST if known is None else known.revision
        body = UNSET if params is None else Raw(to_json(params))
        exchange = Exchange(
            Request(0, method, body),
            Caller(revision, revision.stateless, identity.capabilities, identity.info),
            read_head(body),
            Direction.CLIENT_TO_SERVER,
            here.channel.context,
            here,
        )
        answer = await chain(interceptors, deliver)(exchange)
        return answer if isinstance(answer, Raw) else Raw(answer or b"{}")

    return send
