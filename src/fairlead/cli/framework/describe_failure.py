"""Expected failures as a sentence, a hint and an exit code."""

import json
import re

from ...errors import (
    OUTPUT_HINT,
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from .command_errors import FAILED, NO_CONNECTION, TIMEOUT, CommandError, UsageError
from .connect_target import ConnectTarget
from .output import safe

__all__ = ["address_hint", "describe_failure", "http_error", "oauth_hint"]


def describe_failure(
    exc: FairleadError, target: ConnectTarget | None = None, *, has_token: bool = False
) -> CommandError:
    """Return the command error for an expected failure.

    `has_token` is True if a token was sent, so that a 401 means that the token is wrong.
    """
    target = target or ConnectTarget()
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
            details=[safe(line) for line in exc.stderr],
            code=NO_CONNECTION,
        )
    if isinstance(exc, ConfigError):
        return UsageError(_sentence(exc))
    if isinstance(exc, RpcError):
        return CommandError(
            f"The server returned an error: {safe(exc.message)} (code {exc.code})", code=FAILED
        )
    return CommandError(_sentence(exc), code=FAILED)


def _sentence(exc: FairleadError) -> str:
    """Return the message without the stderr of the server, which is shown separately."""
    text = exc.summary or str(exc)
    return safe(text[:1].upper() + text[1:])


def _refusal(exc: FairleadError, target: ConnectTarget, *, has_token: bool) -> CommandError | None:
    """Return the error for a rejected HTTP request, with a hint for its status."""
    cause = http_error(exc)
    if cause is None:
        return None
    hints = {
        401: "pass a token with --token, or set FAIRLEAD_TOKEN in the environment",
        403: "the server may require another token (--token) or another host name in the URL",
        404: "check the path of the MCP endpoint in the URL; it is usually /mcp",
        405: "check the path of the MCP endpoint in the URL; it is usually /mcp",
    }
    text = safe(_words(cause.body)[:500])
    hint = hints.get(cause.status, "")
    if cause.status == 401 and has_token:
        hint = "the server rejected the token: check --token and FAIRLEAD_TOKEN"
    elif cause.status == 401 and (oauth := oauth_hint(cause)):
        hint = f"{oauth}; pass an access token with --token or FAIRLEAD_TOKEN"
    elif cause.status == 400 and target.url[:5].lower() == "http:":
        hint = f"if the server uses TLS, write {_with_tls(target.url)}"
    return CommandError(
        f"The server responded with HTTP {cause.status}",
        hint=hint,
        details=text.splitlines()[:10],
    )


def oauth_hint(error: HttpError) -> str:
    """Return a phrase about OAuth if the response refers to it, else an empty string."""
    challenge = error.www_authenticate or ""
    metadata = re.search(r'(?i)\bresource_metadata\s*=\s*"?([^",\s]+)', challenge)
    if metadata is None:
        return ""
    return f"the server requires OAuth authorization, described at {safe(metadata[1])}"


def address_hint(exc: BaseException, url: str, *, insecure_option: str = "") -> str:
    """Return a hint for a URL whose scheme, certificate or path is probably wrong, if it is known.

    Only attributes of the errors are used. `insecure_option` is the option that accepts any
    certificate, if the command has one.
    """
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, RemoteProtocolError) and cause.content_type == "text/html":
            return f"{safe(url)} is a web page: check the path of the MCP endpoint, usually /mcp"
        # `ssl` is imported only for a connection with TLS, and only such a connection raises this.
        if type(cause).__module__ == "ssl":
            return _tls_hint(cause, url, insecure_option)
        if isinstance(cause, ConnectionResetError | EOFError) and not _uses_tls(url):
            return f"if the server uses TLS, write {_with_tls(url)}"
        cause = cause.__cause__
    return ""


def _tls_hint(error: BaseException, url: str, insecure_option: str) -> str:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _SELF_SIGNED:
            other = f"; {insecure_option} accepts any, for tests" if insecure_option else ""
            return (
                "the certificate is self-signed or its issuer is unknown: set SSL_CERT_FILE to a "
                f"file with the certificate of the issuer{other}"
            )
        return "the certificate is not valid for this address: check the host name and the date"
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return f"the server does not use TLS: write {_without_tls(url)}"
    return ""


# Codes of OpenSSL: self-signed, self-signed in the chain, and issuer not found.
_SELF_SIGNED = (18, 19, 20, 21)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


def _uses_tls(url: str) -> bool:
    return url.lower().startswith(("https:", "wss:"))


def _without_tls(url: str) -> str:
    return safe(re.sub("(?i)^(http|ws)s:", r"\1:", url))


def _with_tls(url: str) -> str:
    return safe(re.sub("(?i)^(http|ws):", r"\1s:", url))


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
        if hint := address_hint(exc, target.url, insecure_option="--insecure-tls"):
            return hint
        return "check that the server is running at this address; `fairlead serve` prints it"
    if len(command) == 1 and " " in command[0]:
        return "pass the command as separate words, without quotes: -- python server.py"
    if exc.exit_code == 0:
        return "a server must run until its stdin closes: check that it calls `server.run()`"
    if exc.exit_code is not None and not exc.stderr:
        return "the server wrote nothing to stderr; run its command by hand to see more"
    return ""
