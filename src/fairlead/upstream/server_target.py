"""Targets of connections: commands, URLs, and server objects in this process."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from ..client.mcp_transport.factory import StdioTransport, transport_of
from ..client.mcp_transport.inprocess import Attachable
from ..client.mcp_transport.network import HttpOptions, HttpTransport
from ..client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    read_entry,
)
from ..config.stored_logins import authorizer_for
from ..protocol.caller import ANONYMOUS
from ..transport.channel import Channel

__all__ = ["ServerTarget", "target_for"]

CALLS_AT_ONCE = 256  # concurrent requests to one server over HTTP


class ServerTarget(Struct, frozen=True, kw_only=True):
    """A server, and the function that opens a channel to it."""

    name: str
    open: Callable[[], Awaitable[Channel]]
    is_process: bool  # each connection is a child process, which is expensive and can be terminated
    id_format: Literal["integer", "string"] = "integer"


def target_for(
    target: "MCPServerEntry | dict[str, Any] | Attachable",
    name: str = "server",
    *,
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None,
    on_stderr: Callable[[str], None] | None = None,
) -> ServerTarget:
    """Return the target for an entry of a configuration file, or for a server object.

    `resolve` returns the entry with its variables substituted; it is called for each connection.
    `on_stderr` is called with the output of a child process on stderr.

    Raises:
        ConfigError: The entry is invalid.
    """
    if isinstance(target, Attachable):
        return ServerTarget(name=name, open=lambda: _attach(target), is_process=False)
    entry = read_entry(target)

    async def dial() -> Channel:
        return await _dial(name, entry if resolve is None else await resolve(), on_stderr)

    return ServerTarget(
        name=name,
        open=dial,
        is_process=isinstance(entry, MCPStdioServerConfig),
        id_format=entry.request_id_format,
    )


async def _dial(
    name: str, entry: MCPServerEntry, on_stderr: Callable[[str], None] | None
) -> Channel:
    if isinstance(entry, MCPStdioServerConfig):
        return await StdioTransport(entry, on_stderr=on_stderr).open_channel()
    if isinstance(entry, MCPHttpServerConfig | MCPSseServerConfig):
        login = authorizer_for(entry, name=name)
        http: HttpOptions = {"pool_size": CALLS_AT_ONCE, "authorizer": login}
        return await HttpTransport(entry, http=http).open_channel()
    return await transport_of(entry).open_channel()


async def _attach(server: Attachable) -> Channel:
    from ..transport.memory import memory_pair

    near, far = memory_pair()
    # The server's side of the conversation ends when the channel closes, so no handle is kept.
    server.attach(far, ANONYMOUS)
    return near
