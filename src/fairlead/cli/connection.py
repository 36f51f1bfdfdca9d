"""Talking to a server from a command: connect, and say plainly why it did not work."""

import asyncio
import json
import logging
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..client import MCPClient, MCPClientConfig
from ..client.answers import OnElicit
from ..client.callbacks import Callbacks, OnLog
from ..errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    RequestTimeout,
    RpcError,
)
from .failed import FAILED, NO_CONNECTION, TIMEOUT, USAGE, Failed, say
from .output import safe
from .target import Target
from .usage import read_pairs

if TYPE_CHECKING:
    import ssl

    from ..client.connecting import Connecting

__all__ = ["be_quiet", "connected", "explain", "run_async"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_async(main: Coroutine[Any, Any, int], *, loop_factory: LoopFactory | None = None) -> int:
    """Run a command's coroutine. Ctrl-C cancels it, so that it ends its server before we go."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


@asynccontextmanager
async def connected(
    target: Target,
    options: Namespace,
    *,
    on_log: OnLog | None = None,
    on_elicit: OnElicit | None = None,
) -> AsyncIterator[MCPClient]:
    """A client connected to a server; a server that we start ends with the block.

    Raises:
        Failed: for everything that can go wrong with a server.
    """
    be_quiet()
    headers = target.headers(options) if target.url else {}
    secrets = target.secrets(headers)
    try:
        config = MCPClientConfig()
        if options.timeout is not None:
            config = MCPClientConfig(timeout_seconds=options.timeout)
        listeners: Callbacks = {"on_log": on_log, "on_elicit": on_elicit}
        if target.name:
            connecting = await _to_named(target.name, options, listeners, secrets)
        else:
            connecting = _connecting(target, options, config, headers, listeners)
        async with connecting as client:
            yield client
            _mention_garbage(client)
    except FairleadError as exc:
        sent = any(name.lower() == "authorization" for name in headers)
        raise explain(exc, target, has_token=sent).without(secrets) from exc
    except Failed as failed:
        raise failed.without(secrets) from None


def be_quiet() -> None:
    """Our own warnings are told once, by the command, in words for a person."""
    logging.getLogger("fairlead").addHandler(logging.NullHandler())


def _connecting(
    target: Target,
    options: Namespace,
    config: MCPClientConfig,
    headers: dict[str, str],
    listeners: Callbacks,
) -> "Connecting[MCPClient]":
    if target.command:
        on_stderr = _show_stderr if options.verbose else None
        return MCPClient.connect_stdio(
            target.command, config, env=target.environment, on_stderr=on_stderr, **listeners
        )
    if target.is_websocket:
        return MCPClient.connect_websocket(
            _with_path(target.url),
            config,
            headers=headers,
            ssl=_any_certificate() if options.insecure_tls else None,
            **listeners,
        )
    return MCPClient.connect_http(
        target.url,
        config,
        headers=headers,
        mode="sse" if options.sse else "http",
        http={"verify": not options.insecure_tls},
        **listeners,
    )


async def _to_named(
    name: str, options: Namespace, listeners: Callbacks, secrets: list[str]
) -> AbstractAsyncContextManager[MCPClient]:
    """A server that is configured; those who name a command or a URL do not load all of this."""
    from ..client.eras import known_eras
    from ..manager.cache import FileStore, own_folder
    from ..manager.eras import KeptEras
    from .named import ask_inputs, every_server, fill_in, find_server, values_to_hide
    from .remedies import diagnose

    known_eras.keep(KeptEras(FileStore(own_folder())))
    found = find_server(name, every_server(), or_command=True)
    missing: tuple[str, ...] = ()
    try:
        given = await ask_inputs(found, read_pairs(options.input, "--input"))
        resolved = await fill_in(found, given)
        entry, missing = resolved.entry, resolved.missing
        for warning in resolved.warnings:
            say("warning", safe(warning), "33")
    except ConfigError as exc:
        raise diagnose(exc, found) from exc
    secrets += values_to_hide(entry)
    seconds = options.timeout or (entry.timeout / 1000 if entry.timeout else None)
    config = MCPClientConfig() if seconds is None else MCPClientConfig(timeout_seconds=seconds)

    @asynccontextmanager
    async def connecting() -> AsyncIterator[MCPClient]:
        on_stderr = _show_stderr if options.verbose else None
        try:
            client = await MCPClient.connect_entry(entry, config, on_stderr=on_stderr, **listeners)
        except FairleadError as exc:
            raise diagnose(exc, found, missing) from exc
        async with client:
            yield client

    return connecting()


def _with_path(url: str) -> str:
    """A WebSocket without a path is meant to be where `fairlead serve` has it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # the library says what is wrong with it
    return url if parts.path not in ("", "/") else parts._replace(path="/ws").geturl()


def _any_certificate() -> "ssl.SSLContext | None":
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def explain(exc: FairleadError, target: Target | None = None, *, has_token: bool = False) -> Failed:
    """An expected failure as a sentence, a hint and an exit code.

    `has_token` if we said who we are, so that it is the wrong one that was refused.
    """
    target = target or Target()
    if (refusal := _refusal(exc, has_token=has_token)) is not None:
        return refusal
    if isinstance(exc, RequestTimeout) or isinstance(exc.__cause__, TimeoutError):
        return Failed(
            _sentence(exc),
            hint="give it more time with --timeout, or see with --verbose what it does",
            code=TIMEOUT,
        )
    if target.url and isinstance(exc.__cause__, RpcError):
        exc = exc.__cause__  # somebody was there, and said no
    if isinstance(exc, ConnectFailed | ChannelClosed):
        return Failed(
            _sentence(exc),
            hint=_connection_hint(exc, target),
            details=[safe(line) for line in exc.stderr],
            code=NO_CONNECTION,
        )
    if isinstance(exc, ConfigError):
        return Failed(_sentence(exc), code=USAGE)
    if isinstance(exc, RpcError):
        return Failed(f"The server refused: {safe(exc.message)} (code {exc.code})", code=FAILED)
    return Failed(_sentence(exc), code=FAILED)


def _sentence(exc: FairleadError) -> str:
    """The message without a server's last words, which are shown apart."""
    text: str = getattr(exc, "summary", None) or str(exc)
    return safe(text[:1].upper() + text[1:])


def _refusal(exc: FairleadError, *, has_token: bool) -> Failed | None:
    """If somebody who speaks HTTP did not let us in: that, and the way in."""
    cause: BaseException | None = exc
    while cause is not None and not isinstance(cause, HttpError):
        cause = cause.__cause__
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
    return Failed(
        f"The server answered with HTTP {cause.status}",
        hint=hint,
        details=text.splitlines()[:10],
    )


def _words(body: str) -> str:
    """What an error says; it may be one of JSON-RPC, or any text."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.strip()


def _connection_hint(exc: ConnectFailed | ChannelClosed, target: Target) -> str:
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
        say("warning", f"the server wrote {lines} to its stdout that are no messages", "33")


def _show_stderr(line: str) -> None:
    sys.stderr.write(f"server: {safe(line)}\n")
