"""How a server is reached, whatever it is: a command, a URL, an object in this process."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from ..client.mcp_transport.factory import StdioTransport, transport_of
from ..client.mcp_transport.inprocess import Attachable
from ..client.mcp_transport.network import HttpTransport
from ..client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    read_entry,
)
from ..protocol.identity.principal import ANONYMOUS
from ..transport.channel import Channel

__all__ = ["ServerTarget", "target_for"]

CALLS_AT_ONCE = 256  # to one server over HTTP


class ServerTarget(Struct, frozen=True, kw_only=True):
    """The way to one server."""

    name: str
    open: Callable[[], Awaitable[Channel]]
    is_process: bool  # each connection is a process of ours: dear, and can be ended
    id_format: Literal["integer", "string"] = "integer"


def target_for(
    target: "MCPServerEntry | dict[str, Any] | Attachable",
    name: str = "server",
    *,
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None,
    on_stderr: Callable[[str], None] | None = None,
) -> ServerTarget:
    """The way to an entry of a configuration file, or to a server object.

    `resolve` gives the entry with its variables filled in, for each connection anew. `on_stderr`
    hears what a child process writes there.

    Raises:
        ConfigError: the entry is wrong.
    """
    if isinstance(target, Attachable):
        return ServerTarget(name=name, open=lambda: _attach(target), is_process=False)
    entry = read_entry(target)

    async def as_it_is() -> MCPServerEntry:
        return entry

    find = resolve or as_it_is

    async def dial() -> Channel:
        return await _dial(await find(), on_stderr)

    return ServerTarget(
        name=name,
        open=dial,
        is_process=isinstance(entry, MCPStdioServerConfig),
        id_format=entry.request_id_format,
    )


async def _dial(entry: MCPServerEntry, on_stderr: Callable[[str], None] | None) -> Channel:
    if isinstance(entry, MCPStdioServerConfig):
        return await StdioTransport(entry, on_stderr=on_stderr).open_channel()
    if isinstance(entry, MCPHttpServerConfig | MCPSseServerConfig):
        return await HttpTransport(entry, http={"pool_size": CALLS_AT_ONCE}).open_channel()
    return await transport_of(entry).open_channel()


async def _attach(server: Attachable) -> Channel:
    from ..transport.memory import memory_pair

    near, far = memory_pair()
    server.attach(far, ANONYMOUS)  # ends with the channel
    return near
