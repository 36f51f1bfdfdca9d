"""Connections to configured servers that are used through an `MCPClient`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.client_config import request_timeout
from ..client.connection.connect import ConnectionAttempt
from ..client.mcp_transport.network import HttpOptions
from ..client.server_entry import MCPServerEntry
from ..config.stored_logins import authorizer_for
from ..errors import ConnectFailed

__all__ = ["connect_timeout_error", "declaring_callbacks", "open_client"]


async def open_client(
    name: str,
    entry: MCPServerEntry,
    timeout: float,
    config: MCPClientConfig | None,
    callbacks: Callbacks,
    on_attempt: Callable[[ConnectionAttempt[MCPClient]], None] | None = None,
) -> MCPClient:
    """Connect to a server and return the client. A `timeout` of 0 means no limit.

    `on_attempt` is called with the attempt before it begins.

    Raises:
        ConnectFailed, HttpError: The server cannot be reached; no process or connection remains.
    """
    config = config or MCPClientConfig()
    # The configured timeout is for requests. Connecting has its own limit, which may be longer. The
    # owner of the connection replaces it after a loss, so the client must not reconnect.
    starting = replace(config, timeout_seconds=0.0, auto_reconnect=False)
    http: HttpOptions = {"authorizer": authorizer_for(entry, name=name)}
    attempt = MCPClient.connect_entry(entry, starting, http=http, **callbacks)
    if on_attempt is not None:
        on_attempt(attempt)
    try:
        async with asyncio.timeout(timeout or None):
            client = await attempt
    except TimeoutError as exc:
        raise connect_timeout_error(name, timeout, attempt.unreadable_output) from exc
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
    """Return callbacks that only declare capabilities; requests of the server go to clients."""
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
