"""Targets of connections: commands, URLs, and server objects in this process."""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..client.mcp_transport.factory import transport_of
from ..client.mcp_transport.inprocess import Attachable
from ..client.mcp_transport.network import HttpOptions
from ..client.server_entry import (
    MCPServerEntry,
    MCPStdioServerConfig,
    read_entry,
)
from ..config.stored_logins import authorizer_for
from ..protocol.caller import ANONYMOUS
from ..transport.channel import Channel

if TYPE_CHECKING:
    from ..transport.http.client.request_authorizer import RequestAuthorizer

__all__ = ["ServerTarget", "target_for"]

CALLS_AT_ONCE = 256  # maximum number of concurrent requests to one server over HTTP


class ServerTarget(Struct, frozen=True, kw_only=True):
    """A server, and the function that opens a channel to it."""

    name: str
    open: Callable[[], Awaitable[Channel]]
    is_process: bool  # each connection is a child process, which is expensive and can be terminated
    id_format: Literal["integer", "string"] = "integer"
    shows_stderr: bool = False  # stderr of the process is shown as it is written


def target_for(
    target: "MCPServerEntry | dict[str, Any] | Attachable",
    name: str = "server",
    *,
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None,
    on_stderr: Callable[[str], None] | None = None,
    credentials: Callable[[MCPServerEntry], "RequestAuthorizer | None"] | None = None,
) -> ServerTarget:
    """Return the target for an entry of a configuration file, or for a server object.

    `resolve` returns the entry with its variables substituted; it is called for each connection.
    `on_stderr` is called with the output of a child process on stderr. `credentials` returns the
    credential source of a connection; by default it is the user's stored login.

    Raises:
        ConfigError: The entry is invalid.
        TypeError: The target is neither an entry nor a server object.
    """
    if isinstance(target, str | os.PathLike | list | tuple):
        raise TypeError(
            f"expected an entry or a server object, not {target!r}: pass for example "
            '{"command": "python", "args": ["server.py"]} or {"type": "http", "url": "http://..."}'
        )
    if isinstance(target, Attachable):
        return ServerTarget(name=name, open=lambda: _attach(target), is_process=False)
    entry = read_entry(target)

    async def dial() -> Channel:
        filled = entry if resolve is None else await resolve()
        login = authorizer_for(filled, name=name) if credentials is None else credentials(filled)
        http: HttpOptions = {"pool_size": CALLS_AT_ONCE, "authorizer": login}
        return await transport_of(filled, http=http, on_stderr=on_stderr).open_channel()

    return ServerTarget(
        name=name,
        open=dial,
        is_process=isinstance(entry, MCPStdioServerConfig),
        id_format=entry.request_id_format,
        shows_stderr=on_stderr is not None,
    )


async def _attach(server: Attachable) -> Channel:
    from ..transport.memory import memory_pair

    near, far = memory_pair()
    # The returned peer is not kept, because it ends when the channel closes.
    server.attach(far, ANONYMOUS)
    return near
