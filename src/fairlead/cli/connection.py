"""Talking to a server from a command: connect, and say plainly why it did not work."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..client import MCPClient, MCPClientConfig
from ..client.answers import OnElicit
from ..client.callbacks import OnLog
from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    RequestTimeout,
    RpcError,
)
from .failed import FAILED, NO_CONNECTION, TIMEOUT, Failed, say
from .output import safe

__all__ = ["connected", "explain", "run_async"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_async(main: Coroutine[Any, Any, int], *, loop_factory: LoopFactory | None = None) -> int:
    """Run a command's coroutine. Ctrl-C cancels it, so that it ends its server before we go."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


@asynccontextmanager
async def connected(
    command: Sequence[str],
    *,
    timeout: float | None = None,
    verbose: bool = False,
    on_log: OnLog | None = None,
    on_elicit: OnElicit | None = None,
) -> AsyncIterator[MCPClient]:
    """A client connected to the server that a command starts; both end with the block.

    Raises:
        Failed: for everything that can go wrong with a server.
    """
    # Our own warnings are told once, below, in words for a person.
    logging.getLogger("fairlead").addHandler(logging.NullHandler())
    config = MCPClientConfig() if timeout is None else MCPClientConfig(timeout_seconds=timeout)
    connecting = MCPClient.connect_stdio(
        command,
        config,
        on_log=on_log,
        on_elicit=on_elicit,
        on_stderr=_show_stderr if verbose else None,
    )
    try:
        async with connecting as client:
            yield client
            _mention_garbage(client)
    except FairleadError as exc:
        raise explain(exc, command) from exc


def explain(exc: FairleadError, command: Sequence[str] = ()) -> Failed:
    """An expected failure as a sentence, a hint and an exit code."""
    if isinstance(exc, RequestTimeout) or isinstance(exc.__cause__, TimeoutError):
        return Failed(
            _sentence(exc),
            hint="give it more time with --timeout, or see with --verbose what it does",
            code=TIMEOUT,
        )
    if isinstance(exc, ConnectFailed | ChannelClosed):
        return Failed(
            _sentence(exc),
            hint=_connection_hint(exc, command),
            details=[safe(line) for line in exc.stderr],
            code=NO_CONNECTION,
        )
    if isinstance(exc, RpcError):
        return Failed(f"The server refused: {safe(exc.message)} (code {exc.code})", code=FAILED)
    return Failed(_sentence(exc), code=FAILED)


def _sentence(exc: FairleadError) -> str:
    """The message without a server's last words, which are shown apart."""
    text: str = getattr(exc, "summary", None) or str(exc)
    return safe(text[:1].upper() + text[1:])


def _connection_hint(exc: ConnectFailed | ChannelClosed, command: Sequence[str]) -> str:
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
