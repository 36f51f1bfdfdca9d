"""The transport for a server in the same process, over in-memory channels."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Unpack, runtime_checkable

from ...protocol.caller import ANONYMOUS, Principal
from ...transport.channel import Channel
from ...transport.memory import memory_pair
from .channel_transport import ChannelOptions, ChannelTransport

__all__ = ["Attachable", "InProcessTransport", "LifespanOwner"]


class _Closes(Protocol):
    async def close(self) -> None: ...


@runtime_checkable
class Attachable(Protocol):
    """An object that can serve a channel in the background, such as an `MCPServer`."""

    def attach(self, channel: Channel, principal: Principal, /) -> _Closes:
        """Start serving a client, until the returned object is closed."""
        ...


@runtime_checkable
class LifespanOwner(Protocol):
    """An attachable object that has to be started, such as an `MCPServer` with a lifespan."""

    def open_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return a context that keeps the object started; several may be open."""
        ...


class InProcessTransport(ChannelTransport):
    """A transport that owns both ends of a channel pair."""

    def __init__(self, server: Attachable, **options: Unpack[ChannelOptions]) -> None:
        super().__init__(self._attach, **options)
        self._server = server
        self._far: _Closes | None = None
        self._lifespan: AbstractAsyncContextManager[Any] | None = None

    async def _attach(self) -> Channel:
        if isinstance(self._server, LifespanOwner):
            lifespan = self._server.open_lifespan()
            await lifespan.__aenter__()
            self._lifespan = lifespan
        near, far = memory_pair()
        self._far = self._server.attach(far, ANONYMOUS)
        return near

    async def close(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        try:
            await super().close()
            if self._far is not None:
                await self._far.close()
        finally:
            if lifespan is not None:
                await lifespan.__aexit__(None, None, None)
