"""Connections from commands to a server."""

import asyncio
import logging
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...client import MCPClient, MCPClientConfig
from ...client.callbacks import Callbacks, OnLog
from ...client.client_config import version_for_era
from ...client.input.answers import OnElicit
from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig, MCPWebSocketServerConfig
from ...config.stored_logins import authorizer_for
from ...errors import FairleadError
from .command_errors import CommandError, print_message
from .connect_target import ConnectTarget
from .describe_failure import describe_failure, with_endpoint
from .output import safe

if TYPE_CHECKING:
    from ...client.connection.connect import ConnectionAttempt
    from .server_lookup import NamedServer

__all__ = ["connected", "keep_known_eras", "run_async", "silence_warnings"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_async(main: Coroutine[Any, Any, int], *, loop_factory: LoopFactory | None = None) -> int:
    """Run a command's coroutine. Ctrl-C cancels it, and it stops its server before it exits."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


@asynccontextmanager
async def connected(
    target: ConnectTarget,
    options: Namespace,
    *,
    on_log: OnLog | None = None,
    on_elicit: OnElicit | None = None,
) -> AsyncIterator[MCPClient]:
    """Connect to a server and yield the client. A server process is stopped at the end of the
    `with` block.

    Raises:
        CommandError: The connection or a request inside the `with` block failed.
    """
    silence_warnings()
    headers = target.headers(options) if target.url else {}
    secrets = target.secrets(headers)
    try:
        if target.name:
            server = await _named(target.name, options)
            entry = server.resolved.entry
            secrets += server.secrets
        else:
            server, entry = None, target.entry(headers, sse=options.sse)
        try:
            listeners: Callbacks = {"on_log": on_log, "on_elicit": on_elicit}
            client = await _connecting(entry, options, listeners, server)
        except FairleadError as exc:
            if server is None:
                raise
            url = "" if isinstance(entry, MCPStdioServerConfig) else entry.url
            failed = await with_endpoint(server.diagnose(exc), exc, url, server.found.place)
            raise failed from exc
        async with client:
            yield client
            _mention_garbage(client)
    except FairleadError as exc:
        sent = any(name.lower() == "authorization" for name in headers)
        failed = describe_failure(exc, target, has_token=sent)
        raise (await with_endpoint(failed, exc, target.url)).without(secrets) from exc
    except CommandError as failed:
        raise failed.without(secrets) from None


async def _named(name: str, options: Namespace) -> "NamedServer":
    """Look up a configured server."""
    from .server_lookup import named_server

    keep_known_eras()
    return await named_server(name, options)


def keep_known_eras() -> None:
    """Use the server eras that earlier runs detected, and store those that this run detects."""
    # Imported here, because commands for a URL or a `--` command do not need these modules.
    from ...client.connection.era_cache import known_eras
    from ...upstream.memory.server_memory import CachedEraStore
    from ...upstream.memory.tool_cache import FileStore, own_folder

    known_eras.keep(CachedEraStore(FileStore(own_folder())))


def _connecting(
    entry: MCPServerEntry, options: Namespace, listeners: Callbacks, server: "NamedServer | None"
) -> "ConnectionAttempt[MCPClient]":
    login = authorizer_for(entry) if server is None else server.credentials()
    seconds = options.timeout or (entry.timeout / 1000 if entry.timeout else None)
    config = MCPClientConfig(protocol_version=version_for_era(options.era))
    if seconds is not None:
        config.timeout_seconds = seconds
    insecure = options.insecure_tls
    if insecure and isinstance(entry, MCPWebSocketServerConfig):
        import ssl

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        headers = entry.headers
        return MCPClient.connect_websocket(
            entry.url, config, headers=headers, ssl=context, auth=login, **listeners
        )
    return MCPClient.connect_entry(
        entry,
        config,
        http={"verify": not insecure, "authorizer": login},
        on_stderr=_show_stderr if options.verbose else None,
        **listeners,
    )


def silence_warnings() -> None:
    """Keep logged warnings off stderr, because commands print them themselves."""
    logging.getLogger("fairlead").addHandler(logging.NullHandler())


def _mention_garbage(client: MCPClient) -> None:
    count = client.transport.peer.malformed
    if count:
        lines = "a line" if count == 1 else f"{count} lines"
        print_message("warning", f"the server wrote {lines} to stdout that are not messages")


def _show_stderr(line: str) -> None:
    sys.stderr.write(f"server: {safe(line)}\n")
