"""Opening of connections to configured servers through an `MCPClient`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.client_config import request_timeout
from ..client.connection.connect import ConnectionAttempt
from ..client.mcp_transport.network import HttpOptions
from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ..config.stored_logins import authorizer_for, login_needed
from ..errors import ConnectFailed, HttpError
from ..transport import timeouts

if TYPE_CHECKING:
    from ..transport.http.client.request_authorizer import RequestAuthorizer

__all__ = ["connect_timeout_error", "declaring_callbacks", "open_client"]


async def open_client(
    name: str,
    entry: MCPServerEntry,
    timeout: float,
    config: MCPClientConfig | None,
    callbacks: Callbacks,
    on_attempt: Callable[[ConnectionAttempt[MCPClient]], None] | None = None,
    credentials: Callable[[MCPServerEntry], "RequestAuthorizer | None"] | None = None,
    login: str = "",
) -> MCPClient:
    """Connect to a server and return the client. A `timeout` of 0 means no limit.

    `on_attempt` is called with the attempt before it begins. `credentials` is as for `target_for`.
    `login` are the arguments of `fairlead login` for this server, if they differ from its name.

    Raises:
        ConnectFailed, HttpError: The server cannot be reached; no process or connection remains.
        LoginRequired: The server requires OAuth, and no login is stored.
    """
    config = config or MCPClientConfig()
    # The configured timeout applies to requests; connecting has its own limit, which may be longer.
    # The owner of the connection replaces a lost connection, so the client must not reconnect.
    starting = replace(config, timeout_seconds=0.0, auto_reconnect=False)
    login = login or name
    authorizer = authorizer_for(entry, name=login) if credentials is None else credentials(entry)
    http: HttpOptions = {"authorizer": authorizer}
    attempt = MCPClient.connect_entry(entry, starting, http=http, **callbacks)
    attempt.server_name = name
    if on_attempt is not None:
        on_attempt(attempt)
    try:
        async with timeouts.timeout(timeout or None):
            client = await attempt
    except TimeoutError as exc:
        raise connect_timeout_error(name, timeout, attempt.unreadable_output) from exc
    except HttpError as exc:
        if (needed := login_needed(login, entry, exc)) is not None:
            raise needed from exc
        if exc.status == 401 and not isinstance(entry, MCPStdioServerConfig):
            # The hint of the client names arguments of `MCPClient.connect`.
            exc.hint = 'check `headers` of the entry: {"Authorization": "Bearer TOKEN"}'
        raise
    client.config = replace(config, auto_reconnect=False)
    client.transport.timeout = request_timeout(config.timeout_seconds * 1000)
    return client


def connect_timeout_error(name: str, seconds: float, output: Sequence[str] = ()) -> ConnectFailed:
    """Build the error for a server that did not connect in time and wrote this `output`."""
    return ConnectFailed(
        f'Connection to MCP server "{name}" timed out after {seconds * 1000:.0f}ms',
        output=output,
        public=f"did not answer within {seconds:g} s",
    )


def declaring_callbacks(capabilities: tuple[str, ...]) -> Callbacks:
    """Return callbacks that only declare capabilities; the gateway forwards requests to clients."""
    callbacks: Callbacks = {"on_roots": None}
    if any(name.startswith("elicitation") for name in capabilities):
        callbacks["on_elicit"] = _never_called
        callbacks["elicit_url"] = "elicitation.url" in capabilities
    if any(name.startswith("sampling") for name in capabilities):
        callbacks["on_sample"] = _never_called
        callbacks["sample_tools"] = "sampling.tools" in capabilities
    if "roots" in capabilities:
        callbacks["on_roots"] = _never_called
    return callbacks


def _never_called(*_: object) -> Any:
    raise AssertionError("requests of the server go to a client of the gateway")
