"""Creation of transports by a server entry's type."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ...errors import ConfigError
from ...observe.log_filter import register_secrets
from ...transport.channel import Channel
from ..server_entry import (
    MCPServerEntry,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
    read_entry,
)
from .channel_transport import ChannelOptions, ChannelTransport
from .mcp_transport import MCPTransport
from .network import HttpOptions, HttpTransport, WebSocketTransport

if TYPE_CHECKING:
    from ...transport.http.client.request_authorizer import RequestAuthorizer

__all__ = [
    "HttpTransport",
    "StdioTransport",
    "WebSocketTransport",
    "create_http_transport",
    "create_stdio_transport",
    "create_transport",
    "create_websocket_transport",
    "register_transport",
    "transport_of",
]

T = TypeVar("T", bound=MCPTransport)

TOKEN_VARIABLE = "OAUTH_ACCESS_TOKEN"


class StdioTransport(ChannelTransport):
    """The transport for a server that runs as a child process."""

    entry: MCPStdioServerConfig

    def __init__(
        self,
        entry: MCPServerEntry | dict[str, Any],
        *,
        on_stderr: Callable[[str], None] | None = None,
        authorizer: "RequestAuthorizer | None" = None,
        **options: Unpack[ChannelOptions],
    ) -> None:
        """Create a transport.

        `authorizer` supplies the token for the process's `OAUTH_ACCESS_TOKEN`.
        """
        entry = read_entry(entry)
        if not isinstance(entry, MCPStdioServerConfig):
            raise ConfigError(
                f"a server of type {entry.type!r} is not a child process: expected type 'stdio'"
            )
        self.entry = entry
        register_secrets(self, lambda: entry.env)
        self.on_stderr = on_stderr
        self._authorizer = authorizer
        super().__init__(self._spawn, entry=entry, **options)

    async def _spawn(self) -> Channel:
        from ...transport.stdio.child_process import spawn

        entry, env = self.entry, self.entry.env
        token = None if self._authorizer is None else await self._authorizer.access_token()
        # A token in the entry takes precedence over a stored token.
        if token is not None:
            env = {TOKEN_VARIABLE: token, **env}
        return await spawn(
            [entry.command, *entry.args],
            env=env,
            cwd=entry.cwd,
            inherit_env=entry.inherit_env,
            on_stderr=self.on_stderr,
        )


TransportFactory = Callable[[dict[str, Any]], MCPTransport]
_registered: dict[str, TransportFactory] = {}


def register_transport(kind: str, factory: TransportFactory) -> None:
    """Register another `type` for `create_transport`."""
    _registered[kind] = factory


def create_transport(entry: MCPServerEntry | dict[str, Any]) -> MCPTransport:
    """Return a transport for a server entry, selected by its `type` and not yet connected.

    Raises:
        ConfigError: The type is unknown (`Unknown server type: ...`), or the entry is invalid.
    """
    if isinstance(entry, dict) and (factory := _registered.get(entry.get("type", ""))):
        return factory(entry)
    return transport_of(read_entry(entry))


def transport_of(
    entry: MCPServerEntry,
    *,
    http: HttpOptions | None = None,
    on_stderr: Callable[[str], None] | None = None,
    **options: Unpack[ChannelOptions],
) -> StdioTransport | HttpTransport | WebSocketTransport:
    """Return the transport for an entry.

    `on_stderr` is used only for child processes; transports other than HTTP use only the
    `authorizer` from `http`.
    """
    authorizer = (http or {}).get("authorizer")
    if isinstance(entry, MCPStdioServerConfig):
        return StdioTransport(entry, on_stderr=on_stderr, authorizer=authorizer, **options)
    if isinstance(entry, MCPWebSocketServerConfig):
        return WebSocketTransport(entry, authorizer=authorizer, **options)
    return HttpTransport(entry, http=http, **options)


async def create_stdio_transport(entry: MCPServerEntry | dict[str, Any]) -> StdioTransport:
    """Return a connected stdio transport; close it if connecting fails."""
    return await _connected(StdioTransport(entry))


async def create_http_transport(entry: MCPServerEntry | dict[str, Any]) -> HttpTransport:
    """Return a connected HTTP transport; close it if connecting fails."""
    return await _connected(HttpTransport(entry))


async def create_websocket_transport(
    entry: MCPServerEntry | dict[str, Any],
) -> WebSocketTransport:
    """Return a connected WebSocket transport; close it if connecting fails."""
    return await _connected(WebSocketTransport(entry))


async def _connected(transport: T) -> T:
    try:
        await transport.connect()
    except BaseException:
        await transport.close()
        raise
    return transport
