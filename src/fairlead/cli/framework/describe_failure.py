"""Descriptions of expected failures: a message, a hint and an exit code."""

import json
import os
import re
from collections.abc import Mapping, Sequence

from ...auth.metadata import named_endpoint, server_resource
from ...client.connection.endpoint_probe import find_endpoint
from ...errors import (
    OUTPUT_HINT,
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LoginRequired,
    RequestTimeout,
    RpcError,
)
from ...transport.address_hint import address_hint, has_untrusted_certificate, has_wrong_path
from ...wire.error_codes import INTERNAL_ERROR
from .command_errors import FAILED, NO_CONNECTION, TIMEOUT, CommandError, UsageError
from .connect_target import ConnectTarget
from .output import safe
from .suggested_commands import suggest

__all__ = [
    "describe_failure",
    "endpoint_hint",
    "http_error",
    "missing_file",
    "oauth_hint",
    "scope_options",
    "with_endpoint",
]

_METADATA = re.compile(r'(?i)\bresource_metadata\s*=\s*"?([^",\s]+)')

# How interpreters and servers report a missing file on stderr.
_NO_FILE = (
    re.compile(r"can't open file '([^']+)'"),  # Python
    re.compile(r"Cannot find module '((?:file://)?/[^']+)'"),  # Node
    re.compile(r'Module not found "file://([^"]+)"'),  # Deno
    re.compile(r"No such file or directory: '([^']+)'"),  # an exception in Python
    re.compile(r"no such file or directory, \w+ '([^']+)'"),  # an exception in Node
    re.compile(r"(?m)^[\w./-]*sh: (?:\d+: |line \d+: )?(?:cannot open )?([^:\n]+): No such file"),
)

_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)  # a correlation id that can be shown


def describe_failure(
    exc: FairleadError, target: ConnectTarget | None = None, *, has_token: bool = False
) -> CommandError:
    """Return the command error for an expected failure.

    `has_token` is True if a token was sent; a 401 then means that the token is wrong.
    """
    target = target or ConnectTarget()
    if isinstance(exc, LoginRequired):
        # A login by name uses the settings of the entry.
        server = target.name or exc.server or target.url
        login = suggest("login", *scope_options(exc), operands=[server])
        hint = f"{login} logs in to the server"
        if exc.endpoint:
            login = suggest("login", operands=[exc.endpoint])
            hint = f"use the URL {safe(exc.endpoint)}; {login} logs in to it"
        return CommandError(safe(exc.args[0]), hint=hint, code=FAILED)
    if (refusal := _refusal(exc, target, has_token=has_token)) is not None:
        return refusal
    if isinstance(exc, ConnectFailed) and exc.output:
        return CommandError(
            _sentence(exc),
            hint=OUTPUT_HINT,
            details=[safe(line) for line in (*exc.output, *exc.stderr)],
            code=NO_CONNECTION,
        )
    if isinstance(exc, RequestTimeout) or isinstance(exc.__cause__, TimeoutError):
        late = exc if isinstance(exc, RequestTimeout) else exc.__cause__
        if isinstance(late, RequestTimeout) and late.output:
            details = [safe(line) for line in late.output]
            return CommandError(_sentence(late), hint=OUTPUT_HINT, details=details, code=TIMEOUT)
        return CommandError(
            _sentence(exc),
            hint="increase --timeout, or use --verbose to see the output of the server",
            code=TIMEOUT,
        )
    # The server responded, so its error is more specific than the failed connection.
    if target.url and isinstance(exc.__cause__, RpcError):
        exc = exc.__cause__
    if isinstance(exc, ConnectFailed | ChannelClosed):
        return CommandError(
            _sentence(exc),
            hint=_connection_hint(exc, target),
            details=[safe(line) for line in (*exc.output, *exc.stderr)],
            code=NO_CONNECTION,
        )
    if isinstance(exc, ConfigError):
        return UsageError(_sentence(exc))
    if isinstance(exc, RpcError):
        return CommandError(
            f"The server returned an error: {safe(exc.message)} (code {exc.code})",
            hint=_log_hint(exc, target) if exc.code == INTERNAL_ERROR else "",
            code=FAILED,
        )
    return CommandError(_sentence(exc), code=FAILED)


def _log_hint(exc: RpcError, target: ConnectTarget) -> str:
    """Return where to find the reason of an internal error, which the response omits."""
    data = exc.data if isinstance(exc.data, Mapping) else {}
    # `correlation_id` of a Fairlead server; its log contains the same id.
    found = str(data.get("correlation_id") or "")
    look_for = f": look for {found}" if _ID.fullmatch(found) else ""
    if target.url:
        return f"the log of the server contains the reason{look_for}"
    if target.command:
        return "--verbose shows the output of the server, which may contain the reason"
    return f"--verbose or the log of the server shows the reason{look_for}"


