"""Expected failures of a server as a sentence, a hint and an exit code."""

import json

from ...errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    RequestTimeout,
    RpcError,
)
from .command_errors import FAILED, NO_CONNECTION, TIMEOUT, CommandError, UsageError
from .connect_target import ConnectTarget
from .output import safe

__all__ = ["describe_failure", "http_error"]


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
