"""A channel that lets somebody see every message on its way through."""

from collections.abc import Callable

from msgspec import Raw

from ..errors import RemoteProtocolError
from ..transport.base import Channel, Deliver, Incoming, Lost
from ..wire import Batch, Message, RequestId, Success, encode

__all__ = ["RecordingChannel"]

Seen = Callable[[str, bytes], None]  # "→" or "←", and the line


class RecordingChannel:
    """Wraps a channel; `seen` is called with each line in the order of the wire."""

    def __init__(self, channel: Channel, seen: Seen) -> None:
        self.context = channel.context
        self._channel = channel
        self._seen = seen

    async def run(self, deliver: Deliver) -> None:
        def record(item: Incoming) -> None:
            if not isinstance(item, Batch | RemoteProtocolError | Lost):
                self._seen("←", encode(item))
            deliver(item)

        await self._channel.run(record)

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self._seen("→", encode(message))
        self._channel.send(message, reply_to=reply_to)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        self.send(Success(request_id, Raw(result)))

    def join_writes(self) -> None:
        self._channel.join_writes()

    @property
    def congested(self) -> bool:
        return self._channel.congested

    async def drain(self) -> None:
        await self._channel.drain()

    def detach(self, request_id: RequestId) -> None:
        self._channel.detach(request_id)

    def finish(self, request_id: RequestId) -> None:
        self._channel.finish(request_id)

    async def close(self) -> None:
        await self._channel.close()