def _sentence(exc: FairleadError) -> str:
    """Return the message without the server's stderr, which is displayed separately."""
    text = exc.summary or str(exc)
    return safe(text[:1].upper() + text[1:])


def _refusal(exc: FairleadError, target: ConnectTarget, *, has_token: bool) -> CommandError | None:
    """Build the error for a rejected HTTP request, with a hint for its status."""
    cause = http_error(exc)
    if cause is None:
        return None
    hints = {
        401: "pass a token with --token, or set FAIRLEAD_TOKEN in the environment",
        403: "the server may require another token (--token) or another host name in the URL",
    }
    text = safe(_words(cause.body)[:500])
    hint = hints.get(cause.status, "") or safe(address_hint(cause, target.url))
    if cause.status == 401 and has_token:
        hint = "the server rejected the token: check --token and FAIRLEAD_TOKEN"
    elif cause.status == 401 and (oauth := oauth_hint(cause)):
        endpoint = endpoint_hint(cause, target.url)
        login = suggest("login", operands=[endpoint or server_resource(target.url)])
        wrong = f"use the URL {safe(endpoint)}; " if endpoint else ""
        hint = (
            f"{wrong}{oauth}: run {login}, or pass an access token with --token or FAIRLEAD_TOKEN"
        )
    return CommandError(
        f"The server responded with HTTP {cause.status}",
        hint=hint,
        details=text.splitlines()[:10],
    )


async def with_endpoint(
    failed: CommandError, exc: BaseException, url: str, place: str = ""
) -> CommandError:
    """Return the error with a hint that names the URL of the endpoint, if that was the problem.

    `place` is the entry that contains the URL, if it is configured.
    """
    if not has_wrong_path(exc) or (found := await find_endpoint(url)) is None:
        return failed
    what = f"correct its URL: {place}" if place else "use this URL"
    hint = safe(f"MCP is served at {found}; {what}")
    return CommandError(failed.sentence, hint=hint, details=failed.details, code=failed.code)


def scope_options(error: LoginRequired) -> list[str]:
    """Return the options of `fairlead login` that request the scopes of a refused request."""
    return [word for scope in error.login_scopes for word in ("--scope", scope)]


def endpoint_hint(error: HttpError, url: str) -> str:
    """Return the URL of the endpoint if a challenge shows that the path of a URL is wrong."""
    metadata = _METADATA.search(error.www_authenticate or "")
    return "" if metadata is None else named_endpoint(url, metadata[1])


def oauth_hint(error: HttpError) -> str:
    """Return a phrase about OAuth if the response mentions it, else an empty string."""
    metadata = _METADATA.search(error.www_authenticate or "")
    if metadata is None:
        return ""
    return f"the server requires OAuth authorization, described at {safe(metadata[1])}"


def missing_file(stderr: Sequence[str], cwd: str | None = None) -> str | None:
    """Return the path of a file that a program reported as missing and that does not exist.

    A relative path is completed with the folder in which the program was started.
    """
    said = "\n".join(stderr)
    for pattern in _NO_FILE:
        if found := pattern.findall(said):
            # The last one, because a program may ignore earlier errors.
            path = os.path.abspath(os.path.join(cwd or "", found[-1].removeprefix("file://")))
            return None if os.path.lexists(path) else path
    return None


def http_error(exc: BaseException | None) -> HttpError | None:
    """Return the HTTP error that caused a failure, if any."""
    while exc is not None and not isinstance(exc, HttpError):
        exc = exc.__cause__
    return exc


def _words(body: str) -> str:
    """Return the message of a JSON-RPC error body, or the body itself."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.strip()


def _connection_hint(exc: ConnectFailed | ChannelClosed, target: ConnectTarget) -> str:
    command = target.command
    if target.url:
        if hint := address_hint(exc, target.url):
            insecure = "; --insecure-tls accepts any certificate, for tests"
            return safe(hint) + (insecure if has_untrusted_certificate(exc) else "")
        return "check that the server is running at this address; `fairlead serve` prints it"
    if len(command) == 1 and " " in command[0]:
        return "pass the command as separate words, without quotes: -- python server.py"
    if path := missing_file(exc.stderr):
        return f"{safe(path)} does not exist: check the path"
    if exc.exit_code == 0:
        return "a server must run until its stdin closes: check that it calls `server.run()`"
    if exc.exit_code is not None and not exc.stderr and not exc.output:
        return "the server wrote nothing to stderr; run its command by hand to see more"
    return ""
