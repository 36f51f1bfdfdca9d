"""Talking to a server from a command: connect, and say plainly why it did not work."""

import asyncio
import json
import logging
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...client import MCPClient, MCPClientConfig
from ...client.callbacks import Callbacks, OnLog
from ...client.input.answers import OnElicit
from ...client.server_entry import MCPServerEntry, MCPWebSocketServerConfig
from ...errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    RequestTimeout,
    RpcError,
)
from .connect_target import ConnectTarget
from .errors import FAILED, NO_CONNECTION, TIMEOUT, CommandError, UsageError, print_message
from .output import safe

if TYPE_CHECKING:
    from ...client.connection.connect import ConnectionAttempt
    from .server_lookup import NamedServer

__all__ = ["connected", "describe_failure", "http_error", "run_async", "silence_warnings"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_async(main: Coroutine[Any, Any, int], *, loop_factory: LoopFactory | None = None) -> int:
    """Run a command's coroutine. Ctrl-C cancels it, so that it ends its server before we go."""
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
    """A client connected to a server; a server that we start ends with the block.

    Raises:
        CommandError: for everything that can go wrong with a server.
    """
    silence_warnings()
    headers = target.headers(options) if target.url else {}
    secrets = target.secrets(headers)
    try:
        if target.name:
            server = await _named(target.name, options)
            secrets += server.secrets
            entry = server.entry
        else:
            server, entry = None, target.entry(headers, sse=options.sse)
        try:
            client = await _connecting(entry, options, {"on_log": on_log, "on_elicit": on_elicit})
        except FairleadError as exc:
            if server is None:
                raise
            raise server.diagnose(exc) from exc
        async with client:
            yield client
            _mention_garbage(client)
    except FairleadError as exc:
        sent = any(name.lower() == "authorization" for name in headers)
        raise describe_failure(exc, target, has_token=sent).without(secrets) from exc
    except CommandError as failed:
        raise failed.without(secrets) from None


async def _named(name: str, options: Namespace) -> "NamedServer":
    """A server that is configured; those who name a command or a URL do not load all of this."""
    from ...client.connection.era_cache import known_eras
    from ...manager.era_store import CachedEraStore
    from ...manager.tools.tool_cache import FileStore, own_folder
    from .server_lookup import named_server

    known_eras.keep(CachedEraStore(FileStore(own_folder())))
    return await named_server(name, options)


def _connecting(
    entry: MCPServerEntry, options: Namespace, listeners: Callbacks
) -> "ConnectionAttempt[MCPClient]":
    seconds = options.timeout or (entry.timeout / 1000 if entry.timeout else None)
    config = MCPClientConfig() if seconds is None else MCPClientConfig(timeout_seconds=seconds)
    insecure = options.insecure_tls
    if insecure and isinstance(entry, MCPWebSocketServerConfig):
        import ssl

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        headers = entry.headers
        return MCPClient.connect_websocket(
            entry.url, config, headers=headers, ssl=context, **listeners
        )
    return MCPClient.connect_entry(
        entry,
        config,
        http={"verify": not insecure},
        on_stderr=_show_stderr if options.verbose else None,
        **listeners,
    )


def silence_warnings() -> None:
    """Our own warnings are told once, by the command, in words for a person."""
    logging.getLogger("fairlead").addHandler(logging.NullHandler())


def describe_failure(
    exc: FairleadError, target: ConnectTarget | None = None, *, has_token: bool = False
) -> CommandError:
    """An expected failure as a sentence, a hint and an exit code.

    `has_token` if we said who we are, so that it is the wrong one that was refused.
    """
    target = target or ConnectTarget()
    if (refusal := _refusal(exc, has_token=has_token)) is not None:
        return refusal
    if isinstance(exc, RequestTimeout) or isinstance(exc.__cause__, TimeoutError):
        return CommandError(
            _sentence(exc),
            hint="give it more time with --timeout, or see with --verbose what it does",
            code=TIMEOUT,
        )
    if target.url and isinstance(exc.__cause__, RpcError):
        exc = exc.__cause__  # somebody was there, and said no
    if isinstance(exc, ConnectFailed | ChannelClosed):
        return CommandError(
            _sentence(exc),
            hint=_connection_hint(exc, target),
            details=[safe(line) for line in exc.stderr],
            code=NO_CONNECTION,
        )
    if isinstance(exc, ConfigError):
        return UsageError(_sentence(exc))
    if isinstance(exc, RpcError):
        return CommandError(
            f"The server refused: {safe(exc.message)} (code {exc.code})", code=FAILED
        )
    return CommandError(_sentence(exc), code=FAILED)


def _sentence(exc: FairleadError) -> str:
    """The message without a server's last words, which are shown apart."""
    text = exc.summary or str(exc)
    return safe(text[:1].upper() + text[1:])


def _refusal(exc: FairleadError, *, has_token: bool) -> CommandError | None:
    """If somebody who speaks HTTP did not let us in: that, and the way in."""
    cause = http_error(exc)
    if cause is None:
        return None
    hints = {
        401: "say who you are: --token TOKEN, or FAIRLEAD_TOKEN in the environment",
        403: "it may want another token (--token), or another host name in the URL",
        404: "is that the path of its MCP endpoint? Mostly it is /mcp",
        405: "is that the path of its MCP endpoint? Mostly it is /mcp",
    }
    text = safe(_words(cause.body)[:500])
    hint = hints.get(cause.status, "")
    if cause.status == 401 and has_token:
        hint = "it does not know the token that was sent: look at --token and FAIRLEAD_TOKEN"
    return CommandError(
        f"The server answered with HTTP {cause.status}",
        hint=hint,
        details=text.splitlines()[:10],
    )


def http_error(exc: BaseException | None) -> HttpError | None:
    """The answer of an HTTP server that a failure comes from."""
    while exc is not None and not isinstance(exc, HttpError):
        exc = exc.__cause__
    return exc


def _words(body: str) -> str:
    """What an error says; it may be one of JSON-RPC, or any text."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.strip()


def _connection_hint(exc: ConnectFailed | ChannelClosed, target: ConnectTarget) -> str:
    command = target.command
    if target.url:
        return "does the server run, and is that its address? `fairlead serve` says where it is"
    if len(command) == 1 and " " in command[0]:
        return "write the command without quotes around the whole: -- python server.py"
    if exc.exit_code == 0:
        return "a server stays until its stdin ends; does the program call `server.run()`?"
    if exc.exit_code is not None and not exc.stderr:
        return "it said nothing on stderr; start it by hand to see more"
    return ""


def _mention_garbage(client: MCPClient) -> None:
    count = client.transport.peer.malformed
    if count:
        lines = "a line" if count == 1 else f"{count} lines"
        print_message("warning", f"the server wrote {lines} to its stdout that are no messages")


def _show_stderr(line: str) -> None:
    sys.stderr.write(f"server: {safe(line)}\n")
