"""The answer to an HTTP request as the rest of the client sees it, whoever fetched it."""

from abc import ABC, abstractmethod
from functools import lru_cache

from ...errors import HttpError, TransportError
from ...wire import MAX_MESSAGE

__all__ = ["Reply", "media_type"]

MAX_ERROR_BODY = 1 << 20  # bytes that are read of a refusal


class Reply(ABC):
    """An answer whose body has not been read yet."""

    __slots__ = ("content_type", "reason", "status", "url")

    status: int
    reason: str
    url: str
    content_type: str  # in lower case, without parameters

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def streams(self) -> bool:
        return self.content_type == "text/event-stream"

    @property
    @abstractmethod
    def headers(self) -> dict[str, str]:
        """All of them, names in lower case; values of one name are joined."""

    @abstractmethod
    def header(self, name: str) -> str | None: ...

    @abstractmethod
    async def read(self, limit: int = MAX_MESSAGE) -> bytes:
        """The whole body, unpacked.

        Raises:
            ChannelClosed: the connection broke first, or it was not packed properly.
            TransportError: it is longer than `limit`.
        """

    @abstractmethod
    async def chunk(self) -> bytes:
        """What has come of the body; nothing at its end. Raises `ChannelClosed` if it breaks."""

    @abstractmethod
    def close(self) -> None:
        """Have done with it; a connection with unread bytes is closed."""

    async def refusal(self) -> tuple[HttpError, bytes]:
        """The reply as an error, and the bytes of its body."""
        try:
            body = await self.read(MAX_ERROR_BODY)
        except TransportError:
            body = b""
        text = body.decode("utf-8", "replace").strip() or self.reason
        return HttpError(self.status, text, self.headers), body


@lru_cache(maxsize=64)
def media_type(value: str) -> str:
    """What a `Content-Type` says, without its parameters."""
    return value.partition(";")[0].strip().lower()
