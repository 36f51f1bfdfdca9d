"""A single exchange without a connection, and a handler that answers it."""

import json
from typing import Any

from msgspec import UNSET, Raw

from fairlead.interceptor import Answer, Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import ANONYMOUS, Caller, Principal, read_params_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.wire import Notification, Request

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def exchange(
    method: str = "tools/call",
    params: Any = None,
    *,
    way: Direction = UP,
    request: bool = True,
    stateless: bool = True,
    capabilities: bytes = b"{}",
    principal: Principal = ANONYMOUS,
    address: str | None = None,
    info: bytes | None = None,
    server: str | None = None,
) -> Exchange:
    raw = UNSET if params is None else Raw(json.dumps(params).encode())
    message = Request(1, method, raw) if request else Notification(method, raw)
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    caller = Caller(revision, stateless, principal, capabilities, info)
    context = TransportContext(transport_type="http", peer_address=address)
    return Exchange(
        message,
        caller,
        read_params_head(raw),
        way,
        context,
        NullReplyPath(principal),
        server=server,
    )


class Behind:
    """A handler that records exchanges and answers them."""

    def __init__(self, answer: bytes | None = b"{}") -> None:
        self.answer = answer
        self.seen: list[Exchange] = []

    async def __call__(self, exchange: Exchange) -> Answer:
        self.seen.append(exchange)
        return self.answer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
